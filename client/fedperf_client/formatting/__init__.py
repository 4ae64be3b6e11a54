"""Texts that people read and write on a terminal: durations, trees, workflow files, progress."""
