"""Jobs that are known by the columns of a table: what predicts them, and how sure it is."""
