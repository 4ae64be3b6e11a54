"""Finished sessions as executions, by the readers that users have, and as one file.

What a session leaves is kept as the engines wrote it and read anew whenever it is asked for,
so that a reader that learns more needs no new measurement. Of an execution, the text that it
came from is the workload, its id begins with its session: both can be left out by name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median_low

import pyarrow as pa
from pyarrow import parquet

from fedperf_client.sources import SkippedRecord, find_sources, open_source
from fedperf_client.sources.duckdb.profile_file import ProfileFile
from fedperf_client.sources.history_file import to_table, write_table
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.duckdb_session import profile_path
from fedperf_simulations.corpus.sql.sessions import (
    SessionRecord,
    SqlSession,
    SqlStep,
    StepRecord,
    read_record,
    read_session,
)
from fedperf_simulations.corpus.sql.spark_session import EVENTS

BESIDE_QUERIES = "a job beside queries"
NO_PROFILE = "no profile: answered from statistics, or called off"


@dataclass(frozen=True, slots=True)
class SqlRun:
    """One execution and where it came from.

    Attributes:
        execution: as the reader gives it, named by its session and its text.
        step: what it is a part of.
        host_busy_cores: foreign load during the step.
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
        for found in read(directory, session, record):
            if isinstance(found, SkippedRecord):
                self.skipped[found.reason] += 1
            else:
                self.runs.append(found)


def session_of(execution: Execution) -> str:
    """The name of the session that an execution ran in."""
    return "-".join(execution.execution_id.split("-")[:2])


def _of_duckdb(
    directory: Path, session: SqlSession, record: SessionRecord
) -> Iterator[SqlRun | SkippedRecord]:
    cluster = ClusterConfig(1, session.threads, session.memory_bytes, record.machine_speed)
    for position, (step, kept) in enumerate(zip(session.steps, record.steps, strict=False)):
        name = f"{session.name}-{position:03d}"
        paths = [profile_path(directory, position, run) for run in range(kept.done)]
        there = [found for path in paths if path.exists() for found in ProfileFile(path).read()]
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
            finished_at=_moment(kept.ended_at),
        )
        busy = kept.host_busy_cores
        yield SqlRun(execution, step, busy, tuple(seconds) if step.runs > 1 else ())


def _of_spark(
    directory: Path, session: SqlSession, record: SessionRecord
) -> Iterator[SqlRun | SkippedRecord]:
    """Each execution belongs to the step in whose time it began; what Spark counts stays."""
    numbers: Counter[int] = Counter()
    for place, _ in find_sources([directory / EVENTS], []):
        for found in open_source(place).read():
            if isinstance(found, SkippedRecord):
                yield found
                continue
            if found.origin.record.startswith("job "):
                yield SkippedRecord(found.origin.record, BESIDE_QUERIES)
                continue
            position = _step_at(found, record.steps)
            if position is None:
                yield SkippedRecord(found.execution_id, "before or after all steps")
                continue
            name = f"{session.name}-{position:03d}-{numbers[position]}"
            numbers[position] += 1
            step = session.steps[position]
            execution = replace(
                found,
                execution_id=name,
                workload=step.family,
                cluster=replace(found.cluster, machine_speed=record.machine_speed),
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
    """Write runs as one history file; sessions that a file there has, and these runs not, stay.

    Beyond the columns of a history: `session`, `table_rows`, `storage`, `outcome`,
    `host_busy_cores` and `run_seconds`.

    Raises:
        StorageError: it cannot be written.
    """
    # Similar plans side by side compress to a third.
    kept = sorted(runs, key=lambda run: (run.execution.workload, run.execution.execution_id))
    table = to_table((run.execution for run in kept), named=False)
    label = pa.dictionary(pa.int16(), pa.string())
    more: Mapping[str, tuple[pa.DataType, list[object]]] = {
        "session": (label, [session_of(run.execution) for run in kept]),
        "table_rows": (pa.int64(), [run.step.tables.rows for run in kept]),
        "storage": (label, [str(run.step.tables.storage) for run in kept]),
        "outcome": (label, [str(run.step.outcome) for run in kept]),
        "host_busy_cores": (pa.float32(), [run.host_busy_cores for run in kept]),
        "run_seconds": (pa.list_(pa.float32()), [list(run.run_seconds) for run in kept]),
    }
    for name, (kind, values) in more.items():
        table = table.append_column(name, pa.array(values, kind))
    write_table(path, _with_others(table, path), metadata=provenance, compression_level=19)


def sessions_in(path: Path) -> frozenset[str]:
    """Names of the sessions that a file of `write_runs` holds; none where there is no file."""
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
