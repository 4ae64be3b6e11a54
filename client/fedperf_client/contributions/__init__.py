"""Contributions of an organization's own executions to its releases, and their noise.

`local_sums` computes what each workload contributes and adds it up. `mechanisms` bounds every
contribution, proves the bound, and adds the noise that it receives.
"""
