"""Whole federations for experiments: the product's coordinator and members on one machine."""
