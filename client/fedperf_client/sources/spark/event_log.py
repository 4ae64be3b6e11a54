"""Spark event logs: single files, directories of those that roll over or were split, and zips.

A log may be that of an application that still runs. Its files are read as they are, in
order, in bounded memory; damage and lines that are no events cost what they hold and no more.
"""

import re
import string
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path

from fedperf_client.sources import NothingToReadError, SkippedRecord, codecs
from fedperf_client.sources.opener import FilePlace, JoinedFile, ZipDirectory, open_zip
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.events import (
    STARTS_OF_TASKS,
    TASKS_THAT_DID_WELL,
    Events,
    is_list_of_events,
    lines,
    name_of,
    whole_events,
)
from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.sources.spark.reader import WANTED, Reader
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

WHOLE_LOG = "the log"
"""The record of what is wrong with all of it."""

_ROLLED = re.compile(r"events_(\d{1,9})_.*")
_DATABRICKS = re.compile(r"eventlog(-[\d-]+)?(\.[a-z0-9]+)?")
_STATUS = "appstatus_"
_BEFORE_1_2 = re.compile(r"SPARK_VERSION_([\d.]{1,20})")
_FIRST_EVENTS = ("SparkListenerLogStart", "DBCEventLoggingListenerMetadata")
_LETTERS = re.compile("[a-z]+")
_AS_DIGITS = str.maketrans(string.ascii_lowercase, "0123456789" + string.ascii_lowercase[:16])
_LONGEST_NUMBER = 9
_FIRST_LINES = 5
_REASONS_TOLD = 3
_LIST = "all events in one line; write one a line, such as with: jq -c '.[]'"
_NO_LOG = "not a Spark event log"
_PART = (
    "a part of a log: its application started in another; put all parts into one directory, "
    "numbered in their order, or join them"
)
_OLD = "Spark {} is read in part: {}"
_UNLESS = "copy it again, unless it is still being written"
_CUT = f"compressed, and cut off before anything that can be read; {_UNLESS}"
_EMPTY = f"empty, so nothing can be read; {_UNLESS}"


@dataclass(frozen=True, slots=True)
class EventLog:
    """The log of one application."""

    files: tuple[FilePlace, ...]  # in order
    is_partial: bool = False  # earlier events are gone

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every query, and every job without one, once; see `Source.read`."""
        application, found = Application(is_partial=self.is_partial), None
        for found in self.work(application):
            yield found if isinstance(found, SkippedRecord) else application.found(found)
        if found is None:
            yield SkippedRecord(WHOLE_LOG, "no query and no job ran")

    def work(
        self, application: Application, *, with_tasks: bool = False
    ) -> Iterator[SparkQuery | SkippedRecord]:
        """Every query and job when it is over, and what is wrong with the log, where it is.

        Args:
            application: that gets what the log tells of the whole.
            with_tasks: the figures of tasks are wanted, not only those of stages.
        """
        wanted = WANTED if with_tasks else WANTED - {"SparkListenerStageSubmitted"}
        events = Events(wanted, STARTS_OF_TASKS if with_tasks else TASKS_THAT_DID_WELL)
        reader = Reader(application, with_tasks, events.ends_passed)
        for file in self.files:
            yield from _of_file(file, events, reader)
        yield from reader.end()
        if (
            events.seen
            and "SparkListenerApplicationStart" not in events.seen
            and not self.is_partial
        ):
            yield SkippedRecord(WHOLE_LOG, _PART)


def _of_file(
    file: FilePlace, events: Events, reader: Reader
) -> Iterator[SparkQuery | SkippedRecord]:
    """What becomes complete with the events of a file, and what is wrong with it."""
    try:
        for found in events.of(file):
            if isinstance(found, SkippedRecord):
                yield found
                continue
            try:
                yield from reader.take(*found)
            except MalformedEventError as error:
                version = reader.application.settings.version
                is_old = version.startswith("1.")
                yield events.bad(_OLD.format(version, error) if is_old else str(error))
    except codecs.DamagedLogError as error:
        yield SkippedRecord(file.name, str(error).removeprefix(f"{file}: "))
    except OSError as error:
        yield SkippedRecord(file.name, f"cannot be read further: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class EventLogs:
    """The log at one place, or several in one file, such as those of all attempts.

    Attributes:
        logs: in the order of their names.
        others: files of an archive that are none.
    """

    logs: tuple[EventLog, ...]
    others: tuple[SkippedRecord, ...] = ()

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Every execution of every log; see `Source.read`."""
        yield from self.others
        for log in self.logs:
            yield from log.read()


def open_event_log(path: Path) -> EventLogs | None:
    """The event log at `path`, known by its first lines; see `OpenSource`.

    The zip of Spark's History Server is read as the directory would be that it came from.
    """
    archive = open_zip(path) if path.is_file() else None
    if (log := _log_at(archive or path)) is not None:
        return EventLogs((log,))
    if archive is None:
        return None
    found = list(_all_in(archive))
    logs = tuple(each for each in found if isinstance(each, EventLog))
    others = tuple(each for each in found if isinstance(each, SkippedRecord))
    told = [each.reason for each in others if each.reason != _NO_LOG]
    if not logs and told:
        raise NothingToReadError(f"{path}: {'; '.join(told[:_REASONS_TOLD])}")
    return EventLogs(logs, others) if logs else None


def _all_in(directory: ZipDirectory) -> Iterator[EventLog | SkippedRecord]:
    """The logs in an archive, and what is none."""
    for place in sorted(directory.iterdir(), key=attrgetter("name")):
        try:
            log = _log_at(place)
        except (InvalidInputError, OSError) as error:
            yield SkippedRecord(place.name, str(error).removeprefix(f"{place}: "))
            continue
        if log is not None:
            yield log
        elif isinstance(place, ZipDirectory):
            yield from _all_in(place)
        elif not place.name.startswith(_STATUS):
            yield SkippedRecord(place.name, _NO_LOG)


def _log_at(place: FilePlace) -> EventLog | None:
    if place.is_dir():
        return _in_directory([each for each in place.iterdir() if each.is_file()], place.name)
    if place.name.startswith(_STATUS) or not place.is_file():
        return None
    is_empty, is_list = True, False
    try:
        for _, line in islice(whole_events(lines(place)), _FIRST_LINES):
            if name_of(line):
                return EventLog((place,))
            is_empty, is_list = False, is_list or is_list_of_events(line)
    except codecs.UnreadCodecError:
        raise
    except codecs.CutLogError as error:
        raise NothingToReadError(f"{place}: {_CUT}") from error
    except codecs.DamagedLogError as error:
        raise NothingToReadError(f"{error}; nothing of it can be read, copy it again") from error
    if is_empty:
        raise NothingToReadError(f"{place}: {_EMPTY}")
    if is_list:
        raise codecs.UnreadCodecError(f"{place}: {_LIST}")
    return None


def _in_directory(files: Sequence[FilePlace], name: str) -> EventLog | None:
    """The log that all files of a directory are."""
    for file in files:
        if (match := _BEFORE_1_2.fullmatch(file.name)) is not None:
            raise InvalidInputError(
                f"{name}: Spark {match[1]} is not read; event logs of Spark 1.2 and later are"
            )
    return _rolled(files) or _databricks(files) or _split(files, name)


def _rolled(files: Sequence[FilePlace]) -> EventLog | None:
    """Spark's own rolling log (`spark.eventLog.rolling.enabled`)."""
    every = ((_ROLLED.fullmatch(file.name), file) for file in files)
    found = {(int(match[1]), file.name): file for match, file in every if match}
    if not found:
        return None
    order = sorted(found)
    is_partial = order[0][0] != 1 or any(name.endswith(".compact") for _, name in order)
    return EventLog(tuple(found[each] for each in order), is_partial)


def _databricks(files: Sequence[FilePlace]) -> EventLog | None:
    """The rolling log of Databricks: dated files, and the newest without a date."""
    found = {file.name: match[1] for file in files if (match := _DATABRICKS.fullmatch(file.name))}
    dated = [file for file in sorted(files, key=attrgetter("name")) if found.get(file.name)]
    newest = [file for file in files if file.name == "eventlog"]
    return EventLog((*dated, *newest)) if dated else None


def _split(files: Sequence[FilePlace], name: str) -> EventLog | None:
    """A log that was split into the files of a directory: the first begins it, no other does."""
    content = [each for each in files if not each.name.startswith((".", "_"))]
    numbers = _part_numbers([each.name for each in content])
    if numbers is None:
        return None
    order = [each for _, each in sorted(zip(numbers, content, strict=True), key=lambda e: e[0])]
    if not _begins_a_log(order[0]):
        order.reverse()  # programs that rotate logs give the oldest the highest number
    if not _begins_a_log(order[0]) or _begins_a_log(order[1]):
        return None
    is_text = not codecs.is_packed(order[0])
    for each in order[1:]:
        if _begins_a_log(each) or (is_text and not _first_names(each)):
            return None
    return EventLog((JoinedFile(name, tuple(order)),))


def _part_numbers(names: Sequence[str]) -> list[int] | None:
    """The numbers of parts whose names differ in nothing else, without a gap; None if of none."""
    start = _common_start(names).rstrip(string.digits)
    rest = [each[len(start) :] for each in names]
    end = _common_start([each[::-1] for each in rest])[::-1].lstrip(string.digits)
    middles = [each.removesuffix(end).strip("._-") for each in rest]
    told = [each for each in middles if each]
    if not told or len(told) < len(middles) - 1 or max(map(len, told)) > _LONGEST_NUMBER:
        return None
    if all(each.isascii() and each.isdecimal() for each in told):
        values = {each: int(each) for each in told}
    elif all(_LETTERS.fullmatch(each) for each in told):
        values = {each: int(each.translate(_AS_DIGITS), 26) for each in told}
    else:
        return None
    least = min(values.values())
    numbers = [values.get(each, least - 1) for each in middles]  # log, log.1, log.2
    is_whole = len(names) > 1 and max(numbers) - min(numbers) == len(set(numbers)) - 1
    return numbers if is_whole and len(set(numbers)) == len(numbers) else None


def _common_start(texts: Sequence[str]) -> str:
    least, most = min(texts, default=""), max(texts, default="")
    size = next((at for at, each in enumerate(least) if each != most[at]), len(least))
    return least[:size]


def _begins_a_log(file: FilePlace) -> bool:
    return any(each in _FIRST_EVENTS for each in _first_names(file, 1))


def _first_names(file: FilePlace, count: int = _FIRST_LINES) -> list[str]:
    names = list[str]()
    with suppress(InvalidInputError, OSError):
        names.extend(name_of(line) for _, line in islice(lines(file), count))
    return [each for each in names if each]
