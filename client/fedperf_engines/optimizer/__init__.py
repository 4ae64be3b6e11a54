"""The choice of a platform for every operator of a workflow."""
