"""Writing a program step by step: short constructors and a draft that counts positions."""

from collections.abc import Sequence

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.program import Program, Step


class Draft:
    """A program being written; `add` gives the position to read the result from."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._schemas: list[ops.Schema] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, operation: ops.AnyOperation, *inputs: int) -> int:
        """Append a step; InvalidProgramError when its inputs do not fit."""
        schema = operation.output_schema(tuple(self._schemas[parent] for parent in inputs))
        self._steps.append(Step(operation, inputs))
        self._schemas.append(schema)
        return len(self._steps) - 1

    def schema(self, position: int) -> ops.Schema:
        """Columns of a step's result."""
        return self._schemas[position]

    def finish(self, result: int) -> Program:
        """The program whose sink is `result`."""
        self.add(ops.Sink(), result)
        return Program(tuple(self._steps))


def count(name: str = "rows_seen") -> ops.Aggregation:
    """Number of rows of the group."""
    return ops.Aggregation(ops.AggregateFunction.COUNT, name)


def total(column: str, name: str) -> ops.Aggregation:
    """Sum of a column."""
    return ops.Aggregation(ops.AggregateFunction.SUM, name, column)


def mean(column: str, name: str) -> ops.Aggregation:
    """Mean of a column."""
    return ops.Aggregation(ops.AggregateFunction.MEAN, name, column)


def highest(column: str, name: str) -> ops.Aggregation:
    """Maximum of a column."""
    return ops.Aggregation(ops.AggregateFunction.MAX, name, column)


def plus(operand: str | float) -> ops.Arithmetic:
    """Add."""
    return ops.Arithmetic(ops.ArithmeticOperator.ADD, operand)


def minus(operand: str | float) -> ops.Arithmetic:
    """Subtract."""
    return ops.Arithmetic(ops.ArithmeticOperator.SUBTRACT, operand)


def times(operand: str | float) -> ops.Arithmetic:
    """Multiply."""
    return ops.Arithmetic(ops.ArithmeticOperator.MULTIPLY, operand)


def where(column: str, comparison: str, literal: str | float) -> ops.Filter:
    """Keep the rows where the comparison holds."""
    return ops.Filter(column, ops.Comparison(comparison), literal)


def descending(column: str) -> tuple[ops.Order, ...]:
    """Largest first."""
    return (ops.Order(column, descending=True),)


def between(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def eighths(rng: np.random.Generator, low: float, high: float) -> float:
    """A multiple of 1/8 from low to high, so that computed numbers stay exact."""
    return between(rng, int(low * 8), int(high * 8)) / 8


def chance(rng: np.random.Generator, probability: float) -> bool:
    """True with this probability."""
    return bool(rng.random() < probability)


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    """One of the choices, all equally likely."""
    return choices[int(rng.integers(len(choices)))]
