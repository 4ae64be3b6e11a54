"""The log of a measured set: one JSON line per run, appended as it comes.

A torn last line is dropped, a log of other settings is refused. A task that was
disturbed may have several lines; the least disturbed one counts. `compact` writes the
lines that count as one history file (`fedperf_client.sources.history_file`) with a few
more columns and their provenance.
"""

import base64
import platform as machine_platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum, unique
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import orjson

from fedperf_client.sources.history_file import to_table, write_table
from fedperf_client.workers.machine import machine_name
from fedperf_engines.platforms.program import Program, to_json
from fedperf_engines.trials.profiler import Trial
from fedperf_engines.workloads.families import Family
from fedperf_shared.errors import ConfigurationError, InvalidInputError, StorageError
from fedperf_shared.execution import ClusterConfig, Execution, ExecutionStatus, Measurement
from fedperf_shared.wire.codec import decode_plan, encode_plan
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform

LOG_FORMAT = 1
ENGINE_PACKAGES = ("duckdb", "polars", "pandas", "scikit-learn", "scipy", "numpy", "pyarrow")

Record = dict[str, Any]
"""One line: see `record_of`."""


@unique
class Role(StrEnum):
    """Why a task is run."""

    DRAWN = "drawn"
    COMPARISON = "comparison"
    SERIES = "series"
    EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """One run to be made.

    Attributes:
        task_id: number of the workload, and for a comparison the plan's letter.
        role: why it is run.
        family: family of the workload.
        workload: its name, the unit of privacy.
        rows: the size that was drawn.
        program: what to run.
        platforms: where.
        threads: with how many threads.
        memory_bytes: memory cap of the run; None for the machine's memory.
        runs: how often it is run in a row, at most.
    """

    task_id: str
    role: Role
    family: Family
    workload: str
    rows: int
    program: Program
    platforms: tuple[Platform, ...]
    threads: int
    memory_bytes: int | None = None
    runs: int = 1


@dataclass(frozen=True, slots=True)
class MeasuringSummary:
    """The contents of a log after a call of `measure`."""

    tasks: int
    done: int
    failed: int
    disturbed: int


class MeasuredLog:
    """The log file, begun with the settings that its tasks are drawn from."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        """Take up the log at `path`, or begin it. A torn last line is cut off.

        Raises:
            ConfigurationError: it was begun with other settings.
            InvalidInputError: the file is no log.
            StorageError: it cannot be read or written.
        """
        self.path = path
        expected = orjson.loads(_line({"format": LOG_FORMAT, "settings": dict(settings)}))
        if not path.exists():
            with _storage_errors(path):
                path.write_bytes(_line(expected))
            return
        header, _ = read_log(path)
        if header != expected:
            raise ConfigurationError(
                f"{path} was begun with other settings ({orjson.dumps(header).decode()}); "
                "repeat them or name another log"
            )
        with _storage_errors(path), path.open("r+b") as file:
            file.truncate(sum(len(line) for line in _whole_lines(file.read())))

    @contextmanager
    def appending(self) -> Iterator[IO[bytes]]:
        """Yield the open file, for `append`."""
        with _storage_errors(self.path), self.path.open("ab") as file:
            yield file

    def waiting(
        self, tasks: Sequence[MeasurementTask], *, disturbed_cores: float, repeats: int
    ) -> list[MeasurementTask]:
        """Return the tasks that were never run, or were disturbed each of at most `repeats` times.

        Tasks that were never run come first, each group in the given order.
        """
        tries: dict[str, int] = {}
        settled: set[str] = set()
        for record in read_log(self.path)[1]:
            tries[record["task"]] = tries.get(record["task"], 0) + 1
            if not record["host_busy_cores"] > disturbed_cores:
                settled.add(record["task"])
        never = [task for task in tasks if task.task_id not in tries]
        again = [
            task
            for task in tasks
            if task.task_id not in settled and 0 < tries.get(task.task_id, 0) <= repeats
        ]
        return never + again


def append(file: IO[bytes], record: Mapping[str, object]) -> None:
    """Add one line and hand it to the operating system."""
    file.write(_line(record))
    file.flush()


def least_disturbed(records: Sequence[Record]) -> list[Record]:
    """Return the record that counts for every task, with `attempts`, in the order of first runs."""
    best: dict[str, Record] = {}
    for record in records:
        previous = best.get(record["task"])
        attempts = 1 if previous is None else previous["attempts"] + 1
        if previous is None or record["host_busy_cores"] < previous["host_busy_cores"]:
            previous = record
        best[record["task"]] = {**previous, "attempts": attempts}
    return list(best.values())


def record_of(
    task: MeasurementTask,
    cluster: ClusterConfig,
    workflow: Workflow | None,
    trial: Trial | None,
    finished_at: datetime,
    *,
    reason: str = "",
    run_seconds: Sequence[float] = (),
) -> Record:
    """The kept record of a task. `workflow` and `trial` are None where rows could not be counted.

    `trial` is the run that counts, `run_seconds` are those of all runs that ended well.
    """
    plan = None
    if workflow is not None:
        plan = base64.b64encode(encode_plan(Plan(workflow, task.platforms))).decode()
    measured = None if trial is None else trial.measurement
    segments = () if trial is None else trial.segments
    return {
        "task": task.task_id,
        "role": task.role.value,
        "family": task.family.value,
        "workload": task.workload,
        "rows": task.rows,
        "program": to_json(task.program).decode(),
        "plan": plan,
        "cluster": asdict(cluster),
        "status": (ExecutionStatus.FAILED if trial is None else trial.status).name,
        "measurement": None if measured is None else asdict(measured),
        "segment_platforms": [int(each.platform) for each in segments],
        "segment_seconds": [each.seconds for each in segments],
        "run_seconds": list(run_seconds),
        "host_busy_cores": 0.0 if trial is None else trial.host_busy_cores,
        "reason": reason if trial is None else trial.reason,
        "finished_at": finished_at.isoformat(),
    }


def _line(content: Mapping[str, object]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def compact(log: Path, path: Path, *, provenance: Mapping[str, str]) -> int:
    """Write what the log holds as one history file. The number of its rows.

    Beyond the columns of a history: `role`, `family`, `drawn_rows`, `host_busy_cores`, `attempts`,
    `segment_platforms`, `segment_seconds`, `run_seconds` and `program` (JSON: these jobs are drawn
    from a public seed and belong to no organization). Execution ids are the tasks' ids. Trials
    without a plan (rows that could not be counted) are left out.

    Raises:
        InvalidInputError: the log is not a log of measurements.
        StorageError: it cannot be read, or the file not be written.
    """
    import pyarrow as pa

    header, records = read_log(log)
    usable = [r for r in least_disturbed(records) if r["plan"] is not None]
    # Similar plans side by side compress to a third.
    usable.sort(key=lambda r: (str(r["family"]), str(r["program"]), str(r["task"])))
    table = to_table((_execution(record) for record in usable), named=False)
    label = pa.dictionary(pa.int8(), pa.string())
    more: Mapping[str, tuple[pa.DataType, list[object]]] = {
        "role": (label, [r["role"] for r in usable]),
        "family": (label, [r["family"] for r in usable]),
        "drawn_rows": (pa.int64(), [r["rows"] for r in usable]),
        "host_busy_cores": (pa.float32(), [r["host_busy_cores"] for r in usable]),
        "attempts": (pa.int8(), [r["attempts"] for r in usable]),
        "segment_platforms": (pa.list_(pa.int8()), [r["segment_platforms"] for r in usable]),
        "program": (pa.string(), [r["program"] for r in usable]),
        "segment_seconds": (pa.list_(pa.float32()), [r["segment_seconds"] for r in usable]),
        "run_seconds": (pa.list_(pa.float32()), [r["run_seconds"] for r in usable]),
    }
    for name, (kind, values) in more.items():
        table = table.append_column(name, pa.array(values, kind))
    metadata = {"settings": orjson.dumps(header["settings"]).decode(), **provenance}
    write_table(path, table, metadata=metadata, compression_level=19)
    return len(usable)


def provenance(*, commit: str, measured_at: datetime) -> dict[str, str]:
    """Return the origin of a measured set: versions, processor, date, commit of the code."""
    return {
        **{f"version.{name}": version(name) for name in ENGINE_PACKAGES},
        "version.python": machine_platform.python_version(),
        "system": f"{machine_platform.system()} {machine_platform.machine()}",
        "processor": machine_name(),
        "measured_at": measured_at.isoformat(),
        "commit": commit,
    }


def summarize(log: Path, tasks: int) -> MeasuringSummary:
    """Return the summary of a log. Raises the errors of `compact`."""
    header, lines = read_log(log)
    records = least_disturbed(lines)
    limit = float(header["settings"]["disturbed_cores"])
    return MeasuringSummary(
        tasks=tasks,
        done=len(records),
        failed=sum(r["status"] != ExecutionStatus.OK.name for r in records),
        disturbed=sum(r["host_busy_cores"] > limit for r in records),
    )


def read_log(log: Path) -> tuple[Record, list[Record]]:
    """Header and whole lines of a log. Raises the errors of `compact`."""
    with _storage_errors(log):
        content = log.read_bytes()
    try:
        header, *records = [orjson.loads(line) for line in _whole_lines(content)]
    except ValueError as error:
        raise InvalidInputError(f"{log} is not a log of measurements: {error}") from error
    if not (isinstance(header, dict) and header.get("format") == LOG_FORMAT):
        raise InvalidInputError(f"{log} is not a log of measurements of format {LOG_FORMAT}")
    return header, records


def _whole_lines(content: bytes) -> list[bytes]:
    lines = content.splitlines(keepends=True)
    return [line for line in lines if line.endswith(b"\n")]


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read or write {path}: {error}") from error


def _execution(record: Mapping[str, Any]) -> Execution:
    measured = record["measurement"]
    return Execution(
        execution_id=record["task"],
        workload=record["workload"],
        plan=decode_plan(base64.b64decode(record["plan"])),
        cluster=ClusterConfig(**record["cluster"]),
        status=ExecutionStatus[record["status"]],
        measurement=None if measured is None else Measurement(**measured),
        finished_at=datetime.fromisoformat(record["finished_at"]),
    )
