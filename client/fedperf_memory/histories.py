"""Computations over members' executions that come from an experiment instead of a store.

A participant computes its sums through `TaskRunner`, with a task that holds the public part of a
slot. Here a task runs over executions in memory. The client's own code computes a workload's
contribution, one plan at a time, so the bits do not depend on other workloads. Members that share a
workload share that result.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedperf_client.contributions.local_sums import (
    LabelledGraph,
    LinearizedTask,
    ReportTask,
    workload_features,
    workload_residuals,
)
from fedperf_client.contributions.mechanisms import SumWorkloads, WorkloadResiduals, sum_features
from fedperf_shared.model.architecture import Weights
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.linearization import anchor_gradients, combine_gradients
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.workflow.features import Features

T = TypeVar("T")
Sum = NDArray[np.int64]
Compute = Callable[[Sequence[LabelledGraph]], Sequence[T]]


class UnknownTaskError(TypeError):
    """A slot needs a task that no experiment here computes."""


class MemberHistory(Protocol):
    """The executions of one member."""

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """Return the executions that finished from `since` (None: ever) until before `until`."""


@dataclass(slots=True)
class ContributionCache:
    """Contributions of workloads to the current public query, shared by their members."""

    _subject: object = None
    _by_workload: dict[tuple[int, ...], object] = field(default_factory=dict)
    _compute: Compute[object] | None = None

    def of(
        self, subject: object, executed: Sequence[LabelledGraph], begun: Callable[[], Compute[T]]
    ) -> list[T]:
        """Return one result for each workload among `executed`; of those that are new by `begun`.

        Results about another subject are dropped. `begun` is called once a subject. The function
        that it returns gives one result for each workload, in the order in which these appear.
        """
        if subject != self._subject:
            self._subject, self._by_workload, self._compute = subject, {}, None
        workloads: dict[str, list[LabelledGraph]] = defaultdict(list)
        for each in executed:
            workloads[each.workload].append(each)
        keys = [tuple(map(id, members)) for members in workloads.values()]
        new = [
            members
            for key, members in zip(keys, workloads.values(), strict=True)
            if key not in self._by_workload
        ]
        if new:
            self._compute = self._compute or begun()
            contributions = self._compute([each for members in new for each in members])
            for members, contribution in zip(new, contributions, strict=True):
                self._by_workload[tuple(map(id, members))] = contribution
        return [cast("T", self._by_workload[key]) for key in keys]


@dataclass(slots=True)
class SharedGradients:
    """Compute `anchor_gradients` once where coordinator and members are one process.

    A round uses one public model at the same public plans: for its query, for each
    member's release and for the step. In production each side takes the gradients itself. The
    last ones are held: a third of a gigabyte for all plans that ship.
    """

    _weights: Weights = ()
    _anchors: Sequence[Features] = ()
    _taken: list[Tensor] = field(default_factory=list)

    def __call__(self, model: Weights, anchors: Sequence[Features]) -> Tensor:
        """[anchors, weights], for reading; errors as `anchor_gradients`."""
        if not (self._taken and _same(model, self._weights) and _alike(anchors, self._anchors)):
            self._taken.clear()  # before the next are there as well
            self._taken.append(anchor_gradients(model, anchors))
            self._weights, self._anchors = [array.copy() for array in model], list(anchors)
        return self._taken[0]


@dataclass(frozen=True, slots=True)
class SharedContributions:
    """Contributions that are computed once for all members of a federation."""

    residuals: ContributionCache = field(
        default_factory=ContributionCache
    )  # of workloads, against a reference
    reported: ContributionCache = field(
        default_factory=ContributionCache
    )  # what each adds to a report
    steps: ContributionCache = field(
        default_factory=ContributionCache
    )  # what each adds to a step at a tangent
    # At public plans, where the coordinator takes them from here as well.
    gradients: SharedGradients | None = None


@dataclass(frozen=True, slots=True)
class HistoryCompute:
    """A `workers.worker_process.TaskRunner` over a history."""

    history: MemberHistory  # of one member
    shared: SharedContributions  # of all members
    clock: Callable[[], datetime]  # for what was executed by now

    def __call__(self, task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        """Run `task` over the history.

        Raises:
            UnknownTaskError: it is neither of a report nor of a step at a tangent.
        """
        del seconds
        if isinstance(task, ReportTask):
            return cast("T", self._report_sum(task))
        if isinstance(task, LinearizedTask):
            return cast("T", self._tangent_sum(task))
        raise UnknownTaskError(type(task).__name__)

    def _report_sum(self, task: ReportTask) -> Sum:
        """Whole numbers, so that a sum of workloads' parts is what the task makes of them all."""
        version = task.reference.model_version

        def residuals() -> Compute[WorkloadResiduals]:
            return partial(workload_residuals, GgfnArrays.of(task.reference))

        def reported(new: Sequence[LabelledGraph]) -> Sequence[Sum]:
            own = self.shared.residuals.of(version, new, residuals)
            return [task.sum_of([each]) for each in own]

        executed = self.history.between(task.since, task.until)
        key = (version, _query_key(task.sum_of))
        parts = self.shared.reported.of(key, executed, lambda: reported)
        return np.sum(parts, axis=0) if parts else task.sum_of(())

    def _tangent_sum(self, task: LinearizedTask) -> Sum:
        query = task.query

        def begun() -> Compute[Sum]:
            model = task.arrays
            public = [each.features for each in task.anchors]
            shared = self.shared.gradients
            taken = None if shared is None else shared(model, public)
            directions = combine_gradients(model, public, query.coefficients, gradients=taken)

            def compute(new: Sequence[LabelledGraph]) -> Sequence[Sum]:
                features = workload_features(model, new, directions)
                return [sum_features([each], query.clip) for each in features]

            return compute

        executed = self.history.between(None, self.clock())
        vectors = self.shared.steps.of(query, executed, begun)
        return np.sum(vectors, axis=0) if vectors else np.zeros(DIRECTIONS, dtype=np.int64)


def _alike(ones: Sequence[Features], others: Sequence[Features]) -> bool:
    if len(ones) != len(others):
        return False
    return all(
        one is other
        or (
            one.analytic_log_seconds == other.analytic_log_seconds
            and np.array_equal(one.operators, other.operators)
            and np.array_equal(one.plan, other.plan)
            and np.array_equal(one.edges, other.edges)
        )
        for one, other in zip(ones, others, strict=True)
    )


def _same(ones: Weights, others: Weights) -> bool:
    return len(ones) == len(others) and all(map(np.array_equal, ones, others))


def _query_key(sum_of: SumWorkloads) -> object:
    """Return a key of a report's sum: its clip, or the version of its query."""
    if not isinstance(sum_of, partial):
        return sum_of
    return sum_of.func, *(getattr(each, "version", each) for each in sum_of.keywords.values())
