"""What may be asked of an organization and released by it, and when."""
