"""Model updates that the coordinator requests, from the request to the reply at the slot's time.

A request names a slot, the model to linearize and a linear query over public plans. It does not
specify how that model is trained. A request that is wrong for public reasons is refused before
anything is charged, with a code for the coordinator and a text for this organization's log. Nothing
is released for a slot that trained by DP-SGD, in a period that an older version began.

An update is sampled in the background (`BackgroundRunner`). Its reply is a future that is done at
the slot's fixed time: with the release, or with what was wrong. An update that is not sampled by
then is withheld for good.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_client.contributions.local_sums import LinearizedTask, make_release
from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_shared.errors import FedperfError, InvalidInputError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import ARCHITECTURE_VERSION, ARRAY_SHAPES
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.release import (
    NoisySum,
    ReleaseKind,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_train_request

# Begins a release and returns its future, which is done at the slot's reply time. May be called
# again for a slot, and for several slots at once. The future raises RequestRefusedError for a slot
# that is not due.
Handler = Callable[[TrainRequest], Future[SignedRelease]]


class RequestRefusedError(InvalidInputError):
    """Raised for a refused request; only `refusal` is sent, not the text."""

    def __init__(self, why: str, refusal: Refusal = Refusal.UNREADABLE) -> None:
        super().__init__(f"{why} ({refusal.name.lower()})")
        self.refusal = refusal


class MethodRemovedError(PrivacyRefusedError):
    """Raised when a slot's training method is unknown to this version; it releases nothing."""

    def __init__(self) -> None:
        super().__init__("its slot trains by DP-SGD, which fedperf does not do any more")


def open_request(body: bytes) -> TrainRequest:
    """Return the request for a model update in `body`; every number of its arrays is finite.

    Raises:
        RequestRefusedError: not a request for a model update.
    """
    try:
        request = decode_train_request(body)
    except InvalidInputError:
        raise RequestRefusedError("not a request for training") from None
    if request.slot.kind is not ReleaseKind.MODEL_UPDATE:
        raise RequestRefusedError("not the slot of a model update")
    if not all(np.isfinite(array).all() for array in request.arrays):
        raise RequestRefusedError("the model is not finite")
    return request


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
        """Learn from the executions in `store`, all drift regimes alike; `compute` elsewhere.

        Queries are about the public plans `anchors`; by default those that ship with fedperf.
        """
        self._store = store
        self._models = models
        self._compute = compute
        self._anchors = anchors

    def check_request(self, slot: Slot, request: TrainRequest) -> None:
        """Refuse a request that is not for the slot's release.

        Raises:
            RequestRefusedError: another model, another method, or other public plans.
        """
        shapes = [array.shape for array in request.arrays]
        if request.architecture != ARCHITECTURE_VERSION or shapes != [*ARRAY_SHAPES.values()]:
            raise RequestRefusedError("not a model of this version", Refusal.OTHER_MODEL)
        if kind_of(slot.parameters).has_query is (request.query is None):
            raise RequestRefusedError("not the method of this period", Refusal.OTHER_METHOD)
        if request.query is not None and request.query.anchors != len(self._public_plans()):
            raise RequestRefusedError(
                "not about the public plans of this version", Refusal.OTHER_PLANS
            )

    def release(
        self, slot: Slot, noise: NoiseSource, request: TrainRequest, *, seconds: float
    ) -> NoisySum:
        """Return the slot's update: noise, and the sum if it takes at most `seconds`.

        Raises:
            MethodRemovedError: the slot trains by DP-SGD.
        """
        query, regimes = request.query, self._models.regime_starts()
        if query is None:
            raise MethodRemovedError
        task = LinearizedTask(self._store, request.arrays, query, self._public_plans(), regimes)
        version = request.base_version
        return make_release(slot, noise, task, self._compute, version=version, seconds=seconds)

    def _public_plans(self) -> Sequence[PlanOnCluster]:
        if not self._anchors:
            self._anchors = anchors_of(load_public_plans())
        return self._anchors


@dataclass(frozen=True, slots=True)
class _PendingUpdate:
    """An update from its request to its reply; `sampling` is done when it is sealed."""

    requested_at: datetime
    sampling: Future[None]
    reply: Future[SignedRelease] = field(default_factory=Future)


class PendingUpdates:
    """The pending updates of one schedule, requested in one thread and sent in another.

    `send` returns a sampled release at its time; `withhold` withholds a slot's release for good
    and raises.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        send: Callable[[SlotKey, datetime], SignedRelease],
        withhold: Callable[[SlotKey, datetime], None],
    ) -> None:
        self._schedule = schedule
        self._send = send
        self._withhold = withhold
        self._pending: dict[SlotKey, _PendingUpdate] = {}

    def reply(
        self, key: SlotKey, begin: Callable[[], Future[None]], *, now: datetime
    ) -> Future[SignedRelease]:
        """Return the slot's reply; `begin` samples it, unless that is under way."""
        if key not in self._pending or self._pending[key].reply.done():
            sampling = begin()
            self._pending[key] = update = _PendingUpdate(now, sampling)
            sampling.add_done_callback(partial(_pass_on_failure, update.reply))
        return self._pending[key].reply

    def dispatch(self, now: datetime) -> None:
        """Send the replies that are due."""
        for key, update in list(self._pending.items()):
            replies_at, is_sampled = self._schedule.replies_at(key), update.sampling.done()
            was_in_time = is_sampled or update.requested_at < replies_at
            if update.reply.done() or now < replies_at or not was_in_time:
                continue
            try:
                if not is_sampled:
                    self._withhold(key, now)
                update.reply.set_result(self._send(key, now))
            except (FedperfError, OSError) as error:
                _fail(update.reply, error)

    def close(self) -> None:
        """Refuse the updates that were not sent yet."""
        for update in list(self._pending.values()):
            _fail(
                update.reply,
                RequestRefusedError("this node is going offline", Refusal.GOING_OFFLINE),
            )


def _pass_on_failure(reply: Future[SignedRelease], sampling: Future[None]) -> None:
    error = sampling.exception()
    if error is not None:
        _fail(reply, error)


def _fail(reply: Future[SignedRelease], error: BaseException) -> None:
    with suppress(InvalidStateError):  # it failed already, in another thread
        reply.set_exception(error)
