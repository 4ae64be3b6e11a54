"""Constraints of a campaign's grid: conditions on the columns, like `workers <= 8 or rows > 10`.

The text is parsed by `ast` and never run by Python. It may hold comparisons, `and`, `or`, `not`,
arithmetic with + - * / // %, numbers, words and names of columns.
Everything else is refused by name, as are texts that are too long or too deep, so that
a hostile constraint costs no more time or memory than a friendly one.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedperf_shared.errors import InvalidInputError

MAX_LENGTH = 1000
MAX_DEPTH = 40

Value = float | str | bool
"""What a column holds; whole numbers count as `float` here."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_Value = Callable[[Mapping[str, Value]], Value]


class InvalidGridConstraintError(InvalidInputError):
    """A constraint is no condition on the columns, or has no value for a configuration."""

    def __init__(self, text: str, problem: str) -> None:
        shown = text if len(text) <= MAX_LENGTH else text[:40] + "..."
        super().__init__(f"constraint {shown!r}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that every configuration of a campaign meets; made by `parse`."""

    text: str
    _value: "_Value"

    @classmethod
    def parse(cls, text: str, names: Collection[str]) -> "Constraint":
        """The condition that `text` says about the columns `names`.

        Raises:
            InvalidConstraintError: not such a condition; says what is not allowed.
        """
        if len(text) > MAX_LENGTH:
            raise InvalidGridConstraintError(
                text, f"has {len(text)} characters, at most {MAX_LENGTH} are read"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd but harmless spellings
                tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = getattr(error, "msg", "") or str(error) or "too deep"
            raise InvalidGridConstraintError(text, f"cannot be read: {problem}") from None
        try:
            return cls(text, _evaluator(tree, names, depth=1))
        except _NotAllowedError as problem:
            raise InvalidGridConstraintError(text, str(problem)) from None

    def holds(self, configuration: Mapping[str, Value]) -> bool:
        """Whether a configuration meets it.

        Raises:
            InvalidConstraintError: it divides by zero, compares words with numbers, or is
                no condition for this configuration.
        """
        try:
            found = self._value(configuration)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InvalidGridConstraintError(self.text, f"has no value: {error}") from error
        if not isinstance(found, bool):
            raise InvalidGridConstraintError(self.text, f"is not true or false but {found!r}")
        return found


def value_text(value: Value) -> str:
    """A value for people."""
    return value_word(value) if isinstance(value, bool | str) else f"{value:,.15g}"


def value_word(value: Value) -> str:
    """A value as `--at` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.15g}"


class _NotAllowedError(Exception):
    """What no condition may hold."""


def _evaluator(node: ast.expr, names: Collection[str], *, depth: int) -> _Value:  # noqa: PLR0911 (one per kind)
    """The value of an expression by configuration; what is not allowed is refused here."""
    if depth > MAX_DEPTH:
        raise _NotAllowedError(f"is nested more than {MAX_DEPTH} deep")

    def inner(part: ast.expr) -> _Value:
        return _evaluator(part, names, depth=depth + 1)

    match node:
        case ast.Name(id=name) if name in names:
            return operator.itemgetter(name)
        case ast.Name(id=name):
            raise _NotAllowedError(f"no column {name!r}; there are {', '.join(sorted(names))}")
        case ast.Constant(value=bool() | int() | float() | str() as value):
            constant: Value = value
            return lambda row: constant
        case ast.Constant(value=value):
            raise _NotAllowedError(f"holds {value!r}, which no column can")
        case ast.BoolOp():
            holds = all if isinstance(node.op, ast.And) else any
            parts = [inner(each) for each in node.values]
            return lambda row: holds(_condition(part(row)) for part in parts)
        case ast.UnaryOp(op=ast.Not()):
            operand = inner(node.operand)
            return lambda row: not _condition(operand(row))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            operand, sign = inner(node.operand), -1 if isinstance(node.op, ast.USub) else 1
            return lambda row: sign * _number(operand(row))
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            compute, left, right = _ARITHMETIC[type(node.op)], inner(node.left), inner(node.right)
            return lambda row: compute(_number(left(row)), _number(right(row)))
        case ast.Compare() if all(type(each) in _COMPARISONS for each in node.ops):
            compare = [_COMPARISONS[type(each)] for each in node.ops]
            sides = [inner(each) for each in (node.left, *node.comparators)]
            return lambda row: _compared(compare, (side(row) for side in sides))
    kind = type(getattr(node, "op", node)).__name__
    raise _NotAllowedError(f"{kind} is not allowed, only conditions and arithmetic on columns")


def _compared(compare: Sequence[Callable[[Any, Any], bool]], values: Iterator[Value]) -> bool:
    left = next(values)
    for holds, right in zip(compare, values, strict=False):
        if isinstance(left, str) != isinstance(right, str):
            raise TypeError(f"{left!r} and {right!r} cannot be compared")
        if isinstance(left, str) and holds not in (operator.eq, operator.ne):
            raise TypeError("words are only equal or not")
        if not holds(left, right):
            return False
        left = right
    return True


def _condition(value: Value) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _number(value: Value) -> float:
    if isinstance(value, bool | str):
        raise TypeError(f"{value!r} is no number")
    return value
