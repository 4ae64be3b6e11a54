"""Executions as rows of the store, and back.

An execution comes back as it went in: plans as compact bytes, moments as whole microseconds
since 1970, what was not measured as NULL.

Refused: texts that are empty or not valid, whole numbers that SQLite does not hold, moments
without a time zone; and a row that no domain class accepts.
"""

import math
import sqlite3
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    InvalidExecutionError,
    Measurement,
)
from fedperf_shared.wire.codec import decode_plan, encode_plan

LARGEST_INTEGER = 2**63 - 1
"""The largest that SQLite holds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(execution: Execution) -> tuple[object, ...]:
    """The execution as a row, in the order of the table's columns.

    Raises:
        InvalidExecutionError: a value does not fit the store.
    """
    cluster, measured = execution.cluster, execution.measurement
    numbers: tuple[object, ...] = (None,) * 5
    if measured is not None:
        numbers = (
            float(measured.runtime_seconds),
            float(measured.cpu_seconds),
            _integer("peak_memory_bytes", measured.peak_memory_bytes),
            _integer("read_bytes", measured.read_bytes),
            _integer("written_bytes", measured.written_bytes),
        )
    return (
        _text("execution_id", execution.execution_id),
        _text("workload", execution.workload),
        encode_plan(execution.plan),
        _integer("nodes", cluster.nodes),
        _integer("cores", cluster.cores),
        _integer("memory_bytes", cluster.memory_bytes),
        float(cluster.machine_speed),
        int(execution.status),
        *numbers,
        micros_of(execution.finished_at),
        *_origin_row(execution.origin),
        _integer("queries_before", cluster.queries_before),
        0.0 if measured is None else float(measured.startup_seconds),
        *_names_row(execution.origin),
        float(execution.origin.rows_within),
        _integer("tasks", execution.origin.tasks),
    )


def execution_of(row: sqlite3.Row | tuple[Any, ...], path: Path) -> Execution:
    """The execution of a row.

    Args:
        row: with all columns.
        path: of the store, for the message.

    Raises:
        StorageError: no domain class accepts it.
    """
    execution_id, workload, plan, nodes, cores, memory, speed, status, *rest = row
    runtime, cpu, peak, read, written, finished, *rest = rest
    source, node_type, architecture, rows_known, remarks, before, startup, *names = rest
    application, application_id, record, description, file, failure, seconds, *sizes = names
    try:
        return Execution(
            execution_id=execution_id,
            workload=workload,
            plan=decode_plan(plan),
            cluster=ClusterConfig(nodes, cores, memory, speed, before),
            status=ExecutionStatus(status),
            measurement=None
            if runtime is None
            else Measurement(runtime, cpu, peak, read, written, startup),
            finished_at=_EPOCH + timedelta(microseconds=finished),
            origin=ExecutionMetadata(
                source,
                node_type,
                architecture,
                rows_known,
                tuple(map(ExecutionWarning, remarks.split())),
                application,
                application_id,
                record,
                description,
                file,
                failure,
                _unpacked(seconds),
                *sizes,
            ),
        )
    except (InvalidInputError, ValueError, OverflowError) as error:
        raise StorageError(
            f"{path}: execution {execution_id!r} cannot be read ({error}); restore a backup"
        ) from error


def runs_on(plan: bytes, platform: int) -> bool:
    """Whether a stored plan uses a platform; not, where it cannot be read."""
    try:
        return platform in decode_plan(plan).platforms
    except InvalidInputError:
        return False


def micros_of(moment: datetime) -> int:
    """Whole microseconds since 1970, which order as the moments do.

    Raises:
        InvalidExecutionError: the moment has no time zone.
    """
    if moment.tzinfo is None:
        raise InvalidExecutionError(f"a moment without a time zone: {moment.isoformat()}")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _origin_row(origin: ExecutionMetadata) -> tuple[object, ...]:
    texts = (origin.source, origin.node_type, origin.architecture)
    return (*map(_encodable, texts), float(origin.rows_known), " ".join(origin.remarks))


def _names_row(origin: ExecutionMetadata) -> tuple[object, ...]:
    texts = (origin.application, origin.application_id, origin.record)
    more = (origin.description, origin.file, origin.failure)
    return (*map(_encodable, texts + more), _packed(origin.operator_seconds))


def _packed(seconds: Sequence[float | None]) -> bytes:
    """As float64; NaN stands for what nothing tells."""
    return array("d", (math.nan if each is None else each for each in seconds)).tobytes()


def _unpacked(content: bytes) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(each) else each for each in array("d", content))


def _integer(name: str, value: int) -> int:
    if not 0 <= value <= LARGEST_INTEGER:
        raise InvalidExecutionError(f"{name} must be at most {LARGEST_INTEGER}, got {value!r}")
    return int(value)


def _text(name: str, value: str) -> str:
    if not value:
        raise InvalidExecutionError(f"{name} must not be empty")
    return _encodable(value)


def _encodable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidExecutionError(f"not valid text: {value!r}") from error
    return value
