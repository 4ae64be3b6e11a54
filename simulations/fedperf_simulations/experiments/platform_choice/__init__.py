"""Experiment: GGFN against its baselines, in predicting run times and in choosing platforms."""
