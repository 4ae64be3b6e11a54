"""Run programs on engines: platforms, workloads, search over plans, advice where to run."""
