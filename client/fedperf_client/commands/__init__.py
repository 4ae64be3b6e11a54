"""The commands of `fedperf`, one file each."""
