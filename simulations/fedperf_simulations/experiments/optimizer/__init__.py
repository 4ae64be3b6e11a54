"""How long it takes to choose platforms, and what pruning gives away."""
