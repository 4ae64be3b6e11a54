"""The measured set, split once by workload among the public and three organizations.

The public part (it trains the limited start of simulations) is what a published
micro-benchmark would hold: small relational jobs on DuckDB with one thread. Alder runs
text and graph jobs beside relational ones, Birch credit scoring and warehouse queries,
both with two threads at times and at all sizes; Cedar is small and does a bit of
everything. So everyone knows something that the public start and the others do not.
Validation and test part have a bit of everything and train nothing: by the first, which
is public, coordinators judge versions; by the second, nobody decides anything.

The split is a function of a workload's name: the same in every run and for all
executions of a workload.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import accumulate

from fedperf_engines.workloads.families import Family
from fedperf_shared.execution import Execution
from fedperf_shared.releases.release import SizeClass
from fedperf_shared.workflow.vocabulary import Platform

PUBLIC_ROWS = 1e4
"""The public part knows no larger sources."""

TEST_SHARE = 0.08
VALIDATION_SHARE = 0.03
CEDAR_SHARE = 0.05
PUBLIC_SHARE = 0.8
ALDER_SHARE = 0.45
"""Upper ends on [0, 1): of all workloads, and of the relational ones that are left."""

HELD_OUT_SHARE = 0.08
HELD_OUT_SHARE_OF_SMALL = 0.45
"""Of an organization's workloads, those that it never gets to see."""


@unique
class WorkloadPart(StrEnum):
    """The part of the measured set that a workload belongs to."""

    PUBLIC = "public"
    VALIDATION = "validation"
    TEST = "test"
    ALDER = "alder"
    BIRCH = "birch"
    CEDAR = "cedar"


@dataclass(frozen=True, slots=True)
class OrganizationPart:
    """The workloads and declarations of one organization of a simulation.

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
    WorkloadPart.ALDER: (SizeClass.LARGE, 2000),
    WorkloadPart.BIRCH: (SizeClass.LARGE, 2000),
    WorkloadPart.CEDAR: (SizeClass.SMALL, 200),
}


def split(executions: Iterable[Execution]) -> dict[WorkloadPart, tuple[Execution, ...]]:
    """The executions of each part, in the given order; of public workloads the simple ones."""
    parts: dict[WorkloadPart, list[Execution]] = {part: [] for part in WorkloadPart}
    placed: dict[str, WorkloadPart] = {}
    for execution in executions:
        if execution.workload not in placed:
            placed[execution.workload] = part_of(execution)
        part = placed[execution.workload]
        if part is not WorkloadPart.PUBLIC or _is_simple(execution):
            parts[part].append(execution)
    return {part: tuple(members) for part, members in parts.items()}


def organization(
    part: WorkloadPart, executions: Iterable[Execution], *, seed: int = 0
) -> OrganizationPart:
    """The executions of one organization's part as history and held-out workloads by `seed`."""
    size_class, nominal = DECLARED[part]
    small = size_class is SizeClass.SMALL
    share = HELD_OUT_SHARE_OF_SMALL if small else HELD_OUT_SHARE
    history: list[Execution] = []
    held_out: list[Execution] = []
    for execution in executions:
        hidden = _uniform(f"held out {seed}", execution.workload) < share
        (held_out if hidden else history).append(execution)
    return OrganizationPart(part.value, size_class, nominal, tuple(history), tuple(held_out))


def part_of(execution: Execution) -> WorkloadPart:
    """The part of an execution's workload, by its name, size and threads."""
    first = _uniform("part", execution.workload)
    ends = accumulate((TEST_SHARE, VALIDATION_SHARE, CEDAR_SHARE))
    for part, end in zip(
        (WorkloadPart.TEST, WorkloadPart.VALIDATION, WorkloadPart.CEDAR), ends, strict=True
    ):
        if first < end:
            return part
    family = execution.workload.partition("-")[0]
    if family in {Family.WORD_COUNT, Family.PAGERANK}:
        return WorkloadPart.ALDER
    if family == Family.CREDIT:
        return WorkloadPart.BIRCH
    second = _uniform("relational", execution.workload)
    if family == Family.RELATIONAL and second < PUBLIC_SHARE and _is_simple(execution):
        return WorkloadPart.PUBLIC
    return WorkloadPart.ALDER if second < ALDER_SHARE else WorkloadPart.BIRCH


def _is_simple(execution: Execution) -> bool:
    rows = max(o.output_rows for o in execution.plan.workflow.operators if not o.inputs)
    platforms = set(execution.plan.platforms)
    return rows <= PUBLIC_ROWS and execution.cluster.cores == 1 and platforms == {Platform.DUCKDB}


def _uniform(purpose: str, workload: str) -> float:
    """A number in [0, 1) that follows from purpose and workload alone."""
    digest = hashlib.blake2b(f"{purpose}/{workload}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
