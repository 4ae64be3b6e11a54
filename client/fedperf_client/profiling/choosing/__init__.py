"""Which configuration of a grid to run next, and when enough were run."""
