"""Benchmark: the speed at which history is taken in."""
