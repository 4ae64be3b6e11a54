"""The events of a log that count, found among all others by the first bytes of their lines.

Nearly all bytes of a log are tasks, whose figures are in their stages as well. Unless somebody
asks for them these lines are passed over without being parsed, but for the ends of tasks that did
not succeed. So is every other event that nobody looks at. Of the plans that a query has one after
the other only the last counts: updates are held back until a query ends.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from fedperf_client.sources.json_memory import takes_too_much
from fedperf_client.sources.spark.fields import Event
from fedperf_client.sources.spark.streams import PassedOver, lines

TASKS_THAT_DID_WELL = PassedOver(
    beginnings=(b'{"Event":"SparkListenerTaskGettingResult"',),
    beginning_near=b'{"Event":"SparkListenerTaskEnd"',
    near=b'"Task End Reason":{"Reason":"Success"}',
    beginning_stage=b'{"Event":"SparkListenerTaskStart"',
)
"""All lines of tasks that did not fail, but for the first of each stage."""

STARTS_OF_TASKS = replace(TASKS_THAT_DID_WELL, beginning_near=())
"""Of these the starts alone, for those who ask for the figures of tasks."""

_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"(?:[\w.$]{1,200}\.)?(\w{1,100})"')

_UPDATE, _END = "SparkListenerSQLAdaptiveExecutionUpdate", "SparkListenerSQLExecutionEnd"
_QUERY = re.compile(rb'"executionId"\s*:\s*(\d{1,19})\s*,')
_HEAD_BYTES = 200
MAX_HELD_BYTES = 8 * 1024**2
"""Of updates of plans that are held back, unless a single one is larger."""

TOO_LONG = "a line above the limit"
NO_EVENT = "no event"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event; its number and the reason."""

    number: int
    reason: str


@dataclass(slots=True)
class Events:
    """The events of a log that are wanted, file after file.

    Attributes:
        wanted: short names.
        passed_over: lines that are not even looked at.
        line: number of the line that was read last.
    """

    wanted: frozenset[str]
    passed_over: PassedOver = TASKS_THAT_DID_WELL
    line: int = 0
    _updates: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self.passed_over = replace(self.passed_over, stages={})

    def ends_passed(self, stage: int) -> int | None:
        """How many ends of a stage's tasks were passed over; None where nobody counted them."""
        stages = self.passed_over.stages
        key = b'{"Event":"SparkListenerTaskEnd","Stage ID":%d,' % stage
        return None if b"" in stages else stages.get(key, 0)

    def of(self, path: Path) -> Iterator[tuple[str, Event] | BadLine]:
        """Short name and content of the wanted events in a file; errors as `streams.lines`.

        Lines that are no events come where they stand: however many there are, none is kept.

        What is held back when a file turns out to be damaged comes with the next one.
        """
        for number, line in lines(path, self.passed_over, is_whole=_ends_as_an_event):
            self.line = number
            if line is None:
                yield BadLine(number, TOO_LONG)
                continue
            found = _NAME.match(line)
            if found is None and line.strip():
                yield BadLine(number, NO_EVENT)
            name = found[1].decode("ascii", "replace") if found else ""
            if name not in self.wanted:
                continue
            if name == _UPDATE:
                yield from self._held_back(number, line)
                continue
            if name == _END:
                yield from self._last_updates()
            yield from self._event(name, number, line)
        yield from self._last_updates()

    def _event(self, name: str, number: int, line: bytes) -> Iterator[tuple[str, Event] | BadLine]:
        if takes_too_much(line):
            yield BadLine(number, TOO_LONG)
            return
        event = _parsed(line)
        yield BadLine(number, NO_EVENT) if event is None else (name, event)

    def _held_back(self, number: int, line: bytes) -> Iterator[tuple[str, Event] | BadLine]:
        """Keep an update until a query ends or another takes its place; a plan has megabytes."""
        found = _QUERY.search(line, 0, _HEAD_BYTES)
        if found is None:  # whose it is stands too far behind to be seen
            yield from self._event(_UPDATE, number, line)
            return
        if self._held_bytes + len(line) > MAX_HELD_BYTES:
            yield from self._last_updates()
        _, before = self._updates.pop(found[1], (0, b""))
        self._updates[found[1]] = (number, line)
        self._held_bytes += len(line) - len(before)

    def _last_updates(self) -> Iterator[tuple[str, Event] | BadLine]:
        held, self._updates, self._held_bytes = self._updates, {}, 0
        for number, line in held.values():
            yield from self._event(_UPDATE, number, line)


def is_event(line: bytes | None) -> bool:
    """Whether a line begins as an event does."""
    return line is not None and _NAME.match(line) is not None


def _ends_as_an_event(line: bytes) -> bool:
    return line.rstrip().endswith(b"}")


def _parsed(line: bytes) -> Event | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
