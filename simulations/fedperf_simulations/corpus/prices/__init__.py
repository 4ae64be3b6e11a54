"""The prices of the analytic cost model: where they begin, and how measured runs move them."""
