"""Immutable workflows and plans.

A `Workflow` is a directed acyclic graph of operators with the sizes that flow
between them, free of any platform, name, literal or path. A `Plan` adds one
platform per operator. Both raise an error if they are malformed.
"""

import math
from dataclasses import dataclass, field

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    RESERVED_KINDS,
    RESERVED_PLATFORMS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)


class InvalidWorkflowError(InvalidInputError):
    """Raised for a malformed workflow or plan. The message names the operator."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a workflow."""

    kind: OperatorKind  # its operation
    operator_class: OperatorClass  # the kind of analysis it belongs to
    inputs: tuple[int, ...] = ()  # positions of its parents in `Workflow.operators`
    output_rows: float = 0.0  # output rows, actual or estimated
    row_bytes: float = 0.0  # mean width of an output row in bytes
    # Growth of the user code inside, `NONE` without any.
    complexity: Complexity = Complexity.NONE
    code_steps: int = 0  # elementary steps of that user code per row
    iterations: int = 0  # rounds of an iterative operator, 0 elsewhere
    key_distinct_ratio: float = 0.0  # distinct values / rows of its grouping or join key, in [0, 1]
    partitions: int = 0  # configured parallel partitions, 0 if the engine decides

    def __post_init__(self) -> None:
        if self.kind in RESERVED_KINDS:
            raise InvalidWorkflowError(f"operator kind {self.kind.name} is reserved")
        _require("output_rows", self.output_rows, MAX_ROWS)
        _require("row_bytes", self.row_bytes, MAX_ROW_BYTES)
        _require("iterations", self.iterations, MAX_ITERATIONS)
        _require("code_steps", self.code_steps, MAX_ITERATIONS)
        _require("partitions", self.partitions, MAX_ITERATIONS)
        _require("key_distinct_ratio", self.key_distinct_ratio, 1.0)

    @property
    def output_bytes(self) -> float:
        """Output bytes."""
        return self.output_rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Statistics of a workflow's sources together."""

    columns: int = 0  # columns of all sources
    top_key_share: float = 0.0  # share of the most frequent key, in [0, 1]
    distinct_ratio: float = 0.0  # distinct keys / rows, in [0, 1]
    null_ratio: float = 0.0  # missing values / values, in [0, 1]

    def __post_init__(self) -> None:
        _require("columns", self.columns, MAX_ITERATIONS)
        for name in ("top_key_share", "distinct_ratio", "null_ratio"):
            _require(name, getattr(self, name), 1.0)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A directed acyclic graph of operators, free of platforms.

    Operators may be in any order. All consumers use that of `topology.topological_order`.
    """

    operators: tuple[Operator, ...]
    # Statistics of all sources together.
    sources: SourceStatistics = field(default_factory=SourceStatistics)
    # Whether some rows are estimates (see `cardinality`). Only prediction queries set it. It is not
    # part of executions, messages and features.
    rows_are_estimates: bool = False

    def __post_init__(self) -> None:
        count = len(self.operators)
        if not 1 <= count <= MAX_OPERATORS:
            raise InvalidWorkflowError(
                f"a workflow has 1 to {MAX_OPERATORS} operators, this one has {count}"
            )
        for position, operator in enumerate(self.operators):
            for parent in operator.inputs:
                if not 0 <= parent < count:
                    raise InvalidWorkflowError(
                        f"operator {position} ({operator.kind.name}) reads from operator "
                        f"{parent}, which does not exist (0 to {count - 1})"
                    )
        _require_acyclic(self)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (parent, child), repeated where a child reads one parent twice."""
        return tuple(
            (parent, child)
            for child, operator in enumerate(self.operators)
            for parent in operator.inputs
        )

    @property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The positions of every operator's readers, ascending."""
        children: list[list[int]] = [[] for _ in self.operators]
        for child, operator in enumerate(self.operators):
            for parent in operator.inputs:
                children[parent].append(child)
        return tuple(map(tuple, children))

    @property
    def source_rows(self) -> float:
        """Rows of all sources, the input size of the workflow."""
        return sum(each.output_rows for each in self.operators if not each.inputs)

    @property
    def source_bytes(self) -> float:
        """Output bytes of all sources."""
        return sum(each.output_bytes for each in self.operators if not each.inputs)


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow with one platform per operator, in the order of `workflow.operators`."""

    workflow: Workflow
    platforms: tuple[Platform, ...]

    def __post_init__(self) -> None:
        expected = len(self.workflow.operators)
        if len(self.platforms) != expected:
            raise InvalidWorkflowError(
                f"a plan needs one platform per operator: {expected}, got {len(self.platforms)}"
            )
        reserved = [p.name for p in self.platforms if p in RESERVED_PLATFORMS]
        if reserved:
            raise InvalidWorkflowError(f"platform {reserved[0]} is reserved")

    @classmethod
    def on_one_platform(cls, workflow: Workflow, platform: Platform) -> "Plan":
        """Return the plan that runs every operator on `platform`."""
        return cls(workflow, (platform,) * len(workflow.operators))


def _require(name: str, value: float, limit: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= limit):
        raise InvalidWorkflowError(f"{name} must be between 0 and {limit:g}, got {value!r}")


def _require_acyclic(workflow: Workflow) -> None:
    operators, children = workflow.operators, workflow.children
    unread = [len(operator.inputs) for operator in operators]
    ready = [position for position, missing in enumerate(unread) if missing == 0]
    ordered = 0
    while ready:
        ordered += 1
        for child in children[ready.pop()]:
            unread[child] -= 1
            if unread[child] == 0:
                ready.append(child)
    if ordered != len(operators):
        stuck = next(position for position, missing in enumerate(unread) if missing > 0)
        raise InvalidWorkflowError(
            f"operator {stuck} ({operators[stuck].kind.name}) is part of, or behind, a cycle"
        )
