"""An organization's own executions, read from its home and split for a rehearsal of its year.

The home is read and stays as it is. Some workloads are kept away from everything that is learned,
so that answers about them can be judged. At most `MOST_WORKLOADS` are drawn from a store, so that a
rehearsal takes about as long for everybody.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_shared.execution import Execution

MOST_WORKLOADS = 2000
MOST_EXECUTIONS = 3
"""Of a workload, the ones that finished last."""

ASKED_SHARE, MOST_ASKED = 0.25, 50
"""Of the workloads, those that are kept away."""


@dataclass(frozen=True, slots=True)
class LocalHistory:
    """An organization's own executions.

    Attributes:
        stored: workloads in the home.
        known: executions that the organization has when it joins.
        asked: executions of other workloads that answers are judged by.
    """

    stored: int
    known: tuple[Execution, ...]
    asked: tuple[Execution, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all workloads."""
        return frozenset(each.workload for each in (*self.known, *self.asked))


def read_jobs(home: Home, *, seed: int) -> LocalHistory:
    """The executions in the home; `seed` decides which workloads are kept away.

    Raises:
        StorageError: the store cannot be read.
    """
    if not home.store.is_file():
        return LocalHistory(0, (), ())
    with ExecutionStore.open_unchanged(home.store) as store:
        names = store.workloads()
        order = np.random.default_rng([seed, 1]).permutation(len(names))[:MOST_WORKLOADS]
        drawn = [
            deque(store.executions(workload=names[place]), MOST_EXECUTIONS)
            for place in order.tolist()
        ]
    ended_well = [any(each.is_ok for each in every) for every in drawn]
    count = min(MOST_ASKED, int(ASKED_SHARE * sum(ended_well)))
    asked = np.flatnonzero(ended_well)[:count].tolist()
    known = [each for place, each in enumerate(drawn) if place not in asked]
    return LocalHistory(len(names), _flat(known), _flat([drawn[place] for place in asked]))


def _flat(workloads: Sequence[Sequence[Execution]]) -> tuple[Execution, ...]:
    return tuple(each for executions in workloads for each in executions)
