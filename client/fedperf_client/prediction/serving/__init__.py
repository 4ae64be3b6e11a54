"""From fitted predictors to answers: what if, why, and what is kept for the next command."""
