"""The commands of `fedperf-server`, one module for each part of the operator's work."""
