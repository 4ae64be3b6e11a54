"""The record of a campaign's trials: journal, outcomes, noise."""
