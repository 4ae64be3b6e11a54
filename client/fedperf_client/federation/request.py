"""The one kind of request that an organization answers, and what is refused.

An opened request is for a model update, in the slot that it names, and every number of its
arrays is finite. Its handler is the release door.

Refused, for public reasons alone: anything else. The code of a refusal is told to the
coordinator, the text is for this organization's log.
"""

from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.releases.release import ReleaseKind, SignedRelease
from fedperf_shared.wire.codec import decode_train_request


class RequestRefusedError(InvalidInputError):
    """Raised for a request without a reply; only `refusal` is sent, not the text."""

    def __init__(self, why: str, refusal: Refusal = Refusal.UNREADABLE) -> None:
        super().__init__(f"{why} ({refusal.name.lower()})")
        self.refusal = refusal


Handler = Callable[[TrainRequest], Future[SignedRelease]]
"""Begins a release and gives it at the slot's reply time. May be called again for a slot, and
for several slots at once. The future raises RequestRefusedError for a slot that is not due."""


def open_request(body: bytes) -> TrainRequest:
    """The request in `body`.

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
