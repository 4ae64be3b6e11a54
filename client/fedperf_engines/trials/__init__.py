"""Programs run in child processes: the pool, its workers, what a trial is."""
