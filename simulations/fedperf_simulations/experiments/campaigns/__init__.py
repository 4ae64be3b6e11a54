"""Experiment: the number of configurations that a campaign has to run."""
