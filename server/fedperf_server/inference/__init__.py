"""Inference from noisy sums: pure mathematics, without database or clock."""
