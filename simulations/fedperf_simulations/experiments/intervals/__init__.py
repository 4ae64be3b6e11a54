"""Experiment: the accuracy of predictions and the coverage of their intervals, by situation."""
