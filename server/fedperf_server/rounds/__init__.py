"""Model rounds: the coordinator's state machine and the ways in which rounds train."""
