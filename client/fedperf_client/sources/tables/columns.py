"""How the columns of a table of past runs are understood: roles, units and left-out columns.

A column has at most one role. Roles come from a `TableMapping`, that a user writes or a preset of a
known table has, and otherwise from names: `duration_ms`, `Input (GB)`, `machine_count`. What
remains describes the job and is given to `fedperf predict JOB --at`, except for results of the
run (times, costs, rates), ids, and texts that differ in nearly every run.

Units come from the mapping (`elapsed:ms`), from the name (`elapsed_ms`) or from the values
(`12m`, `10GB`). Without any, times are seconds and sizes are rows, and `ColumnUse.is_assumed` says
so. The mapping, the names and the first rows decide for the whole table, so a row means the same
whichever rows follow.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum, unique
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from fedperf_client.sources.tables.rows import Cell, Row
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.quantities import parse_number

ROWS = "rows"  # unit of input sizes
SAMPLE = 1000  # first rows, which decide with names what the columns are
MOST_COLUMNS = 32  # further columns that may describe a job
LONGEST_WORD = 100  # characters of a category
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "nil", "-", "\\n", "<na>", "nat"))
_LONG = 8  # characters; no word for a missing value is as long
_FEW = 20  # distinct texts that are categories in a table of any length


@unique
class Role(StrEnum):
    """The meaning of a column."""

    JOB = "job"
    TIME = "time"
    NODES = "nodes"
    CORES = "cores"
    SIZE = "input_size"
    MEMORY = "memory"
    MACHINE = "machine"
    ENGINE = "engine"
    STARTED = "started"
    FINISHED = "finished"
    STATUS = "status"
    ID = "id"
    CPU = "cpu"
    CONFIGURATION = "column"
    LEFT_OUT = "left out"


# Roles whose columns describe the job too, and may be in a query.
DESCRIBING = frozenset((Role.NODES, Role.CORES, Role.SIZE, Role.MEMORY, Role.MACHINE, Role.ENGINE))

_TIMES = {
    **dict.fromkeys(("ns", "nanos", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "micros", "microseconds", "usec"), 1e-6),
    **dict.fromkeys(("ms", "millis", "milliseconds", "msec"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours", "hrs"), 3600.0),
}
_BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{p}b": 1e3 ** (n + 1) for n, p in enumerate("kmgtp")},
    **{f"{p}ib": 1024.0 ** (n + 1) for n, p in enumerate("kmgtp")},
    **{f"{p}bytes": 1e3 ** (n + 1) for n, p in enumerate(("kilo", "mega", "giga", "tera"))},
}
_SHOWN_UNITS = (
    *("ns", "us", "ms", "s", "min", "h", "bytes"),
    *(f"{prefix}{suffix}" for suffix in ("B", "iB") for prefix in "kMGTP"),
)
_ROWS = dict.fromkeys(("row", "rows", "records", "lines", "tuples", "events", "documents"), 1.0)

# Words of names by role, the most telling first. Units are cut off before.
_NAMES: Mapping[Role, tuple[str, ...]] = {
    Role.TIME: (
        *("runtime", "run time", "gross runtime", "wall time", "walltime", "wall", "duration"),
        *("elapsed", "elapsed time", "total duration", "execution time", "exec time"),
        *("total time", "took", "", "time"),
    ),
    Role.JOB: (
        *("job", "job name", "jobname", "workload", "pipeline", "workflow", "dag id", "task"),
        *("task name", "query name", "query", "application", "app", "app name", "benchmark"),
    ),
    Role.NODES: (
        *("nodes", "node count", "num nodes", "machine count", "machines", "instance count"),
        *("instances", "workers", "num workers", "worker count", "executors", "num executors"),
        *("executor count", "hosts", "servers", "cluster size", "scale out"),
    ),
    Role.CORES: (
        *("cores", "total cores", "num cores", "core count", "vcpus", "vcores", "cpus", "threads"),
        *("num threads", "slots", "parallelism", "nprocs"),
    ),
    Role.SIZE: (
        *("input size", "data size", "dataset size", "input", "input rows", "rows", "input bytes"),
        *("row count", "num rows", "records", "bytes", "size", "data", "bytes read"),
    ),
    Role.MEMORY: ("memory", "total memory", "ram", "mem"),
    Role.MACHINE: (
        *("machine type", "instance type", "node type", "vm type", "machine", "flavor"),
    ),
    Role.ENGINE: ("engine", "platform", "system"),
    Role.STARTED: (
        *("started at", "start time", "started", "start", "begin", "submitted at", "start ts"),
    ),
    Role.FINISHED: (
        *("finished at", "end time", "ended at", "finished", "ended", "end", "completed at"),
        *("finish time", "timestamp", "datetime", "date", "day", "ts", "time"),
    ),
    Role.STATUS: ("status", "state", "outcome", "final status"),
    Role.ID: ("run id", "execution id", "id", "uuid", "query id", "application id", "job id"),
    Role.CPU: ("cpu seconds", "cpu time"),
}
# Words of names of results of a run, which nobody knows before it.
_RESULTS = frozenset(
    (
        *("time", "duration", "latency", "seconds", "secs", "ms", "elapsed", "runtime"),
        *("throughput", "speed", "rate", "perf", "performance", "cost", "price", "credits"),
        *("error", "errors", "message", "failure", "failures", "retries", "spill", "spilled"),
        *("cpu", "energy", "joules", "utilization", "output", "written", "billed", "slot"),
        *("comment", "note", "notes", "url", "path", "log", "exit"),
    )
)
_IDS = frozenset(("id", "ids", "uuid", "guid", "hash", "digest", "index"))
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CLOCK = re.compile(r"(?:(\d+)[:h]\s*)?(\d{1,3})[:m]\s*(\d{1,2}(?:\.\d+)?)s?")
_DURATION = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)\s*([a-zA-Z]+)")
_ISO_DURATION = re.compile(
    r"P(?:([\d.]+)D)?T?(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?", re.IGNORECASE
)
_SIZE = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)\s*([a-zA-Z]*)")
_SLASHES = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})(.*)", re.DOTALL)
_SPACED_ZONE = re.compile(r"(?<=\d)\s+([+-]\d{2}:?\d{2})$")
_MONTHS = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %d %Y")
_NUMBER_BEGINS = frozenset("0123456789+-.")
_LAST_EPOCH = 4e18
_EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))  # least value, seconds per unit


class ColumnsError(InvalidInputError):
    """Raised when the columns of a table cannot be understood."""


_Name = Annotated[StrictStr, Field(min_length=1, max_length=300)]


class TableMapping(BaseModel):
    """The columns of a table by role, as users write them: `COLUMN`, or `COLUMN:UNIT`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: _Name | None = None
    job_name: _Name | None = None  # of the whole table, where no column names jobs
    time: _Name | None = None
    nodes: _Name | None = None
    cores: _Name | None = None  # of all nodes together
    input_size: _Name | None = None
    memory: _Name | None = None  # of all nodes together
    machine: _Name | None = None  # the provider's name of the type of machines
    engine: _Name | None = None
    started: _Name | None = None
    finished: _Name | None = None
    status: _Name | None = None
    id: _Name | None = None  # one text for each run
    cpu: _Name | None = None
    columns: tuple[_Name, ...] | None = None  # further ones that describe the job; None: the rest
    # Whether 03/04/2026 is the third of April; where None, the values have to show it.
    day_first: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether it says nothing."""
        return all(value is None for value in self.model_dump().values())


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """How one column is understood."""

    name: str
    role: Role
    unit: str = ""  # as written by people, such as ms, GB or rows
    factor: float = 1.0  # seconds, bytes or rows of one unit
    reason: str = ""  # why it is left out
    is_assumed: bool = False  # whether nothing told the unit
    example: str = ""  # the first value


@dataclass(frozen=True, slots=True)
class TableColumns:
    """How all columns of a table are understood."""

    uses: tuple[ColumnUse, ...]  # in the order of the table
    job_name: str  # of runs without a job of their own
    day_first: bool | None = None  # how dates with slashes are read; None without any
    by_role: Mapping[Role, ColumnUse] = field(default_factory=dict)

    @property
    def size_is_rows(self) -> bool:
        """Return whether the input size counts rows."""
        use = self.by_role.get(Role.SIZE)
        return use is not None and use.unit == ROWS

    @property
    def configuration(self) -> tuple[ColumnUse, ...]:
        """Return the columns that describe the job."""
        return tuple(
            use
            for use in self.uses
            if use.role is Role.CONFIGURATION or (use.role in DESCRIBING and not use.reason)
        )


def understand(
    sample: Sequence[Row], mapping: TableMapping, *, default_job: str, is_named: bool = True
) -> TableColumns:
    """Return how the columns of a table are understood.

    Args:
        sample: the first rows, at least one.
        mapping: what is known of the columns.
        default_job: the name of the job if no column has one.
        is_named: whether a user named the table; otherwise names have to show job and time.

    Raises:
        ColumnsError: a named column is not there, no column holds times, or a unit is unknown.
    """
    names = list(dict.fromkeys(name for row in sample for name in row))
    named = _named_columns(mapping, names)
    guessed = (
        {}
        if named.keys() >= {Role.TIME, Role.JOB} and mapping.columns
        else _by_name(
            names, taken={name for name, _ in named.values()}, roles=set(Role) - named.keys()
        )
    )
    if mapping.job_name is not None:
        guessed.pop(Role.JOB, None)
    if not is_named and not {Role.TIME, Role.JOB} <= guessed.keys() | named.keys():
        raise ColumnsError(_advice(names))
    moments = {Role.STARTED, Role.FINISHED} & (guessed.keys() | named.keys())
    if Role.TIME not in {*guessed, *named} and len(moments) < 2:  # noqa: PLR2004 (a start and an end)
        raise ColumnsError(_advice(names))
    columns = {name: [row.get(name) for row in sample] for name in names}
    day_first = mapping.day_first
    by_role: dict[Role, ColumnUse] = {}
    for role, (name, unit) in {**guessed, **named}.items():
        values = [each for each in columns[name] if not is_missing(each)]
        use = _with_unit(name, role, unit, values)
        if role in (Role.STARTED, Role.FINISHED) and day_first is None:
            day_first = _day_first(name, values)
        by_role[role] = use
    by_role = {role: by_role[role] for role in Role if role in by_role}
    _check_values(by_role, columns, day_first)
    by_role = _without_consequences(by_role, named)
    by_name = {use.name: use for use in by_role.values()}
    rest = [_further(name, columns[name], mapping.columns) for name in names if name not in by_name]
    if mapping.columns is None and sum(e.role is Role.CONFIGURATION for e in rest) > MOST_COLUMNS:
        reason = f"one of more than {MOST_COLUMNS} columns; name those that count with --columns"
        rest = [
            ColumnUse(e.name, Role.LEFT_OUT, reason=e.reason or reason, example=e.example)
            for e in rest
        ]
    by_name |= {use.name: use for use in rest}
    job_name = mapping.job_name or default_job
    return TableColumns(tuple(by_name[n] for n in names), job_name, day_first, by_role=by_role)


def _named_columns(mapping: TableMapping, names: Sequence[str]) -> dict[Role, tuple[str, str]]:
    """Return column and unit of every role that a mapping names."""
    named: dict[Role, tuple[str, str]] = {}
    for role in Role:
        text = (
            getattr(mapping, role.value, None) if role.value in mapping.model_fields_set else None
        )
        if isinstance(text, str):
            named[role] = _column_and_unit(role.value, text, names)
    for each in mapping.columns or ():
        _column_and_unit("columns", each, names)
    return named


def _column_and_unit(key: str, text: str, names: Sequence[str]) -> tuple[str, str]:
    by_case = {name.lower(): name for name in reversed(names)}
    head, _, unit = text.rpartition(":")
    for name, end in ((text, ""), (head, unit)):
        if name in names:
            return name, end
        if name.lower() in by_case:
            return by_case[name.lower()], end
    there = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")  # noqa: PLR2004
    raise ColumnsError(f"{key}: there is no column {text[:80]!r}; there are {there}")


def _by_name(
    names: Sequence[str], *, taken: set[str], roles: set[Role]
) -> dict[Role, tuple[str, str]]:
    """Return the column of each role whose name tells it best, with the unit in its name."""
    guessed: dict[Role, tuple[str, str]] = {}
    for role, words in _NAMES.items():
        if role not in roles:
            continue
        units = _TIMES if role in (Role.TIME, Role.CPU) else {**_BYTES, **_ROWS}
        candidates = []
        for place, name in enumerate(names):
            whole = " ".join(each.lower() for each in _WORDS.findall(name))
            head, _, last = whole.rpartition(" ")
            is_measured = role in (Role.TIME, Role.SIZE, Role.MEMORY, Role.CPU)
            if whole in words and whole:
                candidates.append((words.index(whole), place, name, ""))
            elif is_measured and last in units and head in words:
                candidates.append((words.index(head), place, name, last))
        for _, _, name, unit in sorted(candidates):
            if name not in taken:
                guessed[role] = name, unit
                taken.add(name)
                break
    return guessed


def _with_unit(name: str, role: Role, unit: str, values: Sequence[Cell]) -> ColumnUse:
    example = "" if not values else str(values[0])[:40]
    if role in (Role.TIME, Role.CPU):
        units, default = _TIMES, "s"
    elif role is Role.SIZE:
        units, default = {**_BYTES, **_ROWS}, "rows"
    elif role is Role.MEMORY:
        units, default = _BYTES, "MB"
    else:
        if unit:
            raise ColumnsError(f"{role}: column {name!r} has no unit, got {unit!r}")
        return ColumnUse(name, role, example=example)
    if not unit:
        last = [each.lower() for each in _WORDS.findall(name)][-1:]
        unit = last[0] if last and last[0] in units else ""
    if unit and unit.lower() not in units:
        allowed = ", ".join(each for each in units if len(each) < 4)  # noqa: PLR2004 (short names)
        raise ColumnsError(f"{role}: unit {unit[:20]!r} is unknown; expected one of {allowed}")
    is_text = any(isinstance(each, str) and not _is_number(each) for each in values)
    is_assumed = not unit and not is_text
    unit = (unit or default).lower()
    factor = units[unit]
    name_of_unit = ROWS if unit in _ROWS and role is Role.SIZE else _shown_unit(units, factor)
    return ColumnUse(name, role, name_of_unit, factor, "", is_assumed, example)


def _shown_unit(units: Mapping[str, float], factor: float) -> str:
    return next(each for each in _SHOWN_UNITS if units.get(each.lower()) == factor)


def _check_values(
    by_role: Mapping[Role, ColumnUse], columns: Mapping[str, list[Cell]], day_first: bool | None
) -> None:
    """Refuse a column of numbers that holds none, and times that differ from start and end."""
    for role in (Role.TIME, Role.NODES, Role.CORES, Role.SIZE):
        use = by_role.get(role)
        if use is None:
            continue
        values = [each for each in columns[use.name] if not is_missing(each)]
        if values and not any(_quantity(use, each) is not None for each in values):
            raise ColumnsError(
                f"{role}: column {use.name!r} holds no numbers, such as {str(values[0])[:40]!r}"
            )
    if not {Role.TIME, Role.STARTED, Role.FINISHED} <= by_role.keys():
        return
    time, started, finished = (by_role[e] for e in (Role.TIME, Role.STARTED, Role.FINISHED))
    ratios = []
    for cell, start, end in zip(
        columns[time.name], columns[started.name], columns[finished.name], strict=True
    ):
        seconds = _quantity(time, cell)
        began, ended = parse_moment(start, day_first), parse_moment(end, day_first)
        if seconds and began is not None and ended is not None and ended > began:
            ratios.append(seconds / (ended - began).total_seconds())
    middle = sorted(ratios)[len(ratios) // 2] if ratios else 1.0
    for unit, factor in (("ms", 1e3), ("us", 1e6), ("min", 1 / 60), ("ns", 1e9)):
        if time.is_assumed and factor / 2 < middle < factor * 2:
            raise ColumnsError(
                f"time: column {time.name!r} was taken for seconds, but its values are about "
                f"{factor:g} times {finished.name} - {started.name}; write {time.name}:{unit}"
            )


def _without_consequences(
    by_role: Mapping[Role, ColumnUse], named: Mapping[Role, object]
) -> dict[Role, ColumnUse]:
    """Mark cores and memory that follow from the number and the type of the machines."""
    follows = "follows from nodes and machine type"
    marked = {Role.NODES, Role.MACHINE} <= by_role.keys()
    return {
        role: ColumnUse(
            use.name, role, use.unit, use.factor, follows, is_assumed=False, example=use.example
        )
        if marked and role in (Role.CORES, Role.MEMORY) and role not in named
        else use
        for role, use in by_role.items()
    }


def _further(name: str, values: Sequence[Cell], named: Sequence[str] | None) -> ColumnUse:
    """Return how a column without a role is understood."""
    there = [each for each in values if not is_missing(each)]
    example = "" if not there else str(there[0])[:40]
    if named is not None:
        is_chosen = name.lower() in {each.lower() for each in named}
        role = Role.CONFIGURATION if is_chosen else Role.LEFT_OUT
        return ColumnUse(name, role, reason="" if is_chosen else "not named", example=example)
    words = {each.lower() for each in _WORDS.findall(name)}
    texts = {str(each) for each in there if isinstance(each, str) and not _is_number(each)}
    reason = ""
    if not words or name.lower().startswith("unnamed"):
        reason = "has no name"
    elif not there:
        reason = "has no values"
    elif words & _RESULTS or words & _TIMES.keys() - {"m", "s", "h", "b"}:
        reason = "looks like a result of the run"
    elif words & _IDS:
        reason = "looks like an id"
    elif any(isinstance(each, datetime) for each in there) or (
        all(parse_moment(each, True) for each in there[:_FEW] if isinstance(each, str)) and texts
    ):
        reason = "holds times of day"
    elif len(texts) > max(_FEW, len(there) / 10):
        reason = f"{len(texts)} different texts are no categories"
    elif any(len(each) > LONGEST_WORD for each in texts):
        reason = f"texts of more than {LONGEST_WORD} characters are no categories"
    role = Role.LEFT_OUT if reason else Role.CONFIGURATION
    return ColumnUse(name, role, reason=reason, example=example)


def _advice(names: Sequence[str]) -> str:
    there = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")  # noqa: PLR2004
    return f"no known table; name its columns: --job COLUMN --time COLUMN. It has {there}"


# --- values -----------------------------------------------------------------------------------


def is_missing(cell: Cell) -> bool:
    """Return whether a cell holds nothing."""
    if isinstance(cell, str):
        return (len(cell) < _LONG or cell.isspace()) and cell.strip().lower() in _MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _is_number(text: str) -> bool:
    return to_number(text) is not None


def to_number(cell: Cell) -> float | None:
    """Return the number of a cell; None if it holds none, or one that is not finite."""
    if isinstance(cell, str):
        return _text_number(cell)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return float(cell) if math.isfinite(cell) else None


@lru_cache(maxsize=8192)
def _text_number(text: str) -> float | None:
    """Return the number of a text such as 12, 1e6, 1,200,000 or 3,5; None if it is none."""
    text = text.strip()
    if text[:1] not in _NUMBER_BEGINS or not text:
        return None
    try:
        number = float(text)
    except ValueError:
        if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", text):
            number = float(text.replace(",", ""))
        elif re.fullmatch(r"[+-]?\d+,\d+", text):
            number = float(text.replace(",", "."))
        else:
            return None
    return number if math.isfinite(number) else None


def to_seconds(use: ColumnUse, cell: Cell) -> float | None:
    """Return the seconds of a cell of times: a number, 12m, 1:02:03 or PT3.5S; None if none."""
    number = to_number(cell)
    if number is not None:
        return number * use.factor
    if not isinstance(cell, str):
        total = getattr(cell, "total_seconds", None)
        return float(total()) if callable(total) else None
    text = cell.strip()
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = match.groups()
        return 3600.0 * float(hours or 0) + 60.0 * float(minutes) + float(seconds)
    if match := _DURATION.fullmatch(text):
        factor = _TIMES.get(match[2].lower())
        return None if factor is None else float(match[1]) * factor
    match = _ISO_DURATION.fullmatch(text)
    if match and any(match.groups()):
        parts = zip(match.groups(), (86400.0, 3600.0, 60.0, 1.0), strict=True)
        return sum(float(each or 0) * factor for each, factor in parts)
    return None


def to_size(use: ColumnUse, cell: Cell) -> float | None:
    """Return the rows or bytes of a cell, such as 5e6, 3M or 10GB; None if it holds none."""
    number = to_number(cell)
    if number is not None:
        return number * use.factor
    if not isinstance(cell, str) or not (match := _SIZE.fullmatch(cell.strip())):
        return None
    if match[2].lower() in _BYTES:
        return float(match[1]) * _BYTES[match[2].lower()]
    number = parse_number(cell.strip())
    return None if number is None else number * use.factor


def _quantity(use: ColumnUse, cell: Cell) -> float | None:
    if use.role is Role.TIME:
        return to_seconds(use, cell)
    return to_size(use, cell) if use.role is Role.SIZE else to_number(cell)


def parse_moment(cell: Cell, day_first: bool | None) -> datetime | None:
    """Return the moment of a cell, in UTC unless it has a zone; None if it holds none.

    Args:
        cell: ISO 8601, seconds or milliseconds since 1970, 24/12/2026, 24.12.2026 or 24 Dec 2026,
            each with a time of day or without.
        day_first: whether 03/04/2026 is the third of April.
    """
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=cell.tzinfo or UTC)
    if isinstance(cell, str):
        return _text_moment(cell.strip(), day_first)
    number = to_number(cell)
    return None if number is None else _since_1970(number)


def _since_1970(number: float) -> datetime | None:
    """Return a moment in seconds, milliseconds, ... since 1970, which its size tells."""
    for least, factor in _EPOCHS:
        if least <= number < _LAST_EPOCH:
            return datetime.fromtimestamp(number * factor, UTC)
    return None


@lru_cache(maxsize=1024)
def _text_moment(text: str, day_first: bool | None) -> datetime | None:
    number = _text_number(text)
    if number is not None:
        return _since_1970(number)
    text = f"{text[:-4]}+00:00" if text.upper().endswith(" UTC") else text
    text = _SPACED_ZONE.sub(r"\1", text)
    moment: datetime | None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _other_moment(text, day_first)
    return None if moment is None else moment.replace(tzinfo=moment.tzinfo or UTC)


def _other_moment(text: str, day_first: bool | None) -> datetime | None:
    if match := _SLASHES.fullmatch(text):
        first, mark, second, year, rest = match.groups()
        is_day = True if mark == "." else day_first
        day, month = (first, second) if is_day else (second, first)
        iso = f"{year}-{int(month):02}-{int(day):02}"
        rest = rest.strip().lstrip(",T").strip()
        for each in (f"{iso} {rest}".strip(), f"{iso} 0{rest}".strip()):
            try:
                return datetime.fromisoformat(each)
            except ValueError:
                continue
        for each in ("%I:%M %p", "%I:%M:%S %p"):
            try:
                return datetime.strptime(f"{iso} {rest}", f"%Y-%m-%d {each}")  # noqa: DTZ007 (UTC is added)
            except ValueError:
                continue
        return None
    for month_form in _MONTHS:
        for time_form in ("", " %H:%M", " %H:%M:%S"):
            try:
                return datetime.strptime(text, month_form + time_form)  # noqa: DTZ007 (UTC is added)
            except ValueError:
                continue
    return None


def _day_first(name: str, values: Sequence[Cell]) -> bool | None:
    """Return whether dates such as 03/04/2026 begin with the day; None without such dates."""
    parts = [
        (int(match[1]), int(match[3]))
        for each in values
        if isinstance(each, str) and (match := _SLASHES.fullmatch(each.strip())) and match[2] != "."
    ]
    if not parts:
        return None
    days = any(first > 12 for first, _ in parts)  # noqa: PLR2004 (months)
    months = any(second > 12 for _, second in parts)  # noqa: PLR2004 (months)
    if days == months:
        first = next(str(each) for each in values if _SLASHES.fullmatch(str(each).strip()))
        both = "begin with the day and with the month" if days else "may begin with day or month"
        raise ColumnsError(
            f"column {name!r}: dates such as {first[:20]!r} {both}; write day_first = true or "
            "false into a file for --mapping, or dates as 2026-04-03"
        )
    return days


def described(columns: TableColumns) -> Iterator[tuple[ColumnUse, str]]:
    """Yield every column with how it was understood, for people."""
    for use in columns.uses:
        if use.role is Role.LEFT_OUT:
            yield use, f"left out: {use.reason}"
        elif use.role is Role.CONFIGURATION:
            yield use, "describes the job"
        else:
            words = use.role.value.replace("_", " ")
            unit = f", {use.unit}{' (assumed)' if use.is_assumed else ''}" if use.unit else ""
            yield use, f"{words}{unit}{f'; {use.reason}' if use.reason else ''}"
