"""Noiseless sums over an organization's own executions, computed in another process.

A task holds what is public about a slot and where the executions are stored. It is pickled, so it
holds no open file. The daemon gives it to a worker process, and its result goes back to the daemon
only. The sum is private: its noise is sampled in the gate.

A release is sampled as noise alone first. A sum that is there in time is added. A sum that fails or
takes too long counts as zero, and the release leaves at its time as noise alone.

Heavy libraries are imported when a task runs. torch is imported for linearized updates only.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import structlog
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import (
    NoiseSource,
    SumWorkloads,
    WorkloadFeatures,
    WorkloadResiduals,
    noise_alone,
    sum_features,
)
from fedperf_client.workers.worker_process import ComputationFailedError, TaskRunner
from fedperf_shared.execution import Execution, PlanOnCluster
from fedperf_shared.model.architecture import TARGET_CENTER, TARGET_SCALE, Weights, standardise
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.release import NoisySum, Slot
from fedperf_shared.workflow.features import Features, featurize

if TYPE_CHECKING:
    import torch

NEEDED_FOR_REPORTS = ("fedperf_client.contributions.local_sums", "fedperf_client.home.store")
# Modules that tasks import, which takes seconds.
NEEDED_FOR_LINEARIZED = (*NEEDED_FOR_REPORTS, "fedperf_shared.model.linearization")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LabelledGraph:
    """A successful execution as the model sees it."""

    workload: str  # the unit of privacy that it belongs to
    graph: Features  # its plan's features
    cell: int  # index of its plan's cell in the public basis
    log_seconds: float  # natural log of its wall run time
    regime: int = 0  # the drift regime in which it finished; 0 is the first


@dataclass(frozen=True, slots=True, eq=False)
class ReportTask:
    """The sum of one slot's report without its noise, to be computed."""

    store: Path
    reference: Checkpoint  # model that residuals are taken against
    since: datetime | None  # executions that finished before do not count; None for all
    until: datetime  # executions that finished then or later do not count
    sum_of: SumWorkloads  # bounds every workload and sums up (`mechanisms.report_sum`)

    def __call__(self) -> NDArray[np.int64]:
        """Return the private sum; StorageError if the store cannot be read."""
        from fedperf_client.home.store import ExecutionStore

        with ExecutionStore.open(self.store) as store:
            labelled = label_executions(store.executions(since=self.since, until=self.until))
        return self.sum_of(workload_residuals(GgfnArrays.of(self.reference), labelled))


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedTask:
    """The sum of one slot's linearized update without its noise, to be computed."""

    store: Path
    # Of the model that is linearized, in the order of the architecture.
    arrays: Sequence[NDArray[np.float32]]
    query: LinearizedQuery
    # The public plans that the query is about, with their variants.
    anchors: Sequence[PlanOnCluster]
    regime_starts: Sequence[datetime] = ()  # when each drift regime after the first one began

    def __call__(self) -> NDArray[np.int64]:
        """Return the private sum over all own workloads.

        Raises:
            StorageError: the store cannot be read.
            InvalidModelStateError: the task's arrays are not weights of this architecture.
        """
        from fedperf_client.home.store import ExecutionStore

        with ExecutionStore.open(self.store) as store:
            labelled = label_executions(store.executions(), self.regime_starts)
        return linearized_sum(self.arrays, labelled, self.query, self.anchors)


def make_release(
    slot: Slot,
    noise: NoiseSource,
    task: Callable[[], NDArray[np.int64]],
    compute: TaskRunner,
    *,
    version: int,
    seconds: float,
) -> NoisySum:
    """Sample the noise of `slot`, then add the task's sum if it takes at most `seconds`.

    Args:
        slot: with its parameters, from the schedule.
        noise: samples the one discrete Gaussian.
        task: computes the private sum.
        compute: runs it in another process.
        version: as in `mechanisms.noisy`.
        seconds: from now until the sum must be there.
    """
    release = noise_alone(noise, slot, version=version)
    try:
        return replace(release, values=release.values + compute(task, seconds=seconds))
    except ComputationFailedError as error:
        name = "a report" if kind_of(slot.parameters).is_report else "a model update"
        log.warning(f"{name} leaves as noise alone", reason=str(error))
        return release


def label_executions(
    executions: Iterable[Execution], regime_starts: Sequence[datetime] = ()
) -> list[LabelledGraph]:
    """Return the executions that have a run time, with their features.

    Args:
        executions: own ones.
        regime_starts: when each drift regime after the first one began, oldest first; public.
    """
    return [
        LabelledGraph(
            workload=each.workload,
            graph=featurize(each.plan, each.cluster),
            cell=cell_of(each.plan).index,
            log_seconds=float(np.log(each.measurement.runtime_seconds)),
            regime=bisect_right(regime_starts, each.finished_at),
        )
        for each in executions
        if each.is_ok and each.measurement is not None
    ]


def workload_residuals(
    reference: GgfnArrays, labelled: Sequence[LabelledGraph]
) -> tuple[WorkloadResiduals, ...]:
    """Return one entry per workload, in no meaningful order; empty where nothing ran.

    Plans are predicted one at a time: in a batch, rounding would depend on the other plans, and a
    crafted reference can make rounding as large as a clip. So a workload's entry has the same bits
    independently of the other stored runs, for any finite reference model.
    """
    if not labelled:
        return ()
    predicted = [float(reference.log_seconds([each.graph])[0]) for each in labelled]
    residuals = np.array([each.log_seconds for each in labelled]) - predicted
    cells = np.array([each.cell for each in labelled])
    return tuple(
        WorkloadResiduals(cells[rows], residuals[rows]) for rows in _rows_by_workload(labelled)
    )


def workload_features(
    model: Weights, labelled: Sequence[LabelledGraph], directions: "torch.Tensor"
) -> tuple[WorkloadFeatures, ...]:
    """Return one entry per workload, in no meaningful order; empty where nothing ran."""
    from fedperf_shared.model.linearization import directional_derivatives

    outputs, features = directional_derivatives(
        model, [each.graph for each in labelled], directions
    )
    # As far as a prediction goes, which stays within the public bounds.
    predicted = standardise(outputs * TARGET_SCALE + TARGET_CENTER)
    # Labels are rounded to float32, as the model's training targets are.
    measured = np.array([each.log_seconds for each in labelled], np.float32).astype(np.float64)
    residuals = standardise(measured) - predicted
    return tuple(
        WorkloadFeatures(
            features[rows], residuals[rows], regime_shares([labelled[row] for row in rows])
        )
        for rows in _rows_by_workload(labelled)
    )


def linearized_sum(
    model: Weights,
    labelled: Sequence[LabelledGraph],
    query: LinearizedQuery,
    anchors: Sequence[PlanOnCluster],
) -> NDArray[np.int64]:
    """Return the response without its noise, int64 [DIRECTIONS]; private, never released.

    Every organization derives the same directions from public plans and the query's coefficients,
    without any decomposition.

    Args:
        model: that is linearized.
        labelled: own executions.
        query: about `anchors`.
        anchors: public plans.
    """
    from fedperf_shared.model.linearization import combine_gradients

    public = [each.features for each in anchors]
    directions = combine_gradients(model, public, query.coefficients)
    return sum_features(workload_features(model, labelled, directions), query.clip)


def regime_shares(executions: Sequence[LabelledGraph]) -> NDArray[np.float64]:
    """Return each execution's weight: drift regimes count the same, float64, and they sum to 1.

    So a workload's behavior before a drift is rehearsed together with its present one, however many
    executions there are of either.
    """
    counts = Counter(each.regime for each in executions)
    return np.array([1 / (len(counts) * counts[each.regime]) for each in executions])


def _rows_by_workload(labelled: Sequence[LabelledGraph]) -> Iterable[list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, each in enumerate(labelled):
        rows[each.workload].append(row)
    return rows.values()
