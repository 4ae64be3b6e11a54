"""Commands of `fedperf` that run programs or advise on platforms."""
