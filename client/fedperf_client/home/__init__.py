"""An organization's home directory: its configuration and its executions."""
