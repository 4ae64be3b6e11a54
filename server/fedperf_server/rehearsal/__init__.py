"""Synthetic rows from reports, and the buffer that stores them for rehearsal."""
