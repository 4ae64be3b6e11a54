"""What a Spark log says of its jobs: where their time went, and what would change it."""
