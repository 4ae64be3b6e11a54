"""Child processes: their supervisor, their own side, and the worker process of the daemon."""
