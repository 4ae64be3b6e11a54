"""Experiment: forgetting while learning a drifting sequence, and the detection of drift."""
