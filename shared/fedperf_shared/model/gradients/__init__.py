"""Gradients of GGFN plan by plan, in arithmetic whose bits do not depend on the batch."""
