"""An accepted update of a round, and its form in Flower's records.

An accepted update is what a member sent, after it was opened and checked. Beside it stand the
parameters that the member declared for the slot. In a Flower message its arrays are an
`ArrayRecord` and its numbers are `ConfigRecord`s, so a `Strategy` gets from our `Grid` what any
other `Grid` would give it. Nothing is lost on the way there and back.
"""

from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.release import ReleaseKind, Slot, SlotKey, TangentUpdate

ARRAYS, ABOUT, PARAMETERS = "update", "about", "parameters"
"""Records of a message: what was sent, what it is about, how it was made private."""


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An accepted update and the slot that it fills, with the parameters that were declared."""

    update: TangentUpdate
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
        update = TangentUpdate(key, about["base-version"], about["grid-exponent"], values)
        return cls(update, Slot(key, TANGENT_UPDATE.parameters(**declared)))


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidInputError(f"an update is about whole numbers, got {value!r}")
    return value
