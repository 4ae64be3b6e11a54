"""Requests and accepted updates of a round, and their form in Flower's records.

A request is bytes: one array under one name, and no other record of Flower's is read. An
accepted update is what a member sent, after it was opened and checked, with the parameters that
the member declared for the slot. Its arrays are an `ArrayRecord` and its numbers are
`ConfigRecord`s, so a `Strategy` gets from our `Grid` what any other `Grid` would give it.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.release import LinearizedUpdate, ReleaseKind, Slot, SlotKey

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


ARRAYS, ABOUT, PARAMETERS = "update", "about", "parameters"
"""Records of a message: what was sent, what it is about, how it was made private."""


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An accepted update and the slot that it fills, with the parameters that were declared."""

    update: LinearizedUpdate
    slot: Slot

    def content(self) -> RecordDict:
        """The update in Flower's records."""
        key, update = self.slot.key, self.update
        about = {
            "window": key.window,
            "index": key.index,
            "base-version": update.base_version,
            "grid-exponent": update.grid_exponent,
        }
        return RecordDict(
            {
                ARRAYS: ArrayRecord({"0": Array(update.values)}),
                ABOUT: ConfigRecord({**about}),
                PARAMETERS: ConfigRecord(asdict(self.slot.parameters)),
            }
        )

    @classmethod
    def of(cls, content: RecordDict) -> "AcceptedUpdate":
        """The update that `content` gave."""
        (values,) = (each.numpy() for each in content.array_records[ARRAYS].values())
        about = {name: _whole(each) for name, each in content.config_records[ABOUT].items()}
        declared: dict[str, Any] = dict(content.config_records[PARAMETERS])
        key = SlotKey(ReleaseKind.MODEL_UPDATE, about["window"], about["index"])
        update = LinearizedUpdate(key, about["base-version"], about["grid-exponent"], values)
        return cls(update, Slot(key, TANGENT_UPDATE.parameters(**declared)))


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidInputError(f"an update is about whole numbers, got {value!r}")
    return value
