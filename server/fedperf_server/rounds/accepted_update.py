"""An accepted update of a round, and its form in Flower's records.

An accepted update is what a member sent, after it was opened and checked. Beside it stand the
parameters that the member declared for the slot. In a Flower message its arrays are an
`ArrayRecord` and its numbers are `ConfigRecord`s, so a `Strategy` gets from our `Grid` what any
other `Grid` would give it. Nothing is lost on the way there and back.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.kinds import MODEL_UPDATE, TANGENT_UPDATE, kind_of
from fedperf_shared.releases.release import (
    ModelUpdate,
    ReleaseKind,
    Slot,
    SlotKey,
    TangentUpdate,
    Update,
)

ARRAYS, ABOUT, PARAMETERS = "update", "about", "parameters"
"""Records of a message: what was sent, what it is about, how it was made private."""


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An accepted update and the slot that it fills, with the parameters that were declared."""

    update: Update
    slot: Slot

    def content(self) -> RecordDict:
        """The update in Flower's records."""
        key, update = self.slot.key, self.update
        place = {"window": key.window, "index": key.index, "base-version": update.base_version}
        if kind_of(update) is TANGENT_UPDATE:
            found = TANGENT_UPDATE.as_release(update)
            arrays, more = _record([found.values]), {"grid-exponent": found.grid_exponent}
        else:
            weights = MODEL_UPDATE.as_release(update)
            arrays, more = _record(weights.arrays), {"architecture": weights.architecture}
        return RecordDict(
            {
                ARRAYS: arrays,
                ABOUT: ConfigRecord({**place, **more}),
                PARAMETERS: ConfigRecord(asdict(self.slot.parameters)),
            }
        )

    @classmethod
    def of(cls, content: RecordDict) -> "AcceptedUpdate":
        """The update that `content` gave."""
        arrays = [each.numpy() for each in content.array_records[ARRAYS].values()]
        about = {name: _whole(each) for name, each in content.config_records[ABOUT].items()}
        declared: dict[str, Any] = dict(content.config_records[PARAMETERS])
        key = SlotKey(ReleaseKind.MODEL_UPDATE, about["window"], about["index"])
        base = about["base-version"]
        if "grid-exponent" in about:
            (values,), slot = arrays, Slot(key, TANGENT_UPDATE.parameters(**declared))
            return cls(TangentUpdate(key, base, about["grid-exponent"], values), slot)
        slot = Slot(key, MODEL_UPDATE.parameters(**declared))
        return cls(ModelUpdate(key, about["architecture"], base, tuple(arrays)), slot)


def _record(arrays: Iterable[NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({str(place): Array(each) for place, each in enumerate(arrays)})


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidInputError(f"an update is about whole numbers, got {value!r}")
    return value
