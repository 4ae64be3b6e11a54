"""An execution as a flat record, the form of the store and of history files.

A record holds one value per column. Column names are the field names of the domain classes.
`to_record` and `from_record` are inverse to each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    JobColumn,
    Measurement,
)
from fedperf_shared.wire.codec import decode_plan, encode_plan

CLUSTER = tuple(each.name for each in fields(ClusterConfig))
MEASUREMENT = tuple(each.name for each in fields(Measurement))
METADATA = tuple(each.name for each in fields(ExecutionMetadata))
_NO_KEY = "-"


def to_record(execution: Execution) -> dict[str, Any]:
    """Return the values of an execution by column; what was not measured is None."""
    measurement, metadata = execution.measurement, execution.origin
    return {
        "execution_id": execution.execution_id,
        "workload": execution.workload,
        "plan": encode_plan(execution.plan),
        **{name: getattr(execution.cluster, name) for name in CLUSTER},
        "status": execution.status,
        **{name: getattr(measurement, name, None) for name in MEASUREMENT},
        "startup_seconds": 0.0 if measurement is None else measurement.startup_seconds,
        "finished_at": execution.finished_at,
        **{name: getattr(metadata, name) for name in METADATA},
        "remarks": " ".join(metadata.remarks),
        "columns": columns_to_text(metadata.columns),
        "operator_keys": " ".join(each or _NO_KEY for each in metadata.operator_keys),
    }


def from_record(record: Mapping[str, Any]) -> Execution:
    """Return the execution of a record.

    Columns of `METADATA` and `CLUSTER` that have defaults may be missing.

    Raises:
        InvalidInputError: plan or columns cannot be decoded, or a value is out of its range.
        ValueError: the status or a remark is unknown.
    """
    is_measured = record.get("runtime_seconds") is not None
    metadata = {name: record[name] for name in METADATA if name in record}
    metadata["columns"] = columns_from_text(metadata.get("columns", ""))
    metadata["remarks"] = tuple(map(ExecutionWarning, metadata.get("remarks", "").split()))
    keys = metadata.get("operator_keys", "").split()
    metadata["operator_keys"] = tuple("" if each == _NO_KEY else each for each in keys)
    return Execution(
        execution_id=record["execution_id"],
        workload=record["workload"],
        plan=decode_plan(record["plan"]),
        cluster=ClusterConfig(**{name: record[name] for name in CLUSTER if name in record}),
        status=ExecutionStatus(record["status"]),
        measurement=Measurement(**{name: record[name] for name in MEASUREMENT if name in record})
        if is_measured
        else None,
        finished_at=record["finished_at"],
        origin=ExecutionMetadata(**metadata),
    )


def columns_to_text(columns: Sequence[JobColumn]) -> str:
    """Return columns as JSON, empty without any. Equal columns give equal texts."""
    return orjson.dumps([tuple(each) for each in columns]).decode() if columns else ""


def columns_from_text(text: str) -> tuple[JobColumn, ...]:
    """Return the columns of `columns_to_text`.

    Raises:
        InvalidInputError: the text does not hold columns.
    """
    if not text:
        return ()
    try:
        columns = tuple(JobColumn(*each) for each in orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise InvalidInputError(f"columns must be a list of columns, got {text[:80]!r}") from error
    for name, value, role in columns:
        is_column = isinstance(name, str) and isinstance(value, str | int | float)
        if not is_column or isinstance(value, bool) or not isinstance(role, str):
            raise InvalidInputError(f"a column is a name, a value and a role, got {text[:80]!r}")
    return columns
