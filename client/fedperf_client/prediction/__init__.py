"""Prediction of run times and of their uncertainty: predictors, their weighting, intervals."""
