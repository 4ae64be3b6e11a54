"""Public rules of releases: what may be asked of an organization, what may leave it, and when."""
