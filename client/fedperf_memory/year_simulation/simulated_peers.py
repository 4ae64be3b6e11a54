"""Stand-ins for the other members of a rehearsal: jobs of the measured set that ships.

Each stand-in declares what the organization itself declares. It has as many workloads, as far as
there are so many. No workload is in two hands, and none is one of the organization's own.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from fedperf_shared.execution import Execution

MEASURED_RUNS = Path(__file__).with_name("measured.parquet")
"""Thousands of drawn workloads that ran on one machine: `fedperf-sim measure --install`."""


def stand_ins(
    measured: Iterable[Execution],
    *,
    members: int,
    workloads: int,
    others: Collection[str],
    seed: int,
) -> tuple[tuple[Execution, ...], ...]:
    """Executions of each stand-in.

    Args:
        measured: what they are drawn from.
        members: how many there are.
        workloads: of each, where there are enough.
        others: names of workloads that none of them has.
        seed: of who has what.
    """
    found: dict[str, list[Execution]] = {}
    for each in measured:
        if each.workload not in others:
            found.setdefault(each.workload, []).append(each)
    names = sorted(found)
    count = min(workloads, len(names) // max(members, 1))
    order = np.random.default_rng([seed, 2]).permutation(len(names)).tolist()
    return tuple(
        tuple(each for place in order[first : first + count] for each in found[names[place]])
        for first in range(0, members * count, count or 1)
    )
