"""Requests and accepted updates of a round, encoded in Flower's records.

A request is one array of bytes, and no other record of Flower is read. An accepted update is a
verified update of a member, with the parameters that the member declared for the slot. Its arrays
are an `ArrayRecord` and its numbers are `ConfigRecord`s, so that a `Strategy` gets the same from
our `Grid` as from any other.
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
"""Name of the record of a message, and of its array."""


def body_content(body: bytes) -> RecordDict:
    """Return a message's content with these bytes."""
    array = Array(np.frombuffer(body, dtype=np.uint8))
    return RecordDict({BODY: ArrayRecord({BODY: array})})


def body_in(content: RecordDict) -> bytes:
    """Return the bytes of a message's content.

    Raises:
        InvalidInputError: the array has another type than bytes.
        KeyError: there is no body.
    """
    array = content.array_records[BODY][BODY].numpy()
    if array.dtype != np.uint8:
        raise InvalidInputError(f"a body must be bytes, got {array.dtype}")
    return array.tobytes()


ARRAYS, ABOUT, PARAMETERS = "update", "about", "parameters"
"""Names of the records of an update: its values, its slot and version, its parameters."""


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An accepted update, and its slot with the declared parameters."""

    update: LinearizedUpdate
    slot: Slot

    def content(self) -> RecordDict:
        """Return the update in Flower's records."""
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
    def from_content(cls, content: RecordDict) -> "AcceptedUpdate":
        """Return the update in the records of `content`."""
        (values,) = (each.numpy() for each in content.array_records[ARRAYS].values())
        about = {name: _to_int(each) for name, each in content.config_records[ABOUT].items()}
        declared: dict[str, Any] = dict(content.config_records[PARAMETERS])
        key = SlotKey(ReleaseKind.MODEL_UPDATE, about["window"], about["index"])
        update = LinearizedUpdate(key, about["base-version"], about["grid-exponent"], values)
        return cls(update, Slot(key, TANGENT_UPDATE.parameters(**declared)))


def _to_int(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidInputError(f"an update needs whole numbers, got {value!r}")
    return value
