"""The processes of a campaign's trials."""
