"""How long will it take, and how sure are we: predictors, their weighting, intervals."""
