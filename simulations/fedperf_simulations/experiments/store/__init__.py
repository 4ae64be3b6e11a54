"""Benchmark: the cost of learning and asking, as a home's executions grow in number."""
