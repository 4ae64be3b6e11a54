"""dbt projects: runs of models from `run_results.json`, and their texts from `manifest.json`.

dbt overwrites `target/run_results.json` with every command, so each is ingested before the next.
A run of a model, a test or a seed is an execution of one command, whose workload is its unique id:
`fedperf compare` then compares models. dbt counts no rows, so only own runs predict it. Its id is a
digest of the invocation and the unique id; a file that is read again adds nothing. Runs of a model
count for its present text, apart from constants.

Skipped, each with its reason: what dbt skipped, and what has no time. An error is a failed run.
Layout: https://docs.getdbt.com/reference/artifacts/run-results-json (v4 to v6).
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.duckdb.query_keys import statement_key
from fedperf_client.sources.opener import LogFile, SourcePlace
from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_RUNTIME_SECONDS,
    OperatorClass,
    OperatorKind,
    Platform,
)

MAX_FILE_BYTES = 64 * 2**20

_SNIFFED_BYTES = 4096
_MARKS = (b"schemas.getdbt.com/dbt/run-results/", b'"metadata"')
_MANIFEST, _TARGET = "manifest.json", "target"
_ENDED_WELL = ("success", "pass", "warn", "fail")  # a test that fails has run to its end
_FAILED = ("error", "runtime error")
_MODEL = "model"
_CLUSTER = ClusterConfig(nodes=1, cores=1, memory_bytes=16 * 2**30)  # dbt does not name one
_PLAN = Plan.on_one_platform(
    Workflow((Operator(OperatorKind.COMMAND, OperatorClass.RELATIONAL),)), Platform.OTHER
)


@dataclass(frozen=True, slots=True)
class DbtModel:
    """A model of a manifest."""

    unique_id: str
    compiled_code: str | None  # SQL; None if dbt did not compile it

    @property
    def workload(self) -> str:
        """The workload of its runs."""
        return workload_of(self.unique_id)

    @property
    def statement(self) -> str:
        """The key of its text, as its runs have it."""
        return statement_key(self.compiled_code or "", ())


@dataclass(frozen=True, slots=True)
class RunResults:
    """A file of run results as a `Source`."""

    path: SourcePlace

    def read(self) -> Iterator[Execution | SkippedRecord]:
        """Yield every result once, in file order; see `Source.read`."""
        content = _read(self.path)
        results, metadata = content.get("results"), content.get("metadata")
        if not isinstance(results, list) or not isinstance(metadata, dict):
            raise InvalidInputError(f"{self.path}: no results of dbt; expected run_results.json")
        for number, result in enumerate(results):
            try:
                yield _execution(result, metadata)
            except (InvalidInputError, ValueError, TypeError, KeyError, AttributeError) as error:
                reason = str(error) if isinstance(error, InvalidInputError) else "not of dbt's form"
                yield SkippedRecord(f"result {number}", reason)


def open_run_results(path: SourcePlace) -> RunResults | None:
    """Recognize run results by their first bytes; see `OpenSource`."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        start = stream.read(_SNIFFED_BYTES)
    return RunResults(path) if all(each in start for each in _MARKS) else None


def workload_of(unique_id: str) -> str:
    """Return the workload of a node of dbt."""
    return f"dbt/{unique_id}"


def find_manifest(path: Path) -> Path | None:
    """Return the manifest of a project, of its target directory, or itself; None without one."""
    if path.name == _MANIFEST and path.is_file():
        return path
    places = (path / _TARGET / _MANIFEST, path / _MANIFEST)
    return next((each for each in places if each.is_file()), None)


def models_of(manifest: Path) -> list[DbtModel]:
    """Return the models of a manifest, by unique id.

    Raises:
        InvalidInputError: it is no manifest of dbt.
        StorageError: it cannot be read.
    """
    nodes = _read(manifest).get("nodes")
    if not isinstance(nodes, dict):
        raise InvalidInputError(f"{manifest}: no nodes; expected the manifest of a dbt project")
    models = []
    for unique_id, node in sorted(nodes.items()):
        if isinstance(node, dict) and node.get("resource_type") == _MODEL:
            code = node.get("compiled_code")
            models.append(DbtModel(unique_id, code if isinstance(code, str) else None))
    return models


def _read(path: LogFile) -> Mapping[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInputError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"{path}: not JSON, or cut off: {error}") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path}: not an object of JSON")
    return content


def _execution(result: Mapping[str, Any], metadata: Mapping[str, Any]) -> Execution:
    unique_id, status = result["unique_id"], result["status"]
    if not isinstance(unique_id, str) or not unique_id:
        raise InvalidInputError("no unique_id")
    if status not in (*_ENDED_WELL, *_FAILED):
        raise InvalidInputError(f"dbt did not run it: {str(status)[:40]}")
    seconds, is_ok = result["execution_time"], status in _ENDED_WELL
    is_timed = isinstance(seconds, int | float) and 0 < seconds <= MAX_RUNTIME_SECONDS
    if is_ok and not is_timed:
        raise InvalidInputError("no execution_time above 0")
    ends = [each["completed_at"] for each in result.get("timing", []) if each.get("completed_at")]
    ended = datetime.fromisoformat(max(ends) if ends else metadata["generated_at"])
    identity = f"dbt/{metadata.get('invocation_id', '')}/{unique_id}/{ended.isoformat()}"
    return Execution(
        execution_id=hashlib.sha256(identity.encode()).hexdigest()[:32],
        workload=workload_of(unique_id),
        plan=_PLAN,
        cluster=_CLUSTER,
        status=ExecutionStatus.OK if is_ok else ExecutionStatus.FAILED,
        measurement=Measurement(float(seconds)) if is_timed else None,
        finished_at=ended if ended.tzinfo else ended.replace(tzinfo=UTC),
        origin=ExecutionMetadata(
            source=f"dbt {metadata.get('dbt_version', '')}".strip(),
            rows_known=0.0,
            application=unique_id.split(".")[1] if unique_id.count(".") > 1 else "",
            application_id=str(metadata.get("invocation_id", "")),
            record=unique_id,
            description=unique_id,
            statement=statement_key(str(result.get("compiled_code") or ""), ()),
            failure="" if is_ok else " ".join(str(result.get("message") or "").split())[:500],
        ),
    )
