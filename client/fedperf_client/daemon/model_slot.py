"""Releases of model slots: updates at the tangent, computed in another process.

An update at a tangent begins as noise alone, and a sum that is there in time is added. A sum that
fails or takes too long counts as nothing, so the update leaves at its time as noise alone.
For a slot that trained by DP-SGD, in a period that an older version began, there is no release.

A request for the other method, or about other public plans, is refused before anything is charged.
A request says which model is asked about, and never how it is trained.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import LinearizedTask
from fedperf_client.contributions.mechanisms import NoiseSource, noise_alone, with_sum
from fedperf_client.federation.request import RequestRefusedError
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.workers.worker_process import ComputationFailedError, TaskRunner
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import ARCHITECTURE_VERSION, ARRAY_SHAPES
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.release import NoisySum, Slot

log = structlog.get_logger()


class MethodRemovedError(PrivacyRefusedError):
    """Raised when a slot's training method is unknown to this version; it releases nothing."""

    def __init__(self) -> None:
        super().__init__("its slot trains by DP-SGD, which fedperf does not do any more")


class UpdateMaker:
    """Makes the releases of model slots."""

    def __init__(
        self,
        store: Path,
        models: FetchedModels,
        *,
        compute: TaskRunner,
        anchors: Sequence[PlanOnCluster] = (),
    ) -> None:
        """Learn from the executions in `store`, all epochs alike, by `compute` elsewhere.

        Questions are about the public plans `anchors`; by default those that ship with fedperf.
        """
        self._store = store
        self._models = models
        self._compute = compute
        self._anchors = anchors

    def require_answerable(self, slot: Slot, request: TrainRequest) -> None:
        """Refuse what does not ask for the slot's release.

        Raises:
            RequestRefusedError: another model, another method, or other public plans.
        """
        shapes = [array.shape for array in request.arrays]
        if request.architecture != ARCHITECTURE_VERSION or shapes != [*ARRAY_SHAPES.values()]:
            raise RequestRefusedError("not a model of this version", Refusal.OTHER_MODEL)
        if kind_of(slot.parameters).has_question is (request.question is None):
            raise RequestRefusedError("not the method of this period", Refusal.OTHER_METHOD)
        if request.question is not None and request.question.anchors != len(self._public()):
            raise RequestRefusedError(
                "not about the public plans of this version", Refusal.OTHER_PLANS
            )

    def release(
        self, slot: Slot, noise: NoiseSource, request: TrainRequest, *, seconds: float
    ) -> NoisySum:
        """The slot's update; a sum that takes longer than `seconds` is nothing.

        Raises:
            MethodRemovedError: the slot trains by DP-SGD.
        """
        question, epochs = request.question, self._models.epoch_starts()
        if question is None:
            raise MethodRemovedError
        update = noise_alone(noise, slot, version=request.base_version)
        task = LinearizedTask(self._store, request.arrays, question, self._public(), epochs)
        return with_sum(update, self._sum(task, seconds))

    def _sum(self, task: LinearizedTask, seconds: float) -> NDArray[np.int64]:
        """Return the task's result, or nothing if it fails or takes too long, as if nothing ran."""
        try:
            return self._compute(task, seconds=seconds)
        except ComputationFailedError as error:
            log.warning("a model update leaves as noise alone", reason=str(error))
            return np.zeros(DIRECTIONS, dtype=np.int64)

    def _public(self) -> Sequence[PlanOnCluster]:
        if not self._anchors:
            self._anchors = anchors_of(load_public_plans())
        return self._anchors
