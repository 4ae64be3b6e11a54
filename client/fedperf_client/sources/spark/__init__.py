"""Spark event logs as sources of executions."""
