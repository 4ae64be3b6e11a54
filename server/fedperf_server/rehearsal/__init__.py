"""Synthetic rows from reports, and the buffer that keeps them for rehearsal."""
