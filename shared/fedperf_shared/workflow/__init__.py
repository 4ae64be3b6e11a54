"""Workflows, plans and what the cost model sees of them."""
