"""All sessions of a design: measured one after the other, kept, and joined into one file.

Each runs in a process of its own. A session that ended is renamed into its place in one step
with the engine's own logs, so that a killed command continues with the next one; a session
that failed as a whole is taken again by the next call. Refused: a directory that another
design was measured in.

Finished sessions are read as executions by the readers that users have. The engines' own records
are stored and read anew each time, so that a better reader needs no new measurement. The workload
of an execution is its SQL text, and its id begins with its session, so both can be left out by
name.
"""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median_low

import orjson
import pyarrow as pa
from pyarrow import parquet

from fedperf_client.sources import SkippedRecord, find_sources, open_source
from fedperf_client.sources.duckdb.profile_file import ProfileFile
from fedperf_client.sources.history_file import to_table, write_table
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql import duckdb_session, spark_session
from fedperf_simulations.corpus.sql.duckdb_session import profile_path
from fedperf_simulations.corpus.sql.session_draws import SessionDesign
from fedperf_simulations.corpus.sql.sessions import (
    LONGEST_SECONDS,
    RECORD_FILE,
    SessionRecord,
    SqlSession,
    SqlStep,
    StepRecord,
    read_record,
    read_session,
    write_session,
)
from fedperf_simulations.corpus.sql.spark_session import EVENTS
from fedperf_simulations.corpus.sql.tables import prepare_tables
from fedperf_simulations.harness.terminal import bar

MIXED_WITH_QUERIES = "a job beside queries"
NO_PROFILE = "no profile: answered from statistics, or called off"


@dataclass(frozen=True, slots=True)
class SqlRun:
    """One execution and where it came from.

    Attributes:
        execution: as the reader gives it, named by its session and its text.
        step: what it is a part of.
        host_busy_cores: interference during the step.
        run_seconds: of all runs of the step, of which this is the median.
    """

    execution: Execution
    step: SqlStep
    host_busy_cores: float
    run_seconds: tuple[float, ...] = ()


@dataclass(slots=True)
class SessionReading:
    """The executions that were read of sessions, and what was not read.

    Attributes:
        runs: all executions.
        skipped: how many records gave none, by reason.
        failed_steps: how many steps ended with an error, by its kind.
    """

    runs: list[SqlRun] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    failed_steps: Counter[str] = field(default_factory=Counter)

    def take(self, directory: Path) -> None:
        """Read a finished session's directory."""
        session, record = read_session(directory), read_record(directory)
        self.failed_steps.update(each.error for each in record.steps if each.error)
        read = _of_spark if session.engine is Platform.SPARK else _of_duckdb
        for run in read(directory, session, record):
            if isinstance(run, SkippedRecord):
                self.skipped[run.reason] += 1
            else:
                self.runs.append(run)


def session_of(execution: Execution) -> str:
    """Return the name of the session that an execution ran in."""
    return "-".join(execution.execution_id.split("-")[:2])


def _of_duckdb(
    directory: Path, session: SqlSession, record: SessionRecord
) -> Iterator[SqlRun | SkippedRecord]:
    cluster = ClusterConfig(1, session.threads, session.memory_bytes, record.machine_speed)
    for position, (step, result) in enumerate(zip(session.steps, record.steps, strict=False)):
        name = f"{session.name}-{position:03d}"
        paths = [profile_path(directory, position, run) for run in range(result.done)]
        there = [profile for path in paths if path.exists() for profile in ProfileFile(path).read()]
        yield from (each for each in there if isinstance(each, SkippedRecord))
        read = [each for each in there if isinstance(each, Execution)]
        if not there:
            yield SkippedRecord(name, NO_PROFILE)
        if not read:
            continue
        seconds = [each.runtime_seconds for each in read]
        middle = read[seconds.index(median_low(seconds))]
        execution = replace(
            middle,
            execution_id=name,
            workload=step.family,
            cluster=cluster,
            finished_at=_moment(result.ended_at),
        )
        busy = result.host_busy_cores
        yield SqlRun(execution, step, busy, tuple(seconds) if step.runs > 1 else ())


def _of_spark(
    directory: Path, session: SqlSession, record: SessionRecord
) -> Iterator[SqlRun | SkippedRecord]:
    """Yield each execution belongs to the step in whose time it began. What Spark counts stays."""
    numbers: Counter[int] = Counter()
    for place, _ in find_sources([directory / EVENTS], []):
        for run in open_source(place).read():
            if isinstance(run, SkippedRecord):
                yield run
                continue
            if run.origin.record.startswith("job "):
                yield SkippedRecord(run.origin.record, MIXED_WITH_QUERIES)
                continue
            position = _step_at(run, record.steps)
            if position is None:
                yield SkippedRecord(run.execution_id, "before or after all steps")
                continue
            name = f"{session.name}-{position:03d}-{numbers[position]}"
            numbers[position] += 1
            step = session.steps[position]
            execution = replace(
                run,
                execution_id=name,
                workload=step.family,
                cluster=replace(run.cluster, machine_speed=record.machine_speed),
            )
            yield SqlRun(execution, step, record.steps[position].host_busy_cores)


def _step_at(execution: Execution, steps: Sequence[StepRecord]) -> int | None:
    began = execution.finished_at.timestamp() - execution.runtime_seconds
    for position, step in enumerate(steps):
        # The log counts milliseconds, rounded down.
        if step.began_at - 0.001 <= began + 0.0005 <= step.ended_at + 0.001:
            return position
    return None


def _moment(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def write_runs(runs: Sequence[SqlRun], path: Path, *, provenance: Mapping[str, str]) -> None:
    """Write runs as one history file. Sessions that a file there has, and these runs not, stay.

    Beyond the columns of a history: `session`, `table_rows`, `storage`, `outcome`,
    `host_busy_cores` and `run_seconds`.

    Raises:
        StorageError: it cannot be written.
    """
    # Similar plans side by side compress to a third.
    ordered = sorted(runs, key=lambda run: (run.execution.workload, run.execution.execution_id))
    table = to_table((run.execution for run in ordered), named=False)
    label = pa.dictionary(pa.int16(), pa.string())
    more: Mapping[str, tuple[pa.DataType, list[object]]] = {
        "session": (label, [session_of(run.execution) for run in ordered]),
        "table_rows": (pa.int64(), [run.step.tables.rows for run in ordered]),
        "storage": (label, [str(run.step.tables.storage) for run in ordered]),
        "outcome": (label, [str(run.step.outcome) for run in ordered]),
        "host_busy_cores": (pa.float32(), [run.host_busy_cores for run in ordered]),
        "run_seconds": (pa.list_(pa.float32()), [list(run.run_seconds) for run in ordered]),
    }
    for name, (kind, values) in more.items():
        table = table.append_column(name, pa.array(values, kind))
    write_table(path, _with_others(table, path), metadata=provenance, compression_level=19)


def sessions_in(path: Path) -> frozenset[str]:
    """Names of the sessions that a file of `write_runs` holds. None where there is no file."""
    if not path.exists():
        return frozenset()
    return frozenset(parquet.read_table(path, columns=["session"])["session"].to_pylist())


def _with_others(table: pa.Table, path: Path) -> pa.Table:
    """Also the sessions of the file that the table has nothing of, in the same order."""
    if not path.exists():
        return table
    before = parquet.read_table(path).cast(table.schema)
    here = set(table["session"].to_pylist())
    others = before.filter(pa.array([each not in here for each in before["session"].to_pylist()]))
    both = pa.concat_tables([table, others]).unify_dictionaries()
    return both.sort_by([("workload", "ascending"), ("execution_id", "ascending")])


_PROGRAMS = {
    Platform.DUCKDB: duckdb_session.__name__,
    Platform.SPARK: spark_session.__name__,
}
_STARTING_SECONDS = 600.0
DISTURBED_CORES = 0.3
_SAID = "said.txt"
_DESIGN_FILE = "design.json"


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The contents of the sessions after a call of `measure_sessions`.

    Attributes:
        sessions: of the design.
        failed: of them without a record.
        executions: that were read.
        disturbed: of them with more than `DISTURBED_CORES` of interference.
        failed_steps: steps that ended with an error, by its kind.
        skipped: records that gave no execution, by reason.
    """

    sessions: int
    failed: int
    executions: int
    disturbed: int
    failed_steps: Mapping[str, int]
    skipped: Mapping[str, int]


def measure_sessions(design: SessionDesign, out: Path, *, measured: Collection[str] = ()) -> None:
    """Run every session of the design that `out` lacks. Safe to kill and repeat.

    Args:
        design: the sessions.
        out: where the engines' own logs are kept.
        measured: sessions that were measured elsewhere and are not run again.

    Raises:
        ConfigurationError: another design was measured there.
    """
    _require_design(design, out)
    with bar(f"{design.kind} sessions", design.count) as advance:
        for session in design.sessions():
            if session.name not in measured and not (out / session.name).exists():
                for tables in session.tables:
                    prepare_tables(tables, out.parent / "data")
                _run(session, out)
            advance(session.name)


def join_sessions(
    design: SessionDesign, out: Path, path: Path, *, provenance: Mapping[str, str]
) -> SessionSummary:
    """Read all sessions that were finished and write their executions as one file.

    Sessions that a file at `path` holds and that are not in `out`, such as those that another
    machine measured, stay there.

    Raises:
        InvalidInputError: there are none.
        StorageError: the file cannot be written.
    """
    reading, failed, sessions = SessionReading(), 0, sessions_in(path)
    for session in design.sessions():
        if (out / session.name / RECORD_FILE).exists():
            reading.take(out / session.name)
        elif session.name not in sessions:
            failed += 1
    if not reading.runs:
        raise InvalidInputError(f"{out} holds no session with an execution")
    settings = orjson.dumps(asdict(design)).decode()
    write_runs(reading.runs, path, provenance={"settings": settings, **provenance})
    return SessionSummary(
        sessions=design.count,
        failed=failed,
        executions=len(reading.runs),
        disturbed=sum(run.host_busy_cores > DISTURBED_CORES for run in reading.runs),
        failed_steps=dict(reading.failed_steps),
        skipped=dict(reading.skipped),
    )


def _require_design(design: SessionDesign, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = out / _DESIGN_FILE
    # More sessions of the same draw may follow.
    expected = orjson.dumps({**asdict(design), "count": None})
    if not file.exists():
        file.write_bytes(expected)
    elif file.read_bytes() != expected:
        raise ConfigurationError(
            f"{out} was begun with another design ({file.read_text(encoding='utf-8')}); "
            "repeat it or name another directory"
        )


def _run(session: SqlSession, out: Path) -> None:
    """Leave the session's directory complete, or with its process's output and no record."""
    unfinished = out / f"{session.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    write_session(session, unfinished)
    data = (out.parent / "data").resolve()
    command = [
        sys.executable,
        "-m",
        _PROGRAMS[session.engine],
        str(unfinished.resolve()),
        str(data),
    ]
    patience = _STARTING_SECONDS + LONGEST_SECONDS * sum(each.runs for each in session.steps)
    with (unfinished / _SAID).open("wb") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=output, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            return
    if done.returncode == 0:
        unfinished.replace(out / session.name)
