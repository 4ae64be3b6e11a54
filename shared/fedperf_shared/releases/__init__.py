"""Public rules of releases: linear queries, contents and dates."""
