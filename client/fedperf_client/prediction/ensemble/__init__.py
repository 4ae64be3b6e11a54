"""Weights of learners for the queries at hand, and the uncertainty of the ensemble."""
