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
from fedperf_client.sources.spark.streams import lines

_TASKS = b'{"Event":"SparkListenerTask'
_TASK_ENDS = b'{"Event":"SparkListenerTaskEnd"'
_SUCCESS = b'"Task End Reason":{"Reason":"Success"}'
_HEAD_BYTES = 400
_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"(?:[\w.$]{1,200}\.)?(\w{1,100})"')

TOO_LONG = "a line above the limit"
NO_EVENT = "no event"


@dataclass(slots=True)
class Events:
    """The events of a log that are wanted.

    Attributes:
        wanted: short names.
        lines: counted so far.
        bad: lines that are no events, by number, with the reason; whoever reads empties it.
    """

    wanted: frozenset[str]
    lines: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)

    def of(self, path: Path) -> Iterator[tuple[str, Event]]:
        """Short name and content of the wanted events in a file; errors as `streams.lines`."""
        for line in lines(path, self._is_task):
            if line is None:
                self.lines += 1
                self.bad.append((self.lines, TOO_LONG))
                continue
            found = _NAME.match(line)
            if found is None:
                if line.strip():
                    self.bad.append((self.lines, NO_EVENT))
                continue
            name = found[1].decode("ascii", "replace")
            if name in self.wanted:
                event = _parsed(line)
                if event is None:
                    self.bad.append((self.lines, NO_EVENT))
                else:
                    yield name, event

    def _is_task(self, block: bytes, start: int) -> bool:
        """Count a line; whether it is of a task that did not fail."""
        self.lines += 1
        return block.startswith(_TASKS, start) and not (
            block.startswith(_TASK_ENDS, start)
            and block.find(_SUCCESS, start, start + _HEAD_BYTES) < 0
        )


def is_event(line: bytes | None) -> bool:
    """Whether a line begins as an event does."""
    return line is not None and _NAME.match(line) is not None


def _parsed(line: bytes) -> Event | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
