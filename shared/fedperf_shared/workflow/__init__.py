"""Workflows, plans and their features."""
