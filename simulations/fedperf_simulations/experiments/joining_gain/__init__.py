"""Experiment: the gain of an organization that joins."""
