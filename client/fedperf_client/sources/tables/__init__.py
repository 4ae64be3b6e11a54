"""Tables of past runs as a source of executions."""
