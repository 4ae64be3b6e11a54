"""Drift at home: whether own executions take longer or shorter than they used to, since when."""
