"""Where a job should run: platforms per operator and the size of the cluster, with reasons."""
