"""Opponents: cost models and rules of others."""
