"""What an organization gains by joining."""
