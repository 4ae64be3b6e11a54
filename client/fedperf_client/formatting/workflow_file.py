"""Workflows written down by people: a JSON file, one entry per operator.

```
{
  "platform": "duckdb",
  "sources": {"columns": 8},
  "operators": [
    {"name": "orders", "kind": "table_source", "output_rows": 1500000, "row_bytes": 96},
    {"name": "open", "kind": "filter", "inputs": ["orders"], "output_rows": 730000,
     "row_bytes": 96},
    {"name": "per_customer", "kind": "aggregate", "inputs": ["open"], "output_rows": 99000,
     "row_bytes": 16, "platform": "polars"}
  ],
  "cluster": {"nodes": 1, "cores": 8, "memory_gib": 32}
}
```
Kinds, classes, complexities and platforms are the words of
`fedperf_shared.workflow.vocabulary` in small letters. An operator needs `kind`, a source
`output_rows` as well; all else may be left out. Rows that nobody knows before a run are
estimated (`workflow.estimates`), and so are widths. `inputs` are names, or numbers of
operators from 0 on. Names stay here: a plan holds none.

What `fedperf runs show --json` prints is taken as well: there the operators stand under `plan`, and
the cluster is that of the run. `-` is standard input.

Refused, with the operator named: unknown words and keys, missing sizes, numbers that no
workflow can have, more rows after a filter than before it, inputs that do not exist, cycles.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import MAX_QUERIES_BEFORE, ClusterConfig, ExecutionWarning, KnownJob
from fedperf_shared.runtime.settings_file import problems_of
from fedperf_shared.workflow.cardinality import with_estimates
from fedperf_shared.workflow.graph import (
    InvalidWorkflowError,
    Operator,
    Plan,
    SourceStatistics,
    Workflow,
)
from fedperf_shared.workflow.vocabulary import (
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
    platform_of,
)

GIB = 2**30
_NEVER_MORE_ROWS = frozenset(
    {OperatorKind.FILTER, OperatorKind.DISTINCT, OperatorKind.SORT, OperatorKind.TOPK}
)
"""Kinds that drop rows or keep them, whatever their parameters."""
MAX_FILE_BYTES = 8 * 2**20

STANDARD_INPUT = Path("-")

_OF_RUNS_SHOW = {"operator", "output_bytes", "seconds"}
"""What `fedperf runs show` tells of an operator beside what it is."""

_Word = TypeVar("_Word", bound=IntEnum)
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Whole = Annotated[int, Field(strict=True, ge=0)]


class InvalidWorkflowFileError(InvalidInputError):
    """A workflow file cannot be read; the message names the operator."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OperatorEntry(_Entry):
    """One operator as it is written down."""

    name: str | None = None
    kind: str
    operator_class: Annotated[str, Field(alias="class")] = "relational"
    inputs: tuple[str | Annotated[int, Field(strict=True)], ...] = ()
    output_rows: _Number | None = None
    row_bytes: _Number | None = None
    complexity: str = "none"
    code_steps: _Whole = 0
    iterations: _Whole = 0
    key_distinct_ratio: _Number = 0.0
    partitions: _Whole = 0
    platform: str | None = None


class SourcesEntry(_Entry):
    """What is known of all sources together."""

    columns: _Whole = 0
    top_key_share: _Number = 0.0
    distinct_ratio: _Number = 0.0
    null_ratio: _Number = 0.0


class ClusterEntry(_Entry):
    """Resources; those that most own executions had where something is left out."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    cores: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    memory_gib: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    machine_speed: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    queries_before: Annotated[int, Field(strict=True, ge=0, le=MAX_QUERIES_BEFORE)] = 0


class WorkflowEntry(_Entry):
    """The whole file."""

    operators: tuple[OperatorEntry, ...]
    sources: SourcesEntry = SourcesEntry()
    platform: str | None = None
    cluster: ClusterEntry = ClusterEntry()


@dataclass(frozen=True, slots=True)
class WrittenWorkflow:
    """What a workflow file says.

    Attributes:
        plan: the workflow with a platform for every operator.
        cluster: resources, as far as the file names them.
        execution_id: of the execution that it is the plan of; None where a person wrote it.
        job: as that execution tells it; None where the plan holds all rows of its sources.
    """

    plan: Plan
    cluster: ClusterEntry
    execution_id: str | None = None
    job: KnownJob | None = None

    def cluster_or(self, usual: ClusterConfig) -> ClusterConfig:
        """The resources named, and those of `usual` where none are."""
        named = self.cluster
        memory = named.memory_gib
        return ClusterConfig(
            nodes=named.nodes or usual.nodes,
            cores=named.cores or usual.cores,
            memory_bytes=usual.memory_bytes if memory is None else max(1, round(memory * GIB)),
            machine_speed=named.machine_speed or usual.machine_speed,
            queries_before=named.queries_before,
        )


def read_workflow_file(
    path: Path, *, platform: str | None = None, otherwise: str | None = None
) -> WrittenWorkflow:
    """The workflow of a file.

    Args:
        path: of the file.
        platform: what all operators are to run on, whatever the file says.
        otherwise: what those run on of which the file says nothing.

    Raises:
        InvalidWorkflowFileError: see the module.
    """
    entry, shown = _entry(path)
    execution_id = None if shown is None else str(shown.get("id", ""))
    places = _places(entry.operators, path)
    operators = tuple(
        _operator(each, _title(each, number), places, path)
        for number, each in enumerate(entry.operators)
    )
    platforms = tuple(
        _platform(
            _title(each, number), platform or each.platform or entry.platform or otherwise, path
        )
        for number, each in enumerate(entry.operators)
    )
    try:
        sources = SourceStatistics(**entry.sources.model_dump())
        written = Workflow(operators, sources)
        if execution_id is None:  # what an engine counted may be otherwise
            _require_fewer_rows(entry.operators, written, path)
        rows = [n for n, each in enumerate(entry.operators) if each.output_rows is None]
        widths = [n for n, each in enumerate(entry.operators) if each.row_bytes is None]
        workflow = with_estimates(written, rows, widths)
        job = None if shown is None else _job_of_shown(shown, workflow)
        return WrittenWorkflow(Plan(workflow, platforms), entry.cluster, execution_id, job)
    except InvalidWorkflowError as error:
        titles = [_title(each, number) for number, each in enumerate(entry.operators)]
        raise InvalidWorkflowFileError(f"{path}: {_with_names(str(error), titles)}") from error


def _entry(path: Path) -> tuple[WorkflowEntry, Mapping[str, object] | None]:
    """What a file says, and the facts of the execution that it shows, if it does."""
    try:
        if path == STANDARD_INPUT:
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise InvalidWorkflowFileError(f"{path} does not exist") from None
    except OSError as error:
        raise InvalidWorkflowFileError(
            f"cannot read the workflow {path}: {error.strerror}"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidWorkflowFileError(f"{path} is no workflow: larger than {MAX_FILE_BYTES} bytes")
    try:
        content = json.loads(data, parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        raise InvalidWorkflowFileError(f"{path} is not JSON: {error}") from error
    if isinstance(content, Mapping) and "steps" in content:
        raise InvalidWorkflowFileError(
            f"{path} is a program, whose rows are counted before anything is predicted: ask with "
            f"fedperf advise {path} --data DIRECTORY"
        )
    shown = None
    if isinstance(content, Mapping) and isinstance(content.get("plan"), list):
        shown, content = content, _of_shown(content)
    try:
        return WorkflowEntry.model_validate(content), shown
    except ValidationError as error:
        found = problems_of(error, WorkflowEntry, content, {"operators": _written_title})
        raise InvalidWorkflowFileError(f"{path}: {_together(found)}") from error


def _of_shown(content: Mapping[str, object]) -> dict[str, object]:
    """What `fedperf runs show --json` says of an execution, as a workflow is written."""
    shown = content["plan"]
    operators = [
        {key: value for key, value in each.items() if key not in _OF_RUNS_SHOW}
        if isinstance(each, Mapping)
        else each
        for each in (shown if isinstance(shown, list) else [])
    ]
    names = ("nodes", "cores", "machine_speed", "queries_before")
    cluster = {name: content[name] for name in names if name in content}
    memory = content.get("memory_bytes")
    if isinstance(memory, int | float):
        cluster["memory_gib"] = memory / GIB
    return {"operators": operators, "sources": content.get("sources", {}), "cluster": cluster}


def _job_of_shown(shown: Mapping[str, object], workflow: Workflow) -> KnownJob | None:
    """The job of a shown execution, where only own runs of it would tell how long it takes."""
    rows, took, remarks = (shown.get(key) for key in ("rows_known", "runtime_seconds", "remarks"))
    counted = rows is None or rows == 1
    job = KnownJob(
        "",
        has_rows=counted or all(each.inputs or each.output_rows > 0 for each in workflow.operators),
        is_accelerated=isinstance(remarks, list) and ExecutionWarning.ACCELERATED in remarks,
        seconds=float(took) if isinstance(took, int | float) and took > 0 else 0.0,
    )
    return job if job.answers_alone else None


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _written_title(number: int, written: object) -> str:
    """What messages call an operator of which it is not known that it is one."""
    name = written.get("name") if isinstance(written, Mapping) else None
    return f"operator {number}" if name is None else f"operator {number} ({name})"


def _together(problems: Sequence[str]) -> str:
    """All problems in a line; what several operators have alike is said of the first."""
    alike: dict[str, list[str]] = {}
    for each in problems:
        titled, _, said = each.partition(": ")
        alike.setdefault(said, []).append(titled)
    return "; ".join(
        f"{titles[0]}: {said}" + (f" (and {len(titles) - 1} more alike)" if titles[1:] else "")
        for said, titles in alike.items()
    )


def _require_fewer_rows(entries: Sequence[OperatorEntry], workflow: Workflow, path: Path) -> None:
    """Refuse operators that would hand on more rows than they read, as their kind cannot."""
    for number, (entry, operator) in enumerate(zip(entries, workflow.operators, strict=True)):
        read_from = [entries[each].output_rows for each in operator.inputs]
        if operator.kind not in _NEVER_MORE_ROWS or entry.output_rows is None or None in read_from:
            continue
        rows = sum(each or 0.0 for each in read_from)
        if entry.output_rows > rows:
            raise InvalidWorkflowFileError(
                f"{path}: {_title(entry, number)}: a {entry.kind} hands on at most the rows that "
                f"it reads, {rows:,.0f}; output_rows is {entry.output_rows:,.0f}"
            )


def _places(entries: Sequence[OperatorEntry], path: Path) -> dict[str, int]:
    places: dict[str, int] = {}
    for number, each in enumerate(entries):
        if each.name is None:
            continue
        if each.name in places:
            raise InvalidWorkflowFileError(
                f"{path}: operator {number} has the name {each.name!r} of operator "
                f"{places[each.name]}"
            )
        places[each.name] = number
    return places


def _operator(entry: OperatorEntry, title: str, places: Mapping[str, int], path: Path) -> Operator:
    if not entry.inputs and entry.output_rows is None:
        raise InvalidWorkflowFileError(
            f"{path}: {title} reads from no other and needs output_rows, the rows that it hands on"
        )
    unknown = [each for each in entry.inputs if isinstance(each, str) and each not in places]
    if unknown:
        raise InvalidWorkflowFileError(
            f"{path}: {title} reads from {unknown[0]!r}, which no operator is called"
        )
    try:
        return Operator(
            kind=_word(OperatorKind, "kind", entry.kind),
            operator_class=_word(OperatorClass, "class", entry.operator_class),
            inputs=tuple(places[each] if isinstance(each, str) else each for each in entry.inputs),
            output_rows=entry.output_rows or 0.0,
            row_bytes=entry.row_bytes or 0.0,
            complexity=_word(Complexity, "complexity", entry.complexity),
            code_steps=entry.code_steps,
            iterations=entry.iterations,
            key_distinct_ratio=entry.key_distinct_ratio,
            partitions=entry.partitions,
        )
    except InvalidInputError as error:
        raise InvalidWorkflowFileError(f"{path}: {title}: {error}") from error


def _platform(title: str, written: str | None, path: Path) -> Platform:
    if written is None:
        raise InvalidWorkflowFileError(
            f"{path}: {title} has no platform; name one in the file or with --platform"
        )
    try:
        return platform_of(written)
    except InvalidInputError as error:
        raise InvalidWorkflowFileError(f"{path}: {title}: {error}") from error


def _word(words: type[_Word], what: str, written: str) -> _Word:
    known = {each.name.lower(): each for each in words if not each.name.startswith("RESERVED")}
    if written.lower() not in known:
        raise InvalidInputError(f"unknown {what} {written!r}; known are {', '.join(known)}")
    return known[written.lower()]


def _title(entry: OperatorEntry, number: int) -> str:
    return f"operator {number} ({entry.name or entry.kind})"


def _with_names(message: str, titles: Sequence[str]) -> str:
    """The message of a workflow, which knows operators by number, with their names."""
    for number, title in enumerate(titles):
        start = f"operator {number} ("
        if message.startswith(start):
            return title + message[message.index(")") + 1 :]
    return message
