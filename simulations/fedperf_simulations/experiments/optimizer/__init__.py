"""Benchmark: the time to choose platforms, and the regret of pruning."""
