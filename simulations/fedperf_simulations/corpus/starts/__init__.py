"""The starts that are trained on what was measured, and what may be claimed of them."""
