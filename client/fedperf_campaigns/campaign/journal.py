"""The journal of a campaign: every trial of every run, in one SQLite file.

The journal is append-only. A trial is written when it starts and once more when it has ended, both
synced to disk before anything else happens. Nothing is changed or removed. So a killed campaign
loses the trial in flight and nothing else, and the trials without an outcome are left to do. A
trial is identified by configuration, component, repetition and attempt. Warm-ups have repetitions
below 0.

A file that is not a journal, or of another campaign or schema, is refused. One program at a time
may run a campaign: `locked` holds a lock that ends with its process.

An unknown figure of an outcome, such as the memory of a function on another machine, is None and
never 0. `noisy` is a successful trial on a disturbed machine: it is data, but flagged. `skipped` is
a trial that never ran, which is no failure. `TrialHistory` decides which trials are settled, which
count, and how much of the budget is spent.
"""

import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

import orjson

from fedperf_campaigns.campaign.definition import WHOLE
from fedperf_client.home.sqlite_file import clear_errors, open_database, transaction
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import Closing, process_lock


class TrialStatus(StrEnum):
    """The outcome of a trial."""

    OK = "ok"
    WARMUP = "warmup"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SKIPPED = "skipped"
    NOISY = "noisy"

    @property
    def is_data(self) -> bool:
        """Return whether its run time counts."""
        return self in (TrialStatus.OK, TrialStatus.NOISY)

    @property
    def is_failure(self) -> bool:
        """Return whether it ran and did not end well."""
        return self in (TrialStatus.FAILED, TrialStatus.TIMEOUT, TrialStatus.OOM)


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The resources of a trial or a component; None where they are unknown."""

    cpu_seconds: float | None = None  # of all its processes
    # Resident memory at its peak; of a trial the sum over its process tree, as sampled, of a
    # component its largest process.
    peak_bytes: int | None = None
    read_bytes: int | None = None  # requested, page cache included
    written_bytes: int | None = None  # handed to the system
    context_switches: int | None = None  # of all its processes


@dataclass(frozen=True, slots=True)
class ComponentSpan:
    """One component within a trial."""

    component: str  # its name
    start_seconds: float  # after the trial's start
    end_seconds: float  # after the trial's start
    resources: ResourceUse = ResourceUse()  # what it used
    # How long a remote function's response was under way or waited for.
    queue_seconds: float | None = None
    compute_seconds: float | None = None  # the compute time that the function reports


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial."""

    status: TrialStatus  # one of `TrialStatus`
    reason: str = ""  # why it did not end well, or why it is flagged; local text, never released
    # From the first component's start to the last one's end; of a trial that was stopped until
    # then, None where it did not begin.
    wall_seconds: float | None = None
    startup_seconds: float | None = None  # importing and connecting before that
    resources: ResourceUse = ResourceUse()  # of the whole trial
    spans: tuple[ComponentSpan, ...] = ()  # of its components that began and ended
    # Cores that others kept busy meanwhile, stolen time included.
    foreign_cores: float | None = None
    stolen_cores: float | None = None  # cores that the machine's own host took
    load_before: float | None = None  # load average of the last minute, when it began
    load_after: float | None = None  # and when it ended


APPLICATION_ID = 0x66704361  # marks the file as a journal of a campaign ("fpCa")
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
ended VALUES (
    :number, :ended_unix_us, :status, :reason, :wall_seconds, :startup_seconds, :cpu_seconds,
    :peak_bytes, :read_bytes, :written_bytes, :context_switches, :foreign_cores, :stolen_cores,
    :load_before, :load_after, :spans
)
"""
RESOURCES = tuple(each.name for each in fields(ResourceUse))
_FIGURES = tuple(
    each.name for each in fields(TrialOutcome) if each.name not in {"status", "resources", "spans"}
)


@dataclass(frozen=True, slots=True)
class TrialKey:
    """The target of a trial: a configuration's number, a component or the whole, a repetition."""

    configuration: int
    component: str
    repetition: int

    @property
    def is_warmup(self) -> bool:
        """Return whether it does not count."""
        return self.repetition < 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and environment of a run of a campaign."""

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
    """A trial that was started."""

    number: int  # in the order of starting
    session: int  # of which run of the campaign
    key: TrialKey  # what it measures
    attempt: int  # 0 for the first one
    # Whether nothing of this configuration and component had run before since the machine was
    # started.
    is_cold: bool
    token: str  # marks its processes
    started: datetime  # when
    boot: str  # of the machine
    ended: datetime | None  # when; None where it was lost in flight
    outcome: TrialOutcome | None  # None where it was lost in flight

    @property
    def status(self) -> TrialStatus | None:
        """Return how the trial ended; None where it was lost in flight."""
        return None if self.outcome is None else self.outcome.status

    @property
    def is_data(self) -> bool:
        """Return whether its run time counts."""
        return self.outcome is not None and self.outcome.status.is_data

    @property
    def is_failure(self) -> bool:
        """Return whether it ran and did not end well."""
        return self.outcome is not None and self.outcome.status.is_failure

    @property
    def wall_seconds(self) -> float | None:
        """Return its wall time; None where it is unknown."""
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
        """Record that a run of the campaign begins, and return its number."""
        row = (_micros(at), boot, orjson.dumps(machine).decode())
        return self._insert("session (began_unix_us, boot, machine) VALUES (?, ?, ?)", row)

    def begin(
        self, key: TrialKey, *, session: int, attempt: int, is_cold: bool, token: str, at: datetime
    ) -> int:
        """Record that a trial starts, before it does, and return its number."""
        row = (session, *astuple(key), attempt, key.is_warmup, is_cold, token, _micros(at))
        return self._insert("started VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def end(self, number: int, outcome: TrialOutcome, *, at: datetime) -> None:
        """Record how a trial ended. From now on it is not repeated."""
        row = asdict(outcome)
        row |= row.pop("resources") | {
            "number": number,
            "ended_unix_us": _micros(at),
            "reason": outcome.reason.encode(errors="replace").decode(),
            "spans": orjson.dumps(row["spans"]).decode(),
        }
        self._insert(_END, row)

    def trials(self) -> tuple[JournalTrial, ...]:
        """Return all trials that were started, in that order."""
        return tuple(_trial(row, self._path) for row in self._rows(f"{_SELECT} ORDER BY number"))

    def trial(self, number: int) -> JournalTrial:
        """Return the trial of that number."""
        [row] = self._rows(f"{_SELECT} WHERE number = ?", number)
        return _trial(row, self._path)

    def sessions(self) -> tuple[Session, ...]:
        """Return all runs of the campaign, in their order."""
        return tuple(
            Session(number, _timestamp(began), boot, Machine(**orjson.loads(machine)))
            for number, began, boot, machine in self._rows("SELECT * FROM session ORDER BY session")
        )

    def _insert(self, what: str, row: Sequence[object] | Mapping[str, object]) -> int:
        with clear_errors(self._path), transaction(self._connection):
            return self._connection.execute(f"INSERT INTO {what}", row).lastrowid or 0

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with clear_errors(self._path):
            return self._connection.execute(query, values).fetchall()


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
    (stored_id,) = connection.execute("SELECT campaign_id FROM campaign").fetchone()
    if stored_id != campaign_id:
        raise StorageError(f"{path} belongs to another campaign; move it away")


def _trial(row: sqlite3.Row, path: Path) -> JournalTrial:
    try:
        ended = row["ended_unix_us"]
        return JournalTrial(
            number=row["number"],
            session=row["session"],
            key=TrialKey(row["configuration"], row["component"], row["repetition"]),
            attempt=row["attempt"],
            is_cold=bool(row["is_cold"]),
            token=row["token"],
            started=_timestamp(row["started_unix_us"]),
            boot=row["boot"],
            ended=None if ended is None else _timestamp(ended),
            outcome=None
            if ended is None
            else TrialOutcome(
                TrialStatus(row["status"]),
                **{name: row[name] for name in _FIGURES},
                resources=ResourceUse(**{name: row[name] for name in RESOURCES}),
                spans=tuple(
                    ComponentSpan(**each | {"resources": ResourceUse(**each["resources"])})
                    for each in orjson.loads(row["spans"])
                ),
            ),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path}: trial {row['number']} cannot be read ({error})") from error


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


def _timestamp(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


_NOISY_IS_ENOUGH = 2  # A noisy trial is repeated once; a second noisy one is accepted
_NOISY_IN_A_ROW = 3  # after so many noisy trials in a row, they are no longer repeated


class TrialHistory:
    """The trials of a campaign by their keys."""

    def __init__(self, trials: Iterable[JournalTrial], *, retries: int) -> None:
        """Begin with what the journal holds."""
        self._retries = retries
        self._trials: dict[TrialKey, list[JournalTrial]] = defaultdict(list)
        self._noisy_in_a_row = 0
        self._not_redone: set[TrialKey] = set()
        self._booted: set[tuple[str, int, str]] = set()
        self.spent_trials = 0
        self.spent_seconds = 0.0
        for each in trials:
            self.add(each)

    def add(self, trial: JournalTrial) -> None:
        """Add a trial that was started, with its outcome unless it was lost in flight."""
        key = trial.key
        self._trials[key].append(trial)
        self._booted.add((trial.boot, key.configuration, key.component))
        if trial.outcome is not None:
            is_noisy = trial.status is TrialStatus.NOISY
            self._noisy_in_a_row = self._noisy_in_a_row + 1 if is_noisy else 0
            if self._noisy_in_a_row >= _NOISY_IN_A_ROW:
                self._not_redone.add(key)
        if trial.ended is not None:
            self.spent_trials += 1
            # A clock that was set back in between gives no seconds back.
            self.spent_seconds += max(0.0, (trial.ended - trial.started).total_seconds())

    def attempts(self, key: TrialKey) -> int:
        """Return how often the trial was started, lost attempts included."""
        return len(self._trials.get(key, ()))

    def is_settled(self, key: TrialKey) -> bool:
        """Return whether the trial succeeded or has used all its attempts."""
        statuses = self._statuses(key)
        if TrialStatus.OK in statuses or TrialStatus.WARMUP in statuses:
            return True
        if key in self._not_redone:
            return True
        noisy = statuses.count(TrialStatus.NOISY)
        return noisy >= _NOISY_IS_ENOUGH or len(statuses) > self._retries

    def has_failed(self, key: TrialKey) -> bool:
        """Return whether it failed for good."""
        return self.is_settled(key) and all(each.is_failure for each in self._statuses(key))

    def is_cold(self, key: TrialKey, boot: str) -> bool:
        """Return whether its configuration and component have not run since the machine started."""
        return (boot, key.configuration, key.component) not in self._booted

    def counting(self, key: TrialKey) -> JournalTrial | None:
        """Return the successful attempt, or else the noisy one with the least interference."""
        trials = [trial for trial in self._trials.get(key, ()) if trial.is_data]
        return min(trials, key=_disturbance, default=None)

    def repeats(
        self, configuration: int, component: str, repetitions: int
    ) -> tuple[JournalTrial, ...]:
        """Return the trials that count, one for each repetition that has one."""
        keys = (TrialKey(configuration, component, n) for n in range(repetitions))
        return tuple(each for each in map(self.counting, keys) if each is not None)

    def median_seconds(
        self, configuration: int, targets: tuple[str, ...], repetitions: int
    ) -> float | None:
        """Return the median of the whole job, or else the sum of the components' medians."""
        parts = (WHOLE,) if WHOLE in targets else targets
        medians = []
        for target in parts:
            repeats = self.repeats(configuration, target, repetitions)
            seconds = [each.wall_seconds for each in repeats if each.wall_seconds is not None]
            if not seconds:
                return None
            medians.append(statistics.median(seconds))
        return sum(medians)

    def _statuses(self, key: TrialKey) -> list[TrialStatus]:
        return [trial.status for trial in self._trials.get(key, ()) if trial.status is not None]


def _disturbance(trial: JournalTrial) -> tuple[bool, float, int]:
    foreign = (trial.outcome and trial.outcome.foreign_cores) or 0.0
    return trial.status is TrialStatus.NOISY, foreign, trial.number
