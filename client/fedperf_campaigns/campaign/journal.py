"""The journal of a campaign: every trial of every run of it, in one SQLite file.

Append-only: a trial is written when it starts and once more when it has ended, both
synced to disk before anything else happens; nothing is changed or removed. So a campaign
that is killed loses the trial in flight and nothing else, and what is left to do is what
has no outcome yet, in whatever order. A trial is known by configuration, component,
repetition and attempt; warm-ups have repetitions below 0.

Refuses a file that is not a journal, or of another campaign or schema. One program at a
time may run a campaign: `locked` holds a lock that ends with its process.

A figure of an outcome that could not be seen, such as the memory of a function on another machine,
is None; it is never 0. `noisy` is a trial that went well on a machine that was disturbed: still
data, but flagged. `skipped` says that a trial never ran, which is no failure.
"""

import sqlite3
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

import orjson

from fedperf_client.home.sqlite_file import clear_errors, open_database, transaction
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import Closing, process_lock


class TrialStatus(StrEnum):
    """How a trial ended."""

    OK = "ok"
    WARMUP = "warmup"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SKIPPED = "skipped"
    NOISY = "noisy"

    @property
    def is_data(self) -> bool:
        """Whether its run time counts."""
        return self in (TrialStatus.OK, TrialStatus.NOISY)

    @property
    def is_failure(self) -> bool:
        """Whether it ran and did not end well."""
        return self in (TrialStatus.FAILED, TrialStatus.TIMEOUT, TrialStatus.OOM)


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What a trial or a component of it used; None where that cannot be seen.

    Attributes:
        cpu_seconds: of all its processes.
        peak_bytes: resident memory at its peak; of a trial the sum over its process tree,
            as sampled, of a component its largest process.
        read_bytes: asked for, also where the page cache answered.
        written_bytes: handed to the system.
        context_switches: of all its processes.
    """

    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None


@dataclass(frozen=True, slots=True)
class ComponentSpan:
    """One component within a trial.

    Attributes:
        component: its name.
        start_seconds: after the trial's start.
        end_seconds: after the trial's start.
        resources: what it used.
        queue_seconds: how long a remote function's answer was under way or waited for.
        compute_seconds: how long the function says that it computed.
    """

    component: str
    start_seconds: float
    end_seconds: float
    resources: ResourceUse = ResourceUse()
    queue_seconds: float | None = None
    compute_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """How a trial ended.

    Attributes:
        status: one of `TrialStatus`.
        reason: why it did not end well, or why it is flagged; local text, never released.
        wall_seconds: from the first component's start to the last one's end; of a trial
            that was stopped until then, None where it did not begin.
        startup_seconds: importing and connecting before that.
        resources: of the whole trial.
        spans: of its components that began and ended.
        foreign_cores: cores that others kept busy meanwhile, stolen time included.
        stolen_cores: cores that the machine's own host took.
        load_before: load average of the last minute, when it began.
        load_after: and when it ended.
    """

    status: TrialStatus
    reason: str = ""
    wall_seconds: float | None = None
    startup_seconds: float | None = None
    resources: ResourceUse = ResourceUse()
    spans: tuple[ComponentSpan, ...] = ()
    foreign_cores: float | None = None
    stolen_cores: float | None = None
    load_before: float | None = None
    load_after: float | None = None


APPLICATION_ID = 0x66704361
"""Marks the file as a journal of a campaign ("fpCa")."""

SCHEMA_VERSION = 1

_TABLES = (
    """CREATE TABLE campaign (campaign_id TEXT PRIMARY KEY) STRICT""",
    """CREATE TABLE session (
        session INTEGER PRIMARY KEY, began_unix_us INTEGER NOT NULL, boot TEXT NOT NULL,
        machine TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE started (
        number INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES session (session),
        configuration INTEGER NOT NULL, component TEXT NOT NULL, repetition INTEGER NOT NULL,
        attempt INTEGER NOT NULL, is_warmup INTEGER NOT NULL, is_cold INTEGER NOT NULL,
        token TEXT NOT NULL, started_unix_us INTEGER NOT NULL,
        UNIQUE (configuration, component, repetition, attempt)
    ) STRICT""",
    """CREATE TABLE ended (
        number INTEGER PRIMARY KEY REFERENCES started (number), ended_unix_us INTEGER NOT NULL,
        status TEXT NOT NULL, reason TEXT NOT NULL,
        wall_seconds REAL, startup_seconds REAL, cpu_seconds REAL, peak_bytes INTEGER,
        read_bytes INTEGER, written_bytes INTEGER, context_switches INTEGER,
        foreign_cores REAL, stolen_cores REAL, load_before REAL, load_after REAL,
        spans TEXT NOT NULL
    ) STRICT""",
    *(
        f"""CREATE TRIGGER {table}_stays_{verb} BEFORE {verb} ON {table}
        BEGIN SELECT RAISE (ABORT, 'a journal is append-only'); END"""
        for table in ("campaign", "session", "started", "ended")
        for verb in ("UPDATE", "DELETE")
    ),
)
_SELECT = """
SELECT * FROM started JOIN session USING (session) LEFT JOIN ended USING (number)
"""
_END = """
INSERT INTO ended VALUES (
    :number, :ended_unix_us, :status, :reason, :wall_seconds, :startup_seconds, :cpu_seconds,
    :peak_bytes, :read_bytes, :written_bytes, :context_switches, :foreign_cores, :stolen_cores,
    :load_before, :load_after, :spans
)
"""
_RESOURCES = tuple(each.name for each in fields(ResourceUse))


@dataclass(frozen=True, slots=True)
class TrialKey:
    """What a trial measures: a configuration's number, a component or the whole, a repetition."""

    configuration: int
    component: str
    repetition: int

    @property
    def is_warmup(self) -> bool:
        """Whether it does not count."""
        return self.repetition < 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a run of a campaign happened."""

    node_type: str
    architecture: str
    processor: str
    cores: int
    memory_bytes: int
    machine_speed: float


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the campaign's command: its number, when it began, and where."""

    session: int
    began: datetime
    boot: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class JournalTrial:
    """A trial that was started.

    Attributes:
        number: in the order of starting.
        session: of which run of the campaign.
        key: what it measures.
        attempt: 0 for the first one.
        is_cold: whether nothing of this configuration and component had run before
            since the machine was started.
        token: marks its processes.
        started: when.
        boot: of the machine.
        ended: when; None where it was lost in flight.
        outcome: None where it was lost in flight.
    """

    number: int
    session: int
    key: TrialKey
    attempt: int
    is_cold: bool
    token: str
    started: datetime
    boot: str
    ended: datetime | None
    outcome: TrialOutcome | None

    @property
    def status(self) -> TrialStatus | None:
        """How it ended; None where it was lost in flight."""
        return None if self.outcome is None else self.outcome.status

    @property
    def is_data(self) -> bool:
        """Whether its run time counts."""
        return self.status in (TrialStatus.OK, TrialStatus.NOISY)

    @property
    def is_failure(self) -> bool:
        """Whether it ran and did not end well."""
        return self.outcome is not None and self.outcome.status.is_failure

    @property
    def wall_seconds(self) -> float | None:
        """Its wall time; None where it is not known."""
        return None if self.outcome is None else self.outcome.wall_seconds


class Journal(Closing):
    """The trials of one campaign; use it as a context manager."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: Path, campaign_id: str) -> Self:
        """Open the journal of a campaign, creating the file where there is none.

        Raises:
            StorageError: it cannot be read or written, or is not that campaign's journal.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"cannot write {path.parent}: {error.strerror}") from error
        connection = open_database(path, lambda opened: _check_or_create(opened, path, campaign_id))
        connection.execute("PRAGMA foreign_keys = ON")
        connection.row_factory = sqlite3.Row
        return cls(connection, path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def locked(self) -> AbstractContextManager[None]:
        """Keep other programs from running this campaign; `InUseError` where one does."""
        return process_lock(self._path.with_suffix(".lock"), f"campaign {self._path.stem}")

    def begin_session(self, machine: Machine, *, boot: str, at: datetime) -> int:
        """Write that a run of the campaign begins; its number."""
        row = (_micros(at), boot, orjson.dumps(machine).decode())
        with clear_errors(self._path), transaction(self._connection):
            written = self._connection.execute(
                "INSERT INTO session (began_unix_us, boot, machine) VALUES (?, ?, ?)", row
            )
            return int(written.lastrowid or 0)

    def begin(
        self, key: TrialKey, *, session: int, attempt: int, is_cold: bool, token: str, at: datetime
    ) -> int:
        """Write that a trial starts, before it does; its number."""
        row = (session, key.configuration, key.component, key.repetition, attempt)
        row += (int(key.is_warmup), int(is_cold), token, _micros(at))  # type: ignore[assignment]
        with clear_errors(self._path), transaction(self._connection):
            written = self._connection.execute(
                "INSERT INTO started VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
            )
            return int(written.lastrowid or 0)

    def end(self, number: int, outcome: TrialOutcome, *, at: datetime) -> None:
        """Write how a trial ended; from now on it is not repeated."""
        row = asdict(outcome)
        row |= row.pop("resources") | {
            "number": number,
            "ended_unix_us": _micros(at),
            "reason": outcome.reason.encode(errors="replace").decode(),
            "spans": orjson.dumps(row["spans"]).decode(),
        }
        with clear_errors(self._path), transaction(self._connection):
            self._connection.execute(_END, row)

    def trials(self) -> tuple[JournalTrial, ...]:
        """All trials that were started, in that order."""
        with clear_errors(self._path):
            rows = self._connection.execute(f"{_SELECT} ORDER BY number").fetchall()
        return tuple(_trial(row, self._path) for row in rows)

    def trial(self, number: int) -> JournalTrial:
        """The trial of that number."""
        with clear_errors(self._path):
            row = self._connection.execute(f"{_SELECT} WHERE number = ?", (number,)).fetchone()
        return _trial(row, self._path)

    def sessions(self) -> tuple[Session, ...]:
        """All runs of the campaign, in their order."""
        with clear_errors(self._path):
            rows = self._connection.execute("SELECT * FROM session ORDER BY session").fetchall()
        return tuple(
            Session(number, _moment(began), boot, Machine(**orjson.loads(machine)))
            for number, began, boot, machine in rows
        )


def _check_or_create(connection: sqlite3.Connection, path: Path, campaign_id: str) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if (application, version, tables) == (0, 0, 0):
        for table in _TABLES:
            connection.execute(table)
        connection.execute("INSERT INTO campaign VALUES (?)", (campaign_id,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return
    if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
        raise StorageError(
            f"{path} is not a journal of a campaign that this fedperf can read; move it away "
            "(nothing was changed)"
        )
    (found,) = connection.execute("SELECT campaign_id FROM campaign").fetchone()
    if found != campaign_id:
        raise StorageError(f"{path} belongs to another campaign; move it away")


def _trial(row: sqlite3.Row, path: Path) -> JournalTrial:
    try:
        return JournalTrial(
            number=row["number"],
            session=row["session"],
            key=TrialKey(row["configuration"], row["component"], row["repetition"]),
            attempt=row["attempt"],
            is_cold=bool(row["is_cold"]),
            token=row["token"],
            started=_moment(row["started_unix_us"]),
            boot=row["boot"],
            ended=None if row["status"] is None else _moment(row["ended_unix_us"]),
            outcome=None if row["status"] is None else _outcome(row),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path}: trial {row['number']} cannot be read ({error})") from error


def _outcome(row: sqlite3.Row) -> TrialOutcome:
    return TrialOutcome(
        status=TrialStatus(row["status"]),
        reason=row["reason"],
        wall_seconds=row["wall_seconds"],
        startup_seconds=row["startup_seconds"],
        resources=ResourceUse(**{name: row[name] for name in _RESOURCES}),
        spans=tuple(
            ComponentSpan(**each | {"resources": ResourceUse(**each["resources"])})
            for each in orjson.loads(row["spans"])
        ),
        foreign_cores=row["foreign_cores"],
        stolen_cores=row["stolen_cores"],
        load_before=row["load_before"],
        load_after=row["load_after"],
    )


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
