"""A session of SQL: an engine with fixed resources and settings, and the steps that it takes.

A session is data, a function of its kind, number and seed (`session_draws`). A process of its own
carries it out (`duckdb_session`, `spark_session`) and leaves a record of each step. `StepClock`
takes the steps and records when each ran, which others ran at that time, and how it ended.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from fedperf_client.workers.machine import InterferenceMonitor
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.tables import TableSet

SESSION_FILE, RECORD_FILE = "session.json", "record.json"
LONGEST_SECONDS = 120.0
"""A query that takes longer is called off."""

FILE_OF_ENTRIES = "{entries}"
"""Stands in a text for the path of that table."""


@unique
class SessionKind(StrEnum):
    """A set of sessions, measured and kept together."""

    SPARK = "spark"
    DUCKDB = "duckdb"
    HELD_OUT = "judged"


@unique
class Outcome(StrEnum):
    """The outcome of a query: the place its rows go to."""

    COLLECT = "collect"
    """The rows are returned to the calling program."""

    COMMAND = "command"
    """A statement that gives none worth having."""

    TABLE = "table"
    """A temporary table of DuckDB."""

    DISCARD = "discard"
    """Spark's sink that keeps nothing."""

    PANDAS = "pandas"
    """Spark gives the rows of each store, by its column `g`, to a function of Python."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One query of a session.

    Attributes:
        family: which text it came from; its executions carry it as their workload.
        text: the SQL.
        tables: that it reads.
        outcome: what is done with its rows.
        runs: how often it runs in a row; the median counts.
    """

    family: str
    text: str
    tables: TableSet
    outcome: Outcome = Outcome.COLLECT
    runs: int = 1


@dataclass(frozen=True, slots=True)
class SqlSession:
    """One session.

    Attributes:
        kind: the set that it belongs to.
        number: its number there.
        engine: DuckDB or Spark.
        threads: that it may use.
        memory_bytes: its cap: DuckDB's memory limit, the heap of Spark's JVM.
        steps: in their order.
        settings: of the engine beyond these, as it calls them.
    """

    kind: SessionKind
    number: int
    engine: Platform
    threads: int
    memory_bytes: int
    steps: tuple[SqlStep, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The beginning of its executions' ids, and its directory."""
        return f"{self.kind}-{self.number:03d}"

    @property
    def tables(self) -> tuple[TableSet, ...]:
        """All tables that it reads, sorted."""
        return tuple(sorted({step.tables for step in self.steps}))


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of one step.

    Attributes:
        began_at: seconds since 1970.
        ended_at: as `began_at`.
        host_busy_cores: interference meanwhile.
        done: runs of it that ended well.
        error: the kind of error that ended it; empty for none.
    """

    began_at: float
    ended_at: float
    host_busy_cores: float
    done: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of a session's process, stored with the engine's own logs.

    Attributes:
        machine_speed: of one core, as `ClusterConfig` has it, before the session.
        steps: those that were begun, in their order; an engine that died took no more.
    """

    machine_speed: float
    steps: tuple[StepRecord, ...]


_SESSIONS = TypeAdapter(SqlSession)
_RECORDS = TypeAdapter(SessionRecord)


def write_session(session: SqlSession, directory: Path) -> None:
    """Write what the process of a session reads."""
    (directory / SESSION_FILE).write_bytes(_SESSIONS.dump_json(session))


def read_session(directory: Path) -> SqlSession:
    """Return the session of a directory."""
    return _SESSIONS.validate_json((directory / SESSION_FILE).read_bytes())


def write_record(record: SessionRecord, directory: Path) -> None:
    """Write what a session's process found out."""
    (directory / RECORD_FILE).write_bytes(_RECORDS.dump_json(record))


def read_record(directory: Path) -> SessionRecord:
    """Return the record of a finished session."""
    return _RECORDS.validate_json((directory / RECORD_FILE).read_bytes())


def records_of(
    session: SqlSession,
    take: Callable[[int, SqlStep, int], None],
    call_off: Callable[[], None],
    *,
    is_alive: Callable[[], bool] = lambda: True,
    longest_seconds: float = LONGEST_SECONDS,
) -> Iterator[StepRecord]:
    """Take every step, run by run, while the engine lives. A step that fails ends alone.

    Args:
        session: whose steps.
        take: carries out the run of a step: its position, the step, the number of the run.
        call_off: ends what runs in another thread.
        is_alive: whether the engine can take another step.
        longest_seconds: after which a run is called off.
    """
    watch = InterferenceMonitor(_own_seconds)
    for position, step in enumerate(session.steps):
        watch.begin()
        began, done, error = time.time(), 0, ""
        try:
            for run in range(step.runs):
                with _time_limit(longest_seconds, call_off):
                    take(position, step, run)
                done += 1
        except Exception as failure:  # any error of an engine
            error = type(failure).__name__
        ended = time.time()
        busy = watch.busy_cores_since_begin()
        yield StepRecord(began, ended, busy, done, error)
        if not is_alive():
            return


@contextmanager
def _time_limit(seconds: float, call_off: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, call_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _own_seconds() -> float:
    """CPU time of this process and of all below it."""
    root = psutil.Process(os.getpid())
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended: its parent counts it
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
