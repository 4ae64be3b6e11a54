"""The daemon runs an organization's slots unattended."""
