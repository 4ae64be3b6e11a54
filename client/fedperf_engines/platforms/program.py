"""Programs: operator graphs that can be executed.

A `Program` is a `Workflow` with the parameters (data set, columns, literals) that never leave the
organization; `to_workflow` drops them. A program is valid only if every step reads earlier steps,
every column fits, every result is used and there is a sink. Programs travel as JSON to the child
processes of trials. This module imports no engine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter, ValidationError

from fedperf_engines.platforms import operations as ops
from fedperf_shared.runtime.settings_file import problems_of
from fedperf_shared.workflow.graph import Operator, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS, Complexity


@dataclass(frozen=True, slots=True)
class Step(ops.ProgramPart):
    """One operation and the positions of the steps that it reads."""

    operation: ops.AnyOperation
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program(ops.ProgramPart):
    """Steps in an order in which they can run, at least one of them a sink."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= MAX_OPERATORS:
            raise ops.InvalidProgramError(
                f"a program has 1 to {MAX_OPERATORS} steps, this one has {len(self.steps)}"
            )
        for position in range(len(self.steps)):
            _require_inputs(self.steps, position)
        if not self.sinks:
            raise ops.InvalidProgramError("a program needs at least one sink")
        for position, readers in enumerate(self.consumers):
            if not readers and position not in self.sinks:
                raise ops.InvalidProgramError(
                    f"the result of {_name(self.steps, position)} is unused"
                )
        self.schemas()

    @property
    def sinks(self) -> tuple[int, ...]:
        """Return positions of the sinks."""
        return tuple(p for p, step in enumerate(self.steps) if isinstance(step.operation, ops.Sink))

    @property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For every step the positions of those that read it, repeated where one reads twice."""
        consumers: list[list[int]] = [[] for _ in self.steps]
        for position, step in enumerate(self.steps):
            for parent in step.inputs:
                consumers[parent].append(position)
        return tuple(tuple(each) for each in consumers)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return names of the data sets that it reads, sorted, each once."""
        operations = (step.operation for step in self.steps)
        return tuple(sorted({o.dataset for o in operations if isinstance(o, ops.ReadParquet)}))

    def schemas(self) -> tuple[ops.Schema, ...]:
        """Output columns of every step; InvalidProgramError names the step that does not fit."""
        schemas: list[ops.Schema] = []
        for position, step in enumerate(self.steps):
            try:
                inputs = tuple(schemas[parent] for parent in step.inputs)
                schemas.append(ops.output_schema(step.operation, inputs))
            except ops.InvalidProgramError as error:
                raise ops.InvalidProgramError(f"{_name(self.steps, position)}: {error}") from error
        return tuple(schemas)


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """The actual cardinality and row size of a step's output."""

    rows: int  # rows of its output
    row_bytes: float  # mean width of an output row in bytes; 0 without rows
    # Distinct / all values of its grouping, partition or join key, over both inputs of a join
    # together; 0 where it has no key.
    key_distinct_ratio: float = 0.0


def to_workflow(
    program: Program,
    statistics: Sequence[StepStatistics],
    sources: SourceStatistics | None = None,
) -> Workflow:
    """Return the program without its parameters, with one `StepStatistics` per step."""
    if len(statistics) != len(program.steps):
        raise ops.InvalidProgramError(
            f"{len(program.steps)} steps need as many statistics, got {len(statistics)}"
        )
    operators = tuple(
        _operator(step, measured) for step, measured in zip(program.steps, statistics, strict=True)
    )
    return Workflow(operators, sources or SourceStatistics())


def to_json(program: Program) -> bytes:
    """Return the program as UTF-8 JSON; equal programs give equal bytes."""
    return _adapter().dump_json(program)


def from_json(text: bytes) -> Program:
    """Return the program that `to_json` wrote, or InvalidProgramError with every problem."""
    try:
        return _adapter().validate_json(text, strict=True)
    except ValidationError as error:
        try:
            content = json.loads(text)
        except ValueError as no_json:
            raise ops.InvalidProgramError(f"not a program: not JSON: {no_json}") from error
        problems = problems_of(error, Program, content, {"steps": _written_title})
        raise ops.InvalidProgramError(f"not a program: {'; '.join(problems)}") from error


def _written_title(number: int, step: object) -> str:
    """Return the title of a step that may be malformed, for messages."""
    operation = step.get("operation") if isinstance(step, Mapping) else None
    kind = operation.get("type") if isinstance(operation, Mapping) else None
    return f"step {number}" if kind is None else f"step {number} ({kind})"


@cache
def _adapter() -> TypeAdapter[Program]:
    return TypeAdapter(Program)


def _operator(step: Step, measured: StepStatistics) -> Operator:
    operation, code_steps = step.operation, ops.code_steps(step.operation)
    return Operator(
        kind=operation.kind,
        operator_class=operation.operator_class,
        inputs=step.inputs,
        output_rows=float(measured.rows),
        row_bytes=measured.row_bytes,
        complexity=Complexity.LINEAR if code_steps else Complexity.NONE,
        code_steps=code_steps,
        iterations=getattr(operation, "iterations", 0),
        key_distinct_ratio=measured.key_distinct_ratio,
    )


def _require_inputs(steps: tuple[Step, ...], position: int) -> None:
    step = steps[position]
    if len(step.inputs) != step.operation.arity:
        raise ops.InvalidProgramError(
            f"{_name(steps, position)} reads {step.operation.arity} inputs, got {len(step.inputs)}"
        )
    for parent in step.inputs:
        if not 0 <= parent < position:
            raise ops.InvalidProgramError(
                f"{_name(steps, position)} reads step {parent}; only earlier steps can be read"
            )
        if isinstance(steps[parent].operation, ops.Sink):
            raise ops.InvalidProgramError(f"{_name(steps, position)} reads a sink (step {parent})")


def _name(steps: tuple[Step, ...], position: int) -> str:
    return f"step {position} ({steps[position].operation.type})"
