"""Names of slots for people: `report-3-0` is report slot 0 of window 3."""

import re
from collections.abc import Sequence

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import ReleaseKind, SlotKey

KIND_NAMES = {"report": ReleaseKind.RESIDUAL_REPORT, "update": ReleaseKind.MODEL_UPDATE}

_PERIOD_FORMAT = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(report|update)-(\d{1,4})-(\d{1,4})(?:@(\d{8}T\d{6}))?")


class UnknownSlotError(InvalidInputError):
    """The typed text names no slot."""

    def __init__(self, text: str, *, reason: str) -> None:
        super().__init__(f"no slot {text!r}: {reason}; `fedperf release slots` lists them")
        self.text = text


def slot_name(key: SlotKey, *, period: Period | None = None) -> str:
    """The slot's name; with its period where that is not the newest."""
    kind = next(name for name, each in KIND_NAMES.items() if each is key.kind)
    start = "" if period is None else f"@{period.start:{_PERIOD_FORMAT}}"
    return f"{kind}-{key.window}-{key.index}{start}"


def named_slot(text: str, periods: Sequence[Period]) -> tuple[int, SlotKey]:
    """The position of its period in `periods`, oldest first, and the slot that `text` names.

    Raises:
        UnknownSlotError: not a slot's name, or its period is not one of `periods`.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UnknownSlotError(text, reason="a name looks like report-3-0 or update-3-0")
    key = SlotKey(KIND_NAMES[match[1]], int(match[2]), int(match[3]))
    starts = [f"{period.start:{_PERIOD_FORMAT}}" for period in periods]
    if match[4] is None:
        return len(periods) - 1, key
    if match[4] not in starts:
        raise UnknownSlotError(text, reason="no period began then")
    return starts.index(match[4]), key
