"""Experiment: attacks on every mechanism of a release, to test the promised epsilon."""
