"""Failures of Spark applications: what made them fail, and the settings against it."""
