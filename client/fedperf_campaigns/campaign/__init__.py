"""Campaigns: an organization's own job, measured over a grid of configurations."""
