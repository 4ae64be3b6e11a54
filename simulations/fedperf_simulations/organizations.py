"""The measured set, split once by workload among the public and three organizations.

The public part (it trains the start that ships with fedperf) knows small relational
jobs on one thread. Alder runs text and graph jobs beside relational ones, Birch credit
scoring and warehouse queries, both with two threads at times and at all sizes; Cedar is
small and does a bit of everything. So everyone knows something that the public start
and the others do not. The test part has a bit of everything and trains nothing.

The split is a function of a workload's name: the same in every run and for all
executions of a workload.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique

from fedperf_client.workloads.families import Family
from fedperf_shared.execution import Execution
from fedperf_shared.release import SizeClass

PUBLIC_ROWS = 1e5
"""The public part knows no larger sources."""

TEST_SHARE = 0.11
CEDAR_SHARE = 0.05
PUBLIC_SHARE = 0.36
ALDER_SHARE = 0.68
"""Upper ends on [0, 1): of all workloads, and of the relational ones that are left."""

HELD_OUT_SHARE = 0.08
HELD_OUT_SHARE_OF_SMALL = 0.45
"""Of an organization's workloads, those that it never gets to see."""


@unique
class Part(StrEnum):
    """Who has a workload."""

    PUBLIC = "public"
    TEST = "test"
    ALDER = "alder"
    BIRCH = "birch"
    CEDAR = "cedar"


@dataclass(frozen=True, slots=True)
class OrganizationPart:
    """What one organization of a simulation has.

    Attributes:
        name: who it is.
        size_class: what its policy declares.
        nominal_workloads: what its policy declares.
        history: executions that ran before it joined.
        held_out: executions of other workloads, to judge predictions by.
    """

    name: str
    size_class: SizeClass
    nominal_workloads: int
    history: tuple[Execution, ...]
    held_out: tuple[Execution, ...]


DECLARED = {
    Part.ALDER: (SizeClass.LARGE, 2000),
    Part.BIRCH: (SizeClass.LARGE, 2000),
    Part.CEDAR: (SizeClass.SMALL, 200),
}


def split(executions: Iterable[Execution]) -> dict[Part, tuple[Execution, ...]]:
    """The executions of each part, in the given order."""
    parts: dict[Part, list[Execution]] = {part: [] for part in Part}
    placed: dict[str, Part] = {}
    for execution in executions:
        if execution.workload not in placed:
            placed[execution.workload] = part_of(execution)
        parts[placed[execution.workload]].append(execution)
    return {part: tuple(members) for part, members in parts.items()}


def organization(part: Part, executions: Iterable[Execution]) -> OrganizationPart:
    """The executions of one organization's part as history and held-out workloads."""
    size_class, nominal = DECLARED[part]
    small = size_class is SizeClass.SMALL
    share = HELD_OUT_SHARE_OF_SMALL if small else HELD_OUT_SHARE
    history: list[Execution] = []
    held_out: list[Execution] = []
    for execution in executions:
        hidden = _uniform("held out", execution.workload) < share
        (held_out if hidden else history).append(execution)
    return OrganizationPart(part.value, size_class, nominal, tuple(history), tuple(held_out))


def part_of(execution: Execution) -> Part:
    """The part of an execution's workload, by its name, size and threads."""
    first = _uniform("part", execution.workload)
    if first < TEST_SHARE:
        return Part.TEST
    if first < TEST_SHARE + CEDAR_SHARE:
        return Part.CEDAR
    family = execution.workload.partition("-")[0]
    if family in {Family.WORD_COUNT, Family.PAGERANK}:
        return Part.ALDER
    if family == Family.CREDIT:
        return Part.BIRCH
    second = _uniform("relational", execution.workload)
    rows = max(o.output_rows for o in execution.plan.workflow.operators if not o.inputs)
    if rows <= PUBLIC_ROWS and execution.cluster.cores == 1 and second < PUBLIC_SHARE:
        return Part.PUBLIC
    return Part.ALDER if second < ALDER_SHARE else Part.BIRCH


def _uniform(purpose: str, workload: str) -> float:
    """A number in [0, 1) that follows from purpose and workload alone."""
    digest = hashlib.blake2b(f"{purpose}/{workload}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
