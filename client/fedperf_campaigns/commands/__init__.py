"""Commands of `fedperf` about campaigns."""
