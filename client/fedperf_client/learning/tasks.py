"""Tasks that the daemon gives to another process to compute, one class per kind of slot.

A task carries what is public and where the executions lie; it is pickled, so it holds no open file.
The task of a report, or of a step at a tangent, gives a sum without noise. That sum is private and
goes back to the daemon only; its noise is drawn in the gate.

Nothing heavy is imported before a task runs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.report_mechanism import WorkloadResiduals
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.releases.linear_queries import LinearizedQuery

NEEDED_FOR_REPORTS = ("fedperf_client.learning.residuals", "fedperf_client.home.store")
NEEDED_FOR_TANGENTS = (
    "fedperf_client.learning.linearized_contribution",
    "fedperf_client.home.store",
)
"""Modules that tasks import, which takes seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class ReportTask:
    """The sum of one slot's report without its noise, to be computed.

    Attributes:
        store: the organization's database of executions.
        reference: model that residuals are taken against.
        since: executions that finished before do not count; None for all.
        until: executions that finished then or later do not count.
        sum_of: bounds every workload and sums up, such as `report_mechanism.noiseless_sum`
            with the slot's clip; can be pickled.
    """

    store: Path
    reference: Checkpoint
    since: datetime | None
    until: datetime
    sum_of: Callable[[Iterable[WorkloadResiduals]], NDArray[np.int64]]

    def __call__(self) -> NDArray[np.int64]:
        """Return what `sum_of` computes from the store. It is private.

        Raises:
            StorageError: the store cannot be read.
        """
        from fedperf_client.home.store import ExecutionStore
        from fedperf_client.learning.residuals import labelled_graphs, workload_residuals
        from fedperf_shared.model.inference import GgfnArrays

        with ExecutionStore.open(self.store) as store:
            found = store.executions(since=self.since, until=self.until)
            labelled = labelled_graphs(found)
        return self.sum_of(workload_residuals(GgfnArrays.of(self.reference), labelled))


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedTask:
    """The sum of one slot's step at a tangent without its noise, to be computed.

    Attributes:
        store: the organization's database of executions.
        arrays: the model whose tangent it is, in the order of the architecture.
        question: what the coordinator asks.
        anchors: the public plans that the question is about, with their variants.
        epoch_starts: when each epoch after the first one began.
    """

    store: Path
    arrays: Sequence[NDArray[np.float32]]
    question: LinearizedQuery
    anchors: Sequence[PlanOnCluster]
    epoch_starts: Sequence[datetime] = ()

    def __call__(self) -> NDArray[np.int64]:
        """The sum over all own workloads; private.

        Raises:
            StorageError: the store cannot be read.
            InvalidModelStateError: the task's arrays are not weights of this architecture.
        """
        from fedperf_client.home.store import ExecutionStore
        from fedperf_client.learning.linearized_contribution import tangent_sum
        from fedperf_client.learning.residuals import labelled_graphs

        with ExecutionStore.open(self.store) as store:
            labelled = labelled_graphs(store.executions(), self.epoch_starts)
        return tangent_sum(self.arrays, labelled, self.question, self.anchors)
