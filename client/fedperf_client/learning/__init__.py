"""What an organization computes from its own executions for a release, before any noise."""
