"""The commands of `fedperf-server`, one module for each thing that an operator looks after."""
