"""Fakes that tests of several packages use."""
