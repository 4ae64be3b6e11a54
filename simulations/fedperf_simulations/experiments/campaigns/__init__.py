"""How many configurations a campaign has to run."""
