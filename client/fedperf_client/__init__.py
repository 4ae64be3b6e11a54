"""The client: what an organization runs on its own premises."""
