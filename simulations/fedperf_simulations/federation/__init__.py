"""Organizations and a coordinator in one process."""
