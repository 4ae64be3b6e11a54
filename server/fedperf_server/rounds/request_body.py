"""The bytes of a request or an answer in Flower's records: one array under one name.

Our messages hold nothing else, so no other record of Flower's is written or read.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from fedperf_shared.errors import InvalidInputError

TRAIN = "train"
"""The type of every message of a round."""

BODY = "body"
"""The record of a message, and its one array."""


def body_content(body: bytes) -> RecordDict:
    """A message's content with these bytes."""
    array = Array(np.frombuffer(body, dtype=np.uint8))
    return RecordDict({BODY: ArrayRecord({BODY: array})})


def body_in(content: RecordDict) -> bytes:
    """The bytes of a message's content.

    Raises:
        InvalidInputError: they are none.
        KeyError: there is no body.
    """
    array = content.array_records[BODY][BODY].numpy()
    if array.dtype != np.uint8:
        raise InvalidInputError(f"a body is bytes, got {array.dtype}")
    return array.tobytes()
