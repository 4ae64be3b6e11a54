"""Workflow files: JSON that people write, with one entry per operator.

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
Kinds, classes, complexities and platforms are the names of `fedperf_shared.workflow.vocabulary`
in lower case. An operator needs `kind`, and a source also `output_rows`. Missing rows and widths
are estimated (`workflow.cardinality`). `inputs` are names, or numbers of operators from 0 on. A
plan has no names.

The output of `fedperf runs show --json` is a workflow file, too. Its operators are under `plan`,
and the cluster is that of the run. `-` is standard input.

Errors name the operator: unknown names and keys, missing sizes, numbers out of range, more rows
after a filter than before it, missing inputs, cycles.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

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
# Kinds that never have more output rows than input rows.
_NEVER_MORE_ROWS = frozenset(
    {OperatorKind.FILTER, OperatorKind.DISTINCT, OperatorKind.SORT, OperatorKind.TOPK}
)
MAX_FILE_BYTES = 8 * 2**20

STANDARD_INPUT = Path("-")

# Keys of an operator in `fedperf runs show` that a workflow file does not have.
_RUN_KEYS = {"operator", "output_bytes", "seconds"}


class InvalidWorkflowFileError(InvalidInputError):
    """Raised when a workflow file cannot be read. The message names the operator."""


def _names_of(words: type[IntEnum], what: str) -> BeforeValidator:
    """Return a validator that replaces a name in lower case by its member of an enumeration."""
    members = {each.name.lower(): each for each in words if not each.name.startswith("RESERVED")}

    def parse(name: object) -> IntEnum:
        member = members.get(str(name).lower())
        if member is None:
            raise ValueError(f"unknown {what} {name!r}; known are {', '.join(members)}")
        return member

    return BeforeValidator(parse)


def _parse_platform(name: object) -> Platform | None:
    try:
        return None if name is None else platform_of(str(name))
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Whole = Annotated[int, Field(strict=True, ge=0)]
_Platform = Annotated[Platform | None, BeforeValidator(_parse_platform)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OperatorEntry(_Entry):
    """One operator of a workflow file."""

    name: str | None = None
    kind: Annotated[OperatorKind, _names_of(OperatorKind, "kind")]
    operator_class: Annotated[
        OperatorClass, _names_of(OperatorClass, "class"), Field(alias="class")
    ] = OperatorClass.RELATIONAL
    inputs: tuple[str | Annotated[int, Field(strict=True)], ...] = ()
    output_rows: _Number | None = None
    row_bytes: _Number | None = None
    complexity: Annotated[Complexity, _names_of(Complexity, "complexity")] = Complexity.NONE
    code_steps: _Whole = 0
    iterations: _Whole = 0
    key_distinct_ratio: _Number = 0.0
    partitions: _Whole = 0
    platform: _Platform = None


class SourcesEntry(_Entry):
    """Statistics of all sources together."""

    columns: _Whole = 0
    top_key_share: _Number = 0.0
    distinct_ratio: _Number = 0.0
    null_ratio: _Number = 0.0


class ClusterEntry(_Entry):
    """Resources. Missing ones are those of the typical cluster of the stored runs."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    cores: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    memory_gib: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    machine_speed: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    queries_before: Annotated[int, Field(strict=True, ge=0, le=MAX_QUERIES_BEFORE)] = 0


class WorkflowEntry(_Entry):
    """The whole file."""

    operators: tuple[OperatorEntry, ...]
    sources: SourcesEntry = SourcesEntry()
    platform: _Platform = None
    cluster: ClusterEntry = ClusterEntry()


@dataclass(frozen=True, slots=True)
class WrittenWorkflow:
    """The contents of a workflow file."""

    plan: Plan
    cluster: ClusterEntry
    execution_id: str | None = None  # id of the run in the file, None if a person wrote it
    job: KnownJob | None = None  # facts of that run, None if the plan has all rows of its sources

    def cluster_or(self, usual: ClusterConfig) -> ClusterConfig:
        """Return the resources in the file, completed by those of `usual`."""
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
    """Read a workflow file.

    Args:
        path: the file.
        platform: platform of all operators; overrides the file.
        otherwise: platform of operators for which the file names none.

    Raises:
        InvalidWorkflowFileError: see the module.
    """
    content = _read_json(path)
    run = None
    if isinstance(content, Mapping) and isinstance(content.get("plan"), list):
        run, content = content, _workflow_of_run(content)
    try:
        return _parse(content, run, platform=platform, otherwise=otherwise)
    except ValidationError as error:
        problems = problems_of(error, WorkflowEntry, content, {"operators": _entry_title})
        raise InvalidWorkflowFileError(f"{path}: {_join_alike(problems)}") from error
    except InvalidInputError as error:
        raise InvalidWorkflowFileError(f"{path}: {error}") from error


def _read_json(path: Path) -> object:
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
        raise InvalidWorkflowFileError(
            f"{path} is not a workflow: it is larger than {MAX_FILE_BYTES} bytes"
        )
    try:
        content = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidWorkflowFileError(f"{path} is not JSON: {error}") from error
    if isinstance(content, Mapping) and "steps" in content:
        raise InvalidWorkflowFileError(
            f"{path} is a program. Its rows are counted before a prediction, so run: fedperf "
            f"advise {path} --data DIRECTORY"
        )
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _workflow_of_run(run: Mapping[str, object]) -> dict[str, object]:
    """Return the workflow entry in the output of `fedperf runs show --json`."""
    plan = run["plan"]
    operators = [
        {key: value for key, value in each.items() if key not in _RUN_KEYS}
        if isinstance(each, Mapping)
        else each
        for each in (plan if isinstance(plan, list) else [])
    ]
    names = ("nodes", "cores", "machine_speed", "queries_before")
    cluster = {name: run[name] for name in names if name in run}
    memory = run.get("memory_bytes")
    if isinstance(memory, int | float):
        cluster["memory_gib"] = memory / GIB
    return {"operators": operators, "sources": run.get("sources", {}), "cluster": cluster}


def _parse(
    content: object,
    run: Mapping[str, object] | None,
    *,
    platform: str | None,
    otherwise: str | None,
) -> WrittenWorkflow:
    entry = WorkflowEntry.model_validate(content)
    titles = [
        f"operator {number} ({each.name or each.kind.name.lower()})"
        for number, each in enumerate(entry.operators)
    ]
    positions = _positions(entry.operators)
    operators = tuple(
        _operator(each, title, positions)
        for each, title in zip(entry.operators, titles, strict=True)
    )
    platforms = tuple(
        _platform(title, platform, each.platform, entry.platform, otherwise)
        for each, title in zip(entry.operators, titles, strict=True)
    )
    try:
        declared = Workflow(operators, SourceStatistics(**entry.sources.model_dump()))
        if run is None:  # an engine may count rows otherwise
            _require_fewer_rows(entry.operators, titles, declared)
        rows = [n for n, each in enumerate(entry.operators) if each.output_rows is None]
        widths = [n for n, each in enumerate(entry.operators) if each.row_bytes is None]
        workflow = with_estimates(declared, rows, widths)
        plan = Plan(workflow, platforms)
    except InvalidWorkflowError as error:
        message = re.sub(
            r"^operator (\d+) \([^)]*\)", lambda match: titles[int(match[1])], str(error)
        )
        raise InvalidInputError(message) from error
    if run is None:
        return WrittenWorkflow(plan, entry.cluster)
    return WrittenWorkflow(plan, entry.cluster, str(run.get("id", "")), _job_of_run(run, workflow))


def _job_of_run(run: Mapping[str, object], workflow: Workflow) -> KnownJob | None:
    """Return the job of a run if only own runs of it can predict its time."""
    rows, took, remarks = (run.get(key) for key in ("rows_known", "runtime_seconds", "remarks"))
    counted = rows is None or rows == 1
    job = KnownJob(
        "",
        has_rows=counted or all(each.inputs or each.output_rows > 0 for each in workflow.operators),
        is_accelerated=isinstance(remarks, list) and ExecutionWarning.ACCELERATED in remarks,
        seconds=float(took) if isinstance(took, int | float) and took > 0 else 0.0,
    )
    return job if job.needs_own_runs else None


def _entry_title(number: int, entry: object) -> str:
    """Return the title of an entry that may be invalid."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f"operator {number}" if name is None else f"operator {number} ({name})"


def _join_alike(problems: Sequence[str]) -> str:
    """Join the problems. One that several operators have is named once."""
    titles_by_problem: dict[str, list[str]] = {}
    for each in problems:
        title, _, problem = each.partition(": ")
        titles_by_problem.setdefault(problem, []).append(title)
    return "; ".join(
        f"{titles[0]}: {problem}" + (f" (and {len(titles) - 1} more alike)" if titles[1:] else "")
        for problem, titles in titles_by_problem.items()
    )


def _require_fewer_rows(
    entries: Sequence[OperatorEntry], titles: Sequence[str], workflow: Workflow
) -> None:
    for entry, title, operator in zip(entries, titles, workflow.operators, strict=True):
        inputs = [entries[each].output_rows for each in operator.inputs]
        if operator.kind not in _NEVER_MORE_ROWS or entry.output_rows is None or None in inputs:
            continue
        rows = sum(each or 0.0 for each in inputs)
        if entry.output_rows > rows:
            raise InvalidInputError(
                f"{title}: output_rows is {entry.output_rows:,.0f}, but a "
                f"{entry.kind.name.lower()} has at most its {rows:,.0f} input rows"
            )


def _positions(entries: Sequence[OperatorEntry]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for number, each in enumerate(entries):
        if each.name is None:
            continue
        if each.name in positions:
            raise InvalidInputError(
                f"operator {number} has the name {each.name!r} of operator {positions[each.name]}"
            )
        positions[each.name] = number
    return positions


def _operator(entry: OperatorEntry, title: str, positions: Mapping[str, int]) -> Operator:
    if not entry.inputs and entry.output_rows is None:
        raise InvalidInputError(f"{title} has no inputs, so it needs output_rows")
    for each in entry.inputs:
        if isinstance(each, str) and each not in positions:
            raise InvalidInputError(f"{title} reads from {each!r}, which no operator is called")
    try:
        return Operator(
            **{
                **entry.model_dump(exclude={"name", "platform"}),
                "inputs": tuple(
                    positions[each] if isinstance(each, str) else each for each in entry.inputs
                ),
                "output_rows": entry.output_rows or 0.0,
                "row_bytes": entry.row_bytes or 0.0,
            }
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{title}: {error}") from error


def _platform(title: str, *choices: Platform | str | None) -> Platform:
    """Return the first platform that is named."""
    for each in choices:
        if each is not None:
            return each if isinstance(each, Platform) else platform_of(each)
    raise InvalidInputError(f"{title} has no platform; name one in the file or with --platform")
