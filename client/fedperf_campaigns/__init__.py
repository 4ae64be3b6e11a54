"""Trials of programs in child processes: how long they took and what they used."""
