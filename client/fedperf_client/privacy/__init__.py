"""Mechanisms and their accounting: pure, given their randomness."""
