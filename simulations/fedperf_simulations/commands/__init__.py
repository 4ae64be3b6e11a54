"""Commands of `fedperf-sim` that stand in files of their own."""
