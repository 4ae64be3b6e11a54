"""Whether GGFN predicts and chooses better than its baselines."""
