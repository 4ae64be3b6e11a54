"""Evaluation of predictions at home: the gain from joining, and the quality of synthetic rows."""
