"""Predictions for commands: what-if analysis, explanations and the predictor cache."""
