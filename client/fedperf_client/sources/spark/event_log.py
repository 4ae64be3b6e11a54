"""Spark event logs: single files and the directories of those that roll over.

A log may be that of an application that still runs. Its files are read as they are, in
order, in bounded memory; damage and lines that are no events cost what they hold and no more.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fedperf_client.sources import NothingToReadError, SkippedRecord, Source
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.events import (
    STARTS_OF_TASKS,
    TASKS_THAT_DID_WELL,
    BadLine,
    Events,
    is_event,
)
from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.sources.spark.reader import Reader
from fedperf_client.sources.spark.streams import (
    CutLogError,
    DamagedLogError,
    UnreadCodecError,
    lines,
)
from fedperf_shared.execution import Execution

_ROLLED = re.compile(r"events_(\d{1,9})_.*")
_COMPACTED = ".compact"
_DATABRICKS = re.compile(r"eventlog(-[\d-]+)?(\.[a-z0-9]+)?")
_FIRST_LINES = 5
_UNLESS = "copy it again, unless it is still being written"
_CUT = f"compressed, and cut off before anything that can be read; {_UNLESS}"
_EMPTY = f"empty, so nothing can be read; {_UNLESS}"


@dataclass(frozen=True, slots=True)
class EventLog:
    """The log of one application."""

    files: tuple[Path, ...]  # in order
    is_partial: bool = False  # earlier events are gone

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every query, and every job without one, once; see `Source.read`."""
        is_empty, application = True, Application(is_partial=self.is_partial)
        for found in self.work(application):
            is_empty = False
            yield found if isinstance(found, SkippedRecord) else application.found(found)
        if is_empty:
            yield SkippedRecord("the log", "no query and no job ran")

    def work(
        self, application: Application, *, with_tasks: bool = False
    ) -> Iterator[SparkQuery | SkippedRecord]:
        """Every query and job when it is over, and what is wrong with the log, where it is.

        Args:
            application: that gets what the log tells of the whole.
            with_tasks: the figures of tasks are wanted, not only those of stages.
        """
        events = Events(frozenset(), STARTS_OF_TASKS if with_tasks else TASKS_THAT_DID_WELL)
        reader = Reader(application, with_tasks, events.ends_passed)
        events.wanted = reader.wanted
        for file in self.files:
            yield from _of_file(file, events, reader)
        yield from reader.end()


def _of_file(file: Path, events: Events, reader: Reader) -> Iterator[SparkQuery | SkippedRecord]:
    """What becomes complete with the events of a file, and what is wrong with it."""
    try:
        for found in events.of(file):
            if isinstance(found, BadLine):
                yield SkippedRecord(f"line {found.number} of {file.name}", found.reason)
                continue
            try:
                yield from reader.take(*found)
            except MalformedEventError as error:
                yield SkippedRecord(f"line {events.line} of {file.name}", str(error))
    except DamagedLogError as error:
        yield SkippedRecord(file.name, str(error).removeprefix(f"{file}: "))
    except OSError as error:
        yield SkippedRecord(file.name, f"cannot be read further: {error.strerror or error}")


def open_event_log(path: Path) -> Source | None:
    """The event log at `path`, known by its first lines; see `OpenSource`."""
    if path.is_dir():
        return _rolled(path) or _databricks(path)
    if path.name.startswith("appstatus_") or not path.is_file():
        return None
    is_empty = True
    try:
        for _, line in islice(lines(path), _FIRST_LINES):
            if is_event(line):
                return EventLog((path,))
            is_empty = False
    except UnreadCodecError:
        raise
    except CutLogError as error:
        raise NothingToReadError(f"{path}: {_CUT}") from error
    except DamagedLogError as error:
        raise NothingToReadError(f"{error}; nothing of it can be read, copy it again") from error
    if is_empty:
        raise NothingToReadError(f"{path}: {_EMPTY}")
    return None


def _rolled(directory: Path) -> EventLog | None:
    """Spark's own rolling log (`spark.eventLog.rolling.enabled`)."""
    found = sorted(
        (int(match[1]), path.name)
        for path in directory.iterdir()
        if (match := _ROLLED.fullmatch(path.name)) and path.is_file()
    )
    if not found:
        return None
    is_partial = found[0][0] != 1 or any(name.endswith(_COMPACTED) for _, name in found)
    return EventLog(tuple(directory / name for _, name in found), is_partial)


def _databricks(directory: Path) -> EventLog | None:
    """The rolling log of Databricks: dated files, and the newest without a date."""
    dated = sorted(
        path
        for path in directory.iterdir()
        if (match := _DATABRICKS.fullmatch(path.name)) and match[1] and path.is_file()
    )
    newest = [path for path in (directory / "eventlog",) if path.is_file()]
    return EventLog((*dated, *newest)) if dated else None
