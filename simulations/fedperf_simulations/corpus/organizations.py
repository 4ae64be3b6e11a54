"""The measured set, split once by workload among the public and three organizations.

The public part (it trains the limited model of simulations) is what a published micro-benchmark
would hold: small relational jobs on DuckDB with one thread. Alder runs text and graph jobs next to
relational ones, Birch credit scoring and warehouse queries, both with two threads at times and at
all sizes; Cedar is small and does a bit of everything. So every organization has runs that the
pretrained model and the others lack. Validation and test part have a bit of everything and train
nothing: by the first, which is public, coordinators judge versions; the second decides nothing.

The split is a function of a workload's name: the same in every run and for all
executions of a workload.

New platform. All organizations run a platform that the public model has never seen. Public: the
measured set without that platform (the base model is trained on it), and unmeasured plans for the
platform (anchors). Private: workloads that were measured on that platform alone, partitioned among
the organizations by a seed; a workload that is public by name belongs to no organization. The
held-out workloads belong to no organization.

Drift. A year of measured workloads has three segments. First all organizations run DuckDB and
pandas on whole cores, on which the initial model was trained (`first_segment`); then containers get
half a core and 1 GB (the capped set); then work moves to Polars, on whole cores again. The features
describe each segment: the cluster, and the platform of every operator. Workloads differ between
segments; those that are public by name belong to no organization.

Organizations draw from one pool and share workloads: the noise is that of so many
organizations, the variety that of the pool, so less than theirs would be.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, unique
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_engines.workloads.families import Family
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import SizeClass
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.training_set import measured_plans
from fedperf_simulations.data.datasets import CAPPED, measured_executions

PUBLIC_ROWS = 1e4
"""The public part has no larger sources."""

TEST_SHARE = 0.08
VALIDATION_SHARE = 0.03
CEDAR_SHARE = 0.05
PUBLIC_SHARE = 0.8
ALDER_SHARE = 0.45
"""Upper ends on [0, 1): of all workloads, and of the relational ones that are left."""

HELD_OUT_SHARE = 0.08
HELD_OUT_SHARE_OF_SMALL = 0.45
"""Share of an organization's workloads that it never sees."""


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
    """Return the executions of each part, in the given order. Public ones are the simple ones."""
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
    """Return the part of an execution's workload, by its name, size and threads."""
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
    """Return a number in [0, 1) that follows from purpose and workload alone."""
    digest = hashlib.blake2b(f"{purpose}/{workload}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


Floats = NDArray[np.float64]

ANCHORS = 1500
"""Public plans for the new platform, without a run time."""


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Plans and what they took.

    Attributes:
        graphs: one per workload.
        log_seconds: float64 [workloads].
    """

    graphs: tuple[Features, ...]
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.graphs)

    def of(self, positions: NDArray[np.int64]) -> "MeasuredTimes":
        """Return the workloads at `positions`."""
        return MeasuredTimes(
            tuple(self.graphs[position] for position in positions), self.log_seconds[positions]
        )

    @cached_property
    def seconds(self) -> Floats:
        """Measured wall seconds, [workloads]."""
        return np.exp(self.log_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class NewPlatform:
    """The public plans, and the plans measured on the new platform."""

    public: MeasuredTimes
    anchors: tuple[PlanOnCluster, ...]
    private: MeasuredTimes

    @classmethod
    def load(cls, platform: Platform) -> "NewPlatform":
        """Return the plans from the measured sets that ship with the project.

        Raises:
            MissingDataError: there is no set of that platform.
        """
        name = platform.name.lower()
        executions = one_per_workload(measured_executions())
        public = [each for each in executions if platform not in each.plan.platforms]
        unrun = [each for each in executions if set(each.plan.platforms) == {platform}]
        names = {each.workload for each in executions}
        private = one_per_workload(
            each for each in measured_executions(name) if each.workload not in names
        )
        anchors = tuple(PlanOnCluster(each.plan, each.cluster) for each in unrun[:ANCHORS])
        return cls(_measured(public), anchors, _measured(private))

    def deal(self, organizations: int, workloads: int, *, seed: int) -> "NewPlatformSplit":
        """Partition the workloads by `seed`. The rest is held out.

        Raises:
            ConfigurationError: there are not more workloads than the organizations get.
        """
        pool_size = organizations * workloads
        if not pool_size < len(self.private):
            raise ConfigurationError(
                f"{organizations} organizations with {workloads} workloads need more than "
                f"{pool_size} measured ones, there are {len(self.private)}"
            )
        order = np.random.default_rng([seed, 0]).permutation(len(self.private))
        hands = np.split(order[:pool_size], organizations)
        return NewPlatformSplit(
            tuple(self.private.of(hand) for hand in hands), self.private.of(order[pool_size:])
        )


@dataclass(frozen=True, slots=True, eq=False)
class NewPlatformSplit:
    """The workloads of each organization, and the held-out workloads.

    Attributes:
        organizations: their workloads.
        held_out: workloads of no organization, to evaluate on.
    """

    organizations: tuple[MeasuredTimes, ...]
    held_out: MeasuredTimes


def _measured(executions: Iterable[Execution]) -> MeasuredTimes:
    plans = measured_plans(executions)
    return MeasuredTimes(
        tuple(featurize(each.plan, each.cluster) for each in plans),
        np.array([each.log_seconds for each in plans]),
    )


SEGMENTS = ("DuckDB and pandas", "half a core", "Polars")

FIRST_WINDOWS = (0, 4, 9)
"""Windows, of thirteen, with which a regime and its segment begin."""


@dataclass(frozen=True, slots=True)
class DriftingYear:
    """The executions of an organization in a year.

    Attributes:
        labelled: its workloads; `regime` is the segment, in every window of which each of them
            runs, always as it was measured.
        begins: when each segment begins; each ends when the next one begins.
    """

    labelled: tuple[LabelledGraph, ...]
    begins: tuple[datetime, ...]

    def between(self, since: datetime | None, until: datetime) -> list[LabelledGraph]:
        """Return the workloads that ran from `since` (None: ever) until before `until`."""
        last = bisect_left(self.begins, until) - 1
        first = 0 if since is None else max(bisect_right(self.begins, since) - 1, 0)
        return [each for each in self.labelled if first <= each.regime <= last]


@dataclass(frozen=True, slots=True, eq=False)
class DriftSplit:
    """The workloads of each organization, and the held-out workloads.

    Attributes:
        organizations: what each executes in the year.
        held_out: per segment, workloads of no organization to evaluate on.
        names: of all those.
    """

    organizations: tuple[DriftingYear, ...]
    held_out: tuple[MeasuredTimes, ...]
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class WorkloadSplit:
    """The numbers of workloads of each segment.

    Attributes:
        organizations: how many share them.
        workloads: of each organization, drawn from the pool.
        pool: of all organizations together.
        held_out: of no organization.
    """

    organizations: int = 10
    workloads: int = 1000
    pool: int = 1200
    held_out: int = 300

    def __post_init__(self) -> None:
        if not self.workloads <= self.pool:
            raise ConfigurationError(f"{self.workloads} of {self.pool} workloads cannot be drawn")


def private_segments() -> tuple[tuple[LabelledGraph, ...], ...]:
    """Return the workloads of each segment. Raises the errors of `private_executions`."""
    return tuple(
        labelled_in(executions, regime) for regime, executions in enumerate(private_executions())
    )


def private_executions() -> tuple[tuple[Execution, ...], ...]:
    """Return one execution of each workload of each segment. No workload is in two of them.

    Raises:
        MissingDataError: a measured set is not there.
    """
    first = tuple(measured_executions())
    parts = split(first)
    public = {
        each.workload
        for part in (WorkloadPart.PUBLIC, WorkloadPart.VALIDATION)
        for each in parts[part]
    }
    embedded = [each for each in first if {*each.plan.platforms} <= _FIRST_PLATFORMS]
    taken = {each.workload for each in first}
    capped = _others(measured_executions(CAPPED), taken)
    taken |= {each.workload for each in capped}
    polars = _others(measured_executions(Platform.POLARS.name.lower()), taken)
    return _others(embedded, public), capped, polars


def deal(
    segments: Sequence[Sequence[LabelledGraph]], hands: WorkloadSplit, period: Period, *, seed: int
) -> DriftSplit:
    """Partition the workloads by `seed`. Segments begin with `first_windows` of `period`.

    Raises:
        ConfigurationError: a segment has fewer workloads than are to be given.
    """
    rng = np.random.default_rng([seed, 0])
    lived = [list[LabelledGraph]() for _ in range(hands.organizations)]
    held_out: list[MeasuredTimes] = []
    needed, names = hands.held_out + hands.pool, set[str]()
    for place, segment in enumerate(segments):
        if len(segment) < needed:
            raise ConfigurationError(
                f"{SEGMENTS[place]} has {len(segment)} workloads, {needed} are to be given"
            )
        order = [segment[each] for each in rng.permutation(len(segment))[:needed].tolist()]
        held_out.append(measured_of(order[: hands.held_out]))
        names |= {each.workload for each in order}
        pool = order[hands.held_out :]
        for executed in lived:
            executed.extend(pool[each] for each in rng.permutation(hands.pool)[: hands.workloads])
    begins = tuple(period.window_start(each) for each in first_windows(period.windows))
    return DriftSplit(
        tuple(DriftingYear(tuple(each), begins) for each in lived),
        tuple(held_out),
        frozenset(names),
    )


def first_segment(split: DriftSplit) -> MeasuredTimes:
    """The training data of the year's first model: held-out workloads, uncapped, no Polars."""
    others = _others(measured_executions(), set(split.names))
    return measured_of(
        labelled_in([each for each in others if Platform.POLARS not in each.plan.platforms], 0)
    )


def labelled_in(executions: Iterable[Execution], regime: int) -> tuple[LabelledGraph, ...]:
    """Label executions as `label_executions` does, for the segment `regime`."""
    graphs = label_executions(executions)
    return tuple(LabelledGraph(g.workload, g.graph, g.cell, g.log_seconds, regime) for g in graphs)


def measured_of(labelled: Sequence[LabelledGraph]) -> MeasuredTimes:
    """Return the workloads in the form that steps at a tangent take."""
    return MeasuredTimes(
        tuple(each.graph for each in labelled), np.array([each.log_seconds for each in labelled])
    )


def first_windows(windows: int) -> tuple[int, ...]:
    """Scale `FIRST_WINDOWS` of thirteen to the windows of the period."""
    return tuple(each * windows // 13 for each in FIRST_WINDOWS)


_FIRST_PLATFORMS = {Platform.DUCKDB, Platform.PANDAS}


def _others(executions: Iterable[Execution], names: set[str]) -> tuple[Execution, ...]:
    """Return one execution of each workload that ended well and is not among `names`."""
    return one_per_workload(
        each for each in executions if each.is_ok and each.workload not in names
    )


def one_per_workload(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """Return the first execution of every workload."""
    first: dict[str, Execution] = {}
    for execution in executions:
        first.setdefault(execution.workload, execution)
    return tuple(first.values())
