"""Spark event logs: files and directories, their lines, and the events that are read.

A log is one file, a directory of a rolling or split log, or a zip of these. The application may
still run. Damaged bytes and lines that are no events are skipped.

Nearly all bytes of a log are tasks, whose figures are in their stages as well. Unless the figures
of tasks are read, their lines are skipped without parsing, apart from the ends of failed tasks.
All other unused events are skipped in the same way. Of successive plans of a query only the last
one counts, so updates of plans are held back until a query ends.

Spark writes an event into one line, with its name first. Other programs may have sorted its keys,
or spread it over lines. Such logs are read as well, but more slowly. Memory is bounded.
"""

import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from os.path import commonprefix

import orjson

from fedperf_client.sources import NothingToReadError, SkippedRecord
from fedperf_client.sources.opener import (
    READ_ON,
    CutLogError,
    DamagedLogError,
    FilePlace,
    JoinedFile,
    LogFile,
    UnreadCodecError,
    exceeds_json_memory,
    is_packed,
    open_place,
    read_blocks,
)
from fedperf_client.sources.spark.fields import Event, MalformedEventError
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.sources.spark.reader import USED_EVENTS, Application, Reader
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution

MAX_LINE_BYTES = 8 * 1024**2
NEAR_BYTES = 200
MAX_STAGES = 20_000  # most stages whose skipped lines are counted separately
_STAGE = re.compile(rb'\{"Event":"\w{1,100}","Stage ID":(\d{1,10}),')
_STARTED = b'{"Event":"SparkListenerTaskStart","Stage ID":%b,'
_NAME_BYTES = 34  # most bytes before the number of a stage; its comma is behind them
# Number of a line, from 1 on, and the line; None for a line above `MAX_LINE_BYTES`.
Line = tuple[int, bytes | None]


@dataclass(frozen=True, slots=True)
class SkippedLines:
    """Lines that are skipped before they are copied.

    Lines of tasks are counted by stage. The first line of each stage, which shows when it began, is
    not skipped.
    """

    beginnings: tuple[bytes, ...] = ()  # beginnings of lines that are skipped
    # Beginning of lines that are skipped if `near` is in their first bytes.
    beginning_near: bytes | tuple[()] = ()
    # Searched in the first `NEAR_BYTES` of these lines, which are at least as long.
    near: bytes = b""
    # Beginning of lines that are skipped apart from the first of each stage.
    beginning_stage: bytes | tuple[()] = ()
    # Number of skipped lines, by their beginning with the stage's number. An empty beginning counts
    # the lines of unknown stages.
    stages: dict[bytes, int] = field(default_factory=dict)

    def holds(self, block: bytes | bytearray, start: int = 0) -> bool:
        """Return whether the line at `start` is skipped, and count it."""
        is_near = block.startswith(self.beginning_near, start)
        if is_near and block.find(self.near, start, start + NEAR_BYTES) < 0:
            return False
        if not (is_near or block.startswith(self.beginning_stage, start)):
            return block.startswith(self.beginnings, start)
        stage = bytes(block[start : block.find(b",", start + _NAME_BYTES, start + NEAR_BYTES) + 1])
        if stage not in self.stages:
            match = _STAGE.fullmatch(stage)
            stage, number = (stage, match[1]) if match else (b"", b"")
            is_first = match is not None and _STARTED % number not in self.stages
            self.stages[stage] = self.stages.get(stage, 0) + (not is_first)
            if len(self.stages) > MAX_STAGES:
                for each in list(islice(self.stages, MAX_STAGES // 2)):
                    self.stages[b""] = self.stages.get(b"", 0) + self.stages.pop(each)
            return not is_first
        self.stages[stage] += 1
        return True


NOTHING = SkippedLines()
# All lines of tasks that did not fail, apart from the first of each stage.
SUCCESSFUL_TASKS = SkippedLines(
    beginnings=(b'{"Event":"SparkListenerTaskGettingResult"',),
    beginning_near=b'{"Event":"SparkListenerTaskEnd"',
    near=b'"Task End Reason":{"Reason":"Success"}',
    beginning_stage=b'{"Event":"SparkListenerTaskStart"',
)

# Only the starts of tasks, if the figures of tasks are read.
TASK_STARTS = replace(SUCCESSFUL_TASKS, beginning_near=())

_EVENT = rb'"Event"\s*:\s*"(?:[\w.$]{1,200}\.)?([\w$]{1,100})"'
_NAME = re.compile(rb"\s*\{\s*" + _EVENT)
_NAME_WITHIN = re.compile(_EVENT)
_BETWEEN = b" \t\r\n[],"  # characters between events of a list
_WRITTEN = b'{"'  # the beginning of an event as Spark writes it
_BEGIN_ALONE = re.compile(rb"(\s*)\{\s*")

_UPDATE, _END = "SparkListenerSQLAdaptiveExecutionUpdate", "SparkListenerSQLExecutionEnd"
_QUERY = re.compile(rb'"executionId"\s*:\s*(\d{1,19})\s*,')
_HEAD_BYTES = 200
MAX_HELD_BYTES = 8 * 1024**2  # most bytes of held updates of plans, unless a single one is larger
TOO_LONG = "a line above the limit"
NO_EVENT = "no event"
TORN = "a piece of an event: its line was cut or wrapped since Spark wrote it"


@dataclass(slots=True)
class Events:
    """The used events of a log, file after file."""

    names: frozenset[str]  # short names of the used events
    skipped: SkippedLines = SUCCESSFUL_TASKS  # lines that are skipped
    line: int = 0  # number of the last line
    event_names: set[str] = field(default_factory=set)  # names of the events so far
    _file: str = ""
    _updates: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self.skipped = replace(self.skipped, stages={})

    def skipped_ends(self, stage: int) -> int | None:
        """Return how many task ends of a stage were skipped; None if they were not counted."""
        stages = self.skipped.stages
        key = b'{"Event":"SparkListenerTaskEnd","Stage ID":%d,' % stage
        return None if b"" in stages else stages.get(key, 0)

    def bad(self, reason: str, number: int | None = None) -> SkippedRecord:
        """Return a problem with a line of the current file, by default the last line."""
        return SkippedRecord(f"line {number or self.line} of {self._file}", reason)

    def of(self, path: LogFile) -> Iterator[tuple[str, Event] | SkippedRecord]:
        """Yield name and content of each used event, and each bad line; errors as `lines`.

        Updates that are held back when a file turns out to be damaged come with the next file.
        """
        self._file = path.name
        for number, line in whole_events(lines(path, self.skipped, is_whole=_ends_as_an_event)):
            self.line = number
            if line is None:
                yield self.bad(TOO_LONG)
                continue
            name = name_of(line)
            if not name and line.strip(_BETWEEN):
                is_piece = line.rstrip().endswith(b"}") != line.lstrip().startswith(b"{")
                yield self.bad(TORN if is_piece else NO_EVENT)
            if name not in self.names:
                continue
            if name == _UPDATE:
                yield from self._held_back(number, line)
                continue
            if name == _END:
                yield from self._last_updates()
            yield from self._event(name, number, line)
        yield from self._last_updates()

    def _event(
        self, name: str, number: int, line: bytes
    ) -> Iterator[tuple[str, Event] | SkippedRecord]:
        if exceeds_json_memory(line):
            yield self.bad(TOO_LONG, number)
            return
        event = _parsed(line)
        if event is None:
            yield self.bad(NO_EVENT if _ends_as_an_event(line) else TORN, number)
            return
        self.event_names.add(name)
        yield name, event

    def _held_back(self, number: int, line: bytes) -> Iterator[tuple[str, Event] | SkippedRecord]:
        """Hold an update of a plan until a query ends or another update replaces it."""
        match = _QUERY.search(line, 0, _HEAD_BYTES)
        if match is None:  # the number of its query is too far behind
            yield from self._event(_UPDATE, number, line)
            return
        if self._held_bytes + len(line) > MAX_HELD_BYTES:
            yield from self._last_updates()
        _, before = self._updates.pop(match[1], (0, b""))
        self._updates[match[1]] = (number, line)
        self._held_bytes += len(line) - len(before)

    def _last_updates(self) -> Iterator[tuple[str, Event] | SkippedRecord]:
        held, self._updates, self._held_bytes = self._updates, {}, 0
        for number, line in held.values():
            yield from self._event(_UPDATE, number, line)


def name_of(line: bytes | None) -> str:
    """Return the short name of the event of a line, wherever it is; empty if it is no event."""
    if line is None:
        return ""
    match = _NAME.match(line)
    return match[1].decode("ascii", "replace") if match else _name_within(line)


def _name_within(line: bytes) -> str:
    """Return the name of an event whose name is not its first key."""
    if not line.lstrip().startswith(b"{"):
        return ""
    names = set[str]()
    for match in _NAME_WITHIN.finditer(line):
        names.add(match[1].decode("ascii", "replace"))
        if len(names) > 1:
            break
    if len(names) > 1 and not exceeds_json_memory(line):  # others are nested in the event
        name = (_parsed(line) or {}).get("Event")
        names = {name.rpartition(".")[2]} if isinstance(name, str) else set()
    return names.pop() if len(names) == 1 else ""


def whole_events(numbered_lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines, with events that are spread over lines joined, under their first number.

    Such an event begins with a single brace in a line, and ends with a brace below it.
    """
    begun, end, event = 0, b"", bytearray()
    is_too_long = False
    for number, line in numbered_lines:
        if begun and (line is None or not line.startswith(_WRITTEN)):
            piece = b"" if line is None else line.rstrip(b",\r ") if line.startswith(end) else line
            is_too_long = is_too_long or line is None or len(event) + len(piece) > MAX_LINE_BYTES
            event += b"" if is_too_long else piece
            if piece == end:
                yield begun, None if is_too_long else bytes(event)
                begun = 0
            continue
        if begun:  # it had no end
            yield begun, None if is_too_long else bytes(event)
            begun = 0
        brace = None
        if line is not None and not line.startswith(_WRITTEN):
            brace = _BEGIN_ALONE.fullmatch(line)
        if brace is None:
            yield number, line
        else:
            begun, end, event, is_too_long = number, brace[1] + b"}", bytearray(b"{"), False
    if begun:
        yield begun, None if is_too_long else bytes(event)


def _ends_as_an_event(line: bytes) -> bool:
    return line.rstrip().endswith((b"}", b"]"))


def _parsed(line: bytes) -> Event | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _mended(line)
    return event if isinstance(event, dict) else None


def _mended(line: bytes) -> Event | None:
    """Parse an event that is part of a list, or in a legacy encoding."""
    if (alone := line.rstrip(_BETWEEN)) != line:
        return _parsed(alone)
    try:
        line.decode()
    except UnicodeDecodeError:
        return _parsed(line.decode("cp1252", "replace").encode())
    return None


def lines(  # noqa: PLR0912, PLR0915 (one loop, which takes nearly all time)
    path: LogFile,
    skipped: SkippedLines = NOTHING,
    *,
    is_whole: Callable[[bytes], bool] = lambda _: True,
) -> Iterator[Line]:
    """Yield the lines of a log that are not skipped, without line ends.

    `is_whole` returns whether a last line without line end is complete.

    Raises:
        DamagedLogError: the bytes are damaged or cut off; all whole lines before were yielded.
        OSError: the file cannot be read.
    """
    # This loop takes nearly all time: most lines begin like the last one of their kind.
    near, stages, ended = skipped.near, skipped.stages, 0
    same_end: bytes | tuple[()] = ()
    same_start: bytes | tuple[()] = ()
    same_stage = b""
    number, tail, is_too_long = 0, bytearray(), False
    for block in read_blocks(path):
        start, end = 0, block.find(b"\n")
        if end >= 0 and (tail or is_too_long):
            tail += block[:end]
            number += 1
            whole, is_too_long = bytes(tail), is_too_long or len(tail) > MAX_LINE_BYTES
            tail.clear()  # a line of megabytes is held only once
            if is_too_long:
                yield number, None
            elif not skipped.holds(whole):
                yield number, whole
            del whole
            is_too_long, start = False, end + 1
            end = block.find(b"\n", start)
        while end >= 0:
            number += 1
            if block.startswith(same_end, start):
                ended += 1
            elif not block.startswith(same_start, start):
                if ended:
                    stages[same_stage], ended = stages.get(same_stage, 0) + ended, 0
                comma = block.find(b",", start + _NAME_BYTES, start + NEAR_BYTES)
                stage = block[start : comma + 1]
                if not skipped.holds(block, start):
                    yield number, block[start:end]
                elif stage and stage in stages:
                    if stage.startswith(skipped.beginning_stage):
                        same_start = stage
                    else:
                        so_far = block.find(near, start, start + NEAR_BYTES) + len(near)
                        same_end, same_stage = block[start:so_far], stage
            start = end + 1
            end = block.find(b"\n", start)
        if ended:
            stages[same_stage], ended = stages.get(same_stage, 0) + ended, 0
        if not is_too_long:
            tail += block[start:]
        if len(tail) > MAX_LINE_BYTES:
            tail, is_too_long = bytearray(), True
    if is_too_long:
        yield number + 1, None
    elif tail:
        last = bytes(tail)
        if not is_whole(last):
            raise CutLogError(f"{path}: cut off in the middle of a line, {READ_ON}")
        if not skipped.holds(last):
            yield number + 1, last


WHOLE_LOG = "the log"  # the name of the record of a problem with the whole log
_ROLLED = re.compile(r"events_(\d{1,9})_.*")
_DATABRICKS = re.compile(r"eventlog(-[\d-]+)?(\.[a-z0-9]+)?")
_STATUS = "appstatus_"
_BEFORE_1_2 = re.compile(r"SPARK_VERSION_([\d.]{1,20})")
_FIRST_EVENTS = ("SparkListenerLogStart", "DBCEventLoggingListenerMetadata")
_LETTERS = re.compile("[a-z]+")
_AS_DIGITS = str.maketrans(string.ascii_lowercase, "0123456789" + string.ascii_lowercase[:16])
_LONGEST_NUMBER = 9
_FIRST_LINES = 5
_MOST_REASONS = 3
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

    files: tuple[LogFile, ...]  # in order
    is_partial: bool = False  # earlier events are missing

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every query, and every job without one, once; see `Source.read`."""
        application, item = Application(is_partial=self.is_partial), None
        for item in self.work(application):
            yield item if isinstance(item, SkippedRecord) else application.to_execution(item)
        if item is None:
            yield SkippedRecord(WHOLE_LOG, "no query and no job ran")

    def work(self, application: Application) -> Iterator[SparkQuery | SkippedRecord]:
        """Yield every query and job when it is complete, and every problem of the log.

        Facts of the application are added to `application`, before a query that they concern.
        """
        names, skipped = USED_EVENTS, TASK_STARTS
        if not application.with_tasks:
            names, skipped = USED_EVENTS - {"SparkListenerStageSubmitted"}, SUCCESSFUL_TASKS
        events = Events(names, skipped)
        reader = Reader(application, events.skipped_ends)
        for file in self.files:
            try:
                for event in events.of(file):
                    if isinstance(event, SkippedRecord):
                        yield event
                        continue
                    try:
                        yield from reader.take(*event)
                    except MalformedEventError as error:
                        version = application.settings.version
                        is_old = version.startswith("1.")
                        yield events.bad(_OLD.format(version, error) if is_old else str(error))
            except DamagedLogError as error:
                yield SkippedRecord(file.name, str(error).removeprefix(f"{file}: "))
            except OSError as error:
                reason = f"cannot be read further: {error.strerror or error}"
                yield SkippedRecord(file.name, reason)
        yield from reader.end()
        if (
            events.event_names
            and "SparkListenerApplicationStart" not in events.event_names
            and not self.is_partial
        ):
            yield SkippedRecord(WHOLE_LOG, _PART)


@dataclass(frozen=True, slots=True)
class EventLogs:
    """The log at one place, or several in one zip, such as those of all attempts."""

    logs: tuple[EventLog, ...]  # in the order of their names
    others: tuple[SkippedRecord, ...] = ()  # files of the zip that are no logs

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every execution of every log; see `Source.read`."""
        yield from self.others
        for log in self.logs:
            yield from log.read()


def open_event_log(path: FilePlace) -> EventLogs | None:
    """Recognize an event log by its first lines; see `OpenSource`.

    A zip, such as one of Spark's History Server, is read as the directory that it was made of.
    """
    place = open_place(path)
    if (log := _log_at(place)) is not None:
        return EventLogs((log,))
    if place is path:
        return None
    contents = list(_all_in(place))
    logs = tuple(each for each in contents if isinstance(each, EventLog))
    others = tuple(each for each in contents if isinstance(each, SkippedRecord))
    reasons = [each.reason for each in others if each.reason != _NO_LOG]
    if not logs and reasons:
        raise NothingToReadError(f"{path}: {'; '.join(reasons[:_MOST_REASONS])}")
    return EventLogs(logs, others) if logs else None


def _all_in(directory: FilePlace) -> Iterator[EventLog | SkippedRecord]:
    """Yield the logs in an archive, and every other file as a skipped record."""
    for place in sorted(directory.iterdir(), key=attrgetter("name")):
        try:
            log = _log_at(place)
        except (InvalidInputError, OSError) as error:
            yield SkippedRecord(place.name, str(error).removeprefix(f"{place}: "))
            continue
        if log is not None:
            yield log
        elif place.is_dir():
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
            is_empty = False
            is_list = is_list or _NAME.match((line or b"").lstrip(b" [")) is not None
    except UnreadCodecError:
        raise
    except CutLogError as error:
        raise NothingToReadError(f"{place}: {_CUT}") from error
    except DamagedLogError as error:
        raise NothingToReadError(f"{error}; nothing of it can be read, copy it again") from error
    if is_empty:
        raise NothingToReadError(f"{place}: {_EMPTY}")
    if is_list:
        raise UnreadCodecError(f"{place}: {_LIST}")
    return None


def _in_directory(files: Sequence[FilePlace], name: str) -> EventLog | None:
    for file in files:
        if (match := _BEFORE_1_2.fullmatch(file.name)) is not None:
            raise InvalidInputError(
                f"{name}: Spark {match[1]} is not read; event logs of Spark 1.2 and later are"
            )
    return _rolled(files) or _databricks(files) or _split(files, name)


def _rolled(files: Sequence[FilePlace]) -> EventLog | None:
    """Return Spark's own rolling log (`spark.eventLog.rolling.enabled`)."""
    matches = ((_ROLLED.fullmatch(file.name), file) for file in files)
    parts = {(int(match[1]), file.name): file for match, file in matches if match}
    if not parts:
        return None
    order = sorted(parts)
    is_partial = order[0][0] != 1 or any(name.endswith(".compact") for _, name in order)
    return EventLog(tuple(parts[each] for each in order), is_partial)


def _databricks(files: Sequence[FilePlace]) -> EventLog | None:
    """Return the rolling log of Databricks: dated files, and the latest without a date."""
    dates = {file.name: match[1] for file in files if (match := _DATABRICKS.fullmatch(file.name))}
    dated = [file for file in sorted(files, key=attrgetter("name")) if dates.get(file.name)]
    newest = [file for file in files if file.name == "eventlog"]
    return EventLog((*dated, *newest)) if dated else None


def _split(files: Sequence[FilePlace], name: str) -> EventLog | None:
    """Return a log that was split into files, of which only the first begins a log."""
    content = [each for each in files if not each.name.startswith((".", "_"))]
    numbers = _part_numbers([each.name for each in content])
    if numbers is None:
        return None
    order = [each for _, each in sorted(zip(numbers, content, strict=True), key=lambda e: e[0])]
    if not _begins_a_log(order[0]):
        order.reverse()  # rotated logs have the highest number on the oldest file
    if not _begins_a_log(order[0]) or _begins_a_log(order[1]):
        return None
    is_text = not is_packed(order[0])
    for each in order[1:]:
        if _begins_a_log(each) or (is_text and not _first_names(each)):
            return None
    return EventLog((JoinedFile(name, tuple(order)),))


def _part_numbers(names: Sequence[str]) -> list[int] | None:
    """Return the numbers, without gaps, of parts whose names differ in nothing else, or None."""
    start = commonprefix(names).rstrip(string.digits)  # noqa: RUF071 - of letters
    rest = [each[len(start) :] for each in names]
    ends = [each[::-1] for each in rest]
    end = commonprefix(ends)[::-1].lstrip(string.digits)  # noqa: RUF071 - of letters
    middles = [each.removesuffix(end).strip("._-") for each in rest]
    digits = [each for each in middles if each]
    if not digits or len(digits) < len(middles) - 1 or max(map(len, digits)) > _LONGEST_NUMBER:
        return None
    if all(each.isascii() and each.isdecimal() for each in digits):
        values = {each: int(each) for each in digits}
    elif all(_LETTERS.fullmatch(each) for each in digits):
        values = {each: int(each.translate(_AS_DIGITS), 26) for each in digits}
    else:
        return None
    least = min(values.values())
    numbers = [values.get(each, least - 1) for each in middles]  # log, log.1, log.2
    is_whole = len(names) > 1 and max(numbers) - min(numbers) == len(set(numbers)) - 1
    return numbers if is_whole and len(set(numbers)) == len(numbers) else None


def _begins_a_log(file: LogFile) -> bool:
    return any(each in _FIRST_EVENTS for each in _first_names(file, 1))


def _first_names(file: LogFile, count: int = _FIRST_LINES) -> list[str]:
    names = list[str]()
    with suppress(InvalidInputError, OSError):
        names.extend(name_of(line) for _, line in islice(lines(file), count))
    return [each for each in names if each]
