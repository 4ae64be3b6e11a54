"""Diagnosis of jobs from a Spark log: where their time went, and what would change it."""
