"""A year that drifts, of workloads that were really run: three segments, one after the other.

First everybody runs DuckDB and pandas on whole cores, which the model that the year begins with
knows (`known_before`); then containers get half a core and 1 GB (the capped set); then work
moves to Polars, on whole cores again. What an engineer knows of each is in the features: the
cluster, and the platform of every operator. Workloads differ between segments; those that
are public by name are nobody's.

Organizations draw from one pool and share workloads: the noise is that of so many
organizations, the variety that of the pool, so less than theirs would be.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.new_platform import MeasuredTimes
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.starts.pretraining import one_per_workload
from fedperf_simulations.data.datasets import CAPPED, measured_executions

SEGMENTS = ("DuckDB and pandas", "half a core", "Polars")

FIRST_WINDOWS = (0, 4, 9)
"""Of thirteen: with which an epoch and its segment begin."""


@dataclass(frozen=True, slots=True)
class DriftingYear:
    """The executions of an organization in a year.

    Attributes:
        labelled: its workloads; `epoch` is the segment, in every window of which each of them
            runs, always as it was measured.
        begins: when each segment begins; each ends when the next one begins.
    """

    labelled: tuple[LabelledGraph, ...]
    begins: tuple[datetime, ...]

    def between(self, since: datetime | None, until: datetime) -> list[LabelledGraph]:
        """The workloads that ran from `since` (None: ever) until before `until`."""
        last = bisect_left(self.begins, until) - 1
        first = 0 if since is None else max(bisect_right(self.begins, since) - 1, 0)
        return [each for each in self.labelled if first <= each.regime <= last]


@dataclass(frozen=True, slots=True, eq=False)
class DriftSplit:
    """The workloads of each organization, and those of nobody.

    Attributes:
        organizations: what each executes in the year.
        asked: of each segment, workloads of nobody to judge by.
        names: of all those.
    """

    organizations: tuple[DriftingYear, ...]
    asked: tuple[MeasuredTimes, ...]
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class WorkloadSplit:
    """The numbers of workloads of each segment.

    Attributes:
        organizations: how many share them.
        workloads: of each organization, drawn from the pool.
        pool: of all organizations together.
        asked: of nobody.
    """

    organizations: int = 10
    workloads: int = 1000
    pool: int = 1200
    asked: int = 300

    def __post_init__(self) -> None:
        if not self.workloads <= self.pool:
            raise ConfigurationError(f"{self.workloads} of {self.pool} workloads cannot be drawn")


def private_segments() -> tuple[tuple[LabelledGraph, ...], ...]:
    """The workloads of each segment; errors as `private_executions`."""
    return tuple(
        labelled_in(executions, epoch) for epoch, executions in enumerate(private_executions())
    )


def private_executions() -> tuple[tuple[Execution, ...], ...]:
    """One execution of each workload of each segment; no workload is in two of them.

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
    """Give everybody their workloads by `seed`; segments begin with `first_windows` of `period`.

    Raises:
        ConfigurationError: a segment has fewer workloads than are to be given.
    """
    rng = np.random.default_rng([seed, 0])
    lived = [list[LabelledGraph]() for _ in range(hands.organizations)]
    asked: list[MeasuredTimes] = []
    wanted, names = hands.asked + hands.pool, set[str]()
    for place, segment in enumerate(segments):
        if len(segment) < wanted:
            raise ConfigurationError(
                f"{SEGMENTS[place]} has {len(segment)} workloads, {wanted} are to be given"
            )
        order = [segment[each] for each in rng.permutation(len(segment))[:wanted].tolist()]
        asked.append(measured_of(order[: hands.asked]))
        names |= {each.workload for each in order}
        pool = order[hands.asked :]
        for executed in lived:
            executed.extend(pool[each] for each in rng.permutation(hands.pool)[: hands.workloads])
    begins = tuple(period.window_start(each) for each in first_windows(period.windows))
    return DriftSplit(
        tuple(DriftingYear(tuple(each), begins) for each in lived), tuple(asked), frozenset(names)
    )


def known_before(dealt: DriftSplit) -> MeasuredTimes:
    """The training data of the year's first model: nobody's workloads, uncapped, no Polars."""
    known = _others(measured_executions(), set(dealt.names))
    return measured_of(
        labelled_in([each for each in known if Platform.POLARS not in each.plan.platforms], 0)
    )


def labelled_in(executions: Iterable[Execution], epoch: int) -> tuple[LabelledGraph, ...]:
    """As `label_executions`, of the segment with that number."""
    graphs = label_executions(executions)
    return tuple(LabelledGraph(g.workload, g.graph, g.cell, g.log_seconds, epoch) for g in graphs)


def measured_of(labelled: Sequence[LabelledGraph]) -> MeasuredTimes:
    """The workloads in the form that steps at a tangent take."""
    return MeasuredTimes(
        tuple(each.graph for each in labelled), np.array([each.log_seconds for each in labelled])
    )


def first_windows(windows: int) -> tuple[int, ...]:
    """`FIRST_WINDOWS` of thirteen; of fewer about the same shares."""
    return tuple(each * windows // 13 for each in FIRST_WINDOWS)


_FIRST_PLATFORMS = {Platform.DUCKDB, Platform.PANDAS}


def _others(executions: Iterable[Execution], names: set[str]) -> tuple[Execution, ...]:
    """One execution of each workload that ended well and is not among `names`."""
    return one_per_workload(
        each for each in executions if each.is_ok and each.workload not in names
    )
