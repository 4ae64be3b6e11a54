"""Experiment: the cost of sharing few runs privately."""
