"""The checks of `fedperf doctor`: one thing each, and what to do about it."""
