"""The node of an organization: joining, its requests to the coordinator, its daemon and replies."""
