"""Predictors of jobs that are described by the columns of a table, and their uncertainty."""
