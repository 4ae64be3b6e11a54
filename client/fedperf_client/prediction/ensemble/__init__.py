"""Weights of learners for the questions at hand, and the uncertainty of their mix."""
