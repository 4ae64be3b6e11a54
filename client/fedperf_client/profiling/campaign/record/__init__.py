"""What a campaign's trials came to: journal, outcomes, noise."""
