"""Stand-ins that tests of several packages use."""
