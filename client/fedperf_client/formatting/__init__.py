"""Formats of facts, trees, workflow files and progress on a terminal."""
