"""The events of a log that count, found among all others by the first bytes of their lines.

Nearly all bytes of a log are tasks, whose figures are in their stages as well: these lines
are passed over without being parsed, and so is every other event that nobody looks at. Of
the ends of tasks only those that did not succeed are read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from fedperf_client.sources.spark.fields import Event
from fedperf_client.sources.spark.streams import PassedOver, lines

_TASKS = PassedOver(
    beginnings=(b'{"Event":"SparkListenerTaskStart"', b'{"Event":"SparkListenerTaskGettingResult"'),
    beginning_near=b'{"Event":"SparkListenerTaskEnd"',
    near=b'"Task End Reason":{"Reason":"Success"}',
)
"""All lines of tasks that did not fail."""

_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"(?:[\w.$]{1,200}\.)?(\w{1,100})"')

TOO_LONG = "a line above the limit"
NO_EVENT = "no event"


@dataclass(slots=True)
class Events:
    """The events of a log that are wanted.

    Attributes:
        wanted: short names.
        line: number of the line that was read last.
        bad: lines that are no events, by number, with the reason; whoever reads empties it.
    """

    wanted: frozenset[str]
    line: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)

    def of(self, path: Path) -> Iterator[tuple[str, Event]]:
        """Short name and content of the wanted events in a file; errors as `streams.lines`."""
        for number, line in lines(path, _TASKS):
            self.line = number
            if line is None:
                self.bad.append((number, TOO_LONG))
                continue
            found = _NAME.match(line)
            if found is None:
                if line.strip():
                    self.bad.append((number, NO_EVENT))
                continue
            name = found[1].decode("ascii", "replace")
            if name in self.wanted:
                event = _parsed(line)
                if event is None:
                    self.bad.append((number, NO_EVENT))
                else:
                    yield name, event


def is_event(line: bytes | None) -> bool:
    """Whether a line begins as an event does."""
    return line is not None and _NAME.match(line) is not None


def _parsed(line: bytes) -> Event | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
