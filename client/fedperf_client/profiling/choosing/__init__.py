"""The choice of the next configuration of a grid to run, and of when enough were run."""
