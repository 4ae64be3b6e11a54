"""Constraints of a campaign's grid: conditions on the columns, like `workers <= 8 or rows > 10`.

The text is parsed by `ast` and only ever walked, never compiled or run: comparisons,
`and`, `or`, `not`, arithmetic with + - * / // %, numbers, words and names of columns.
Everything else is refused by name, as are texts that are too long or too deep, so that
a hostile constraint costs no more time or memory than a friendly one.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

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
_ORDERS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


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
    _tree: ast.expr

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
        tree = _parsed(text)
        _require_allowed(text, tree, names, depth=1)
        return cls(text, tree)

    def holds(self, configuration: Mapping[str, Value]) -> bool:
        """Whether a configuration meets it.

        Raises:
            InvalidConstraintError: it divides by zero, compares words with numbers, or is
                no condition for this configuration.
        """
        try:
            found = _value(self._tree, configuration)
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


def _parsed(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd but harmless spellings
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = getattr(error, "msg", "") or str(error) or "too deep"
        raise InvalidGridConstraintError(text, f"cannot be read: {problem}") from None


def _require_allowed(text: str, node: ast.expr, names: Collection[str], *, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidGridConstraintError(text, f"is nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Name(id=name):
            if name not in names:
                known = ", ".join(sorted(names))
                raise InvalidGridConstraintError(text, f"no column {name!r}; there are {known}")
            return
        case ast.Constant(value=value):
            if not isinstance(value, bool | int | float | str):
                raise InvalidGridConstraintError(text, f"holds {value!r}, which no column can")
            return
        case ast.BoolOp():
            parts = node.values
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()):
            parts = [node.operand]
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            parts = [node.left, node.right]
        case ast.Compare() if all(
            type(each) in _ORDERS or isinstance(each, ast.Eq | ast.NotEq) for each in node.ops
        ):
            parts = [node.left, *node.comparators]
        case _:
            raise InvalidGridConstraintError(
                text, f"{_kind(node)} is not allowed, only conditions and arithmetic on columns"
            )
    for part in parts:
        _require_allowed(text, part, names, depth=depth + 1)


def _kind(node: ast.expr) -> str:
    inner = getattr(node, "op", None)
    return type(node if inner is None else inner).__name__


def _value(node: ast.expr, row: Mapping[str, Value]) -> Value:  # noqa: PLR0911 (one per kind)
    match node:
        case ast.Name(id=name):
            return row[name]
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_condition(each, row) for each in values)
        case ast.BoolOp(values=values):
            return any(_condition(each, row) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _condition(operand, row)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, row)
        case ast.UnaryOp(operand=operand):
            return _number(operand, row)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(left, row), _number(right, row))
        case ast.Compare():
            return _compared(node, row)
    raise TypeError(f"{_kind(node)} is not allowed")


def _compared(node: ast.Compare, row: Mapping[str, Value]) -> bool:
    left = _value(node.left, row)
    for order, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, row)
        if isinstance(left, str) != isinstance(right, str):
            raise TypeError(f"{left!r} and {right!r} cannot be compared")
        if isinstance(order, ast.Eq | ast.NotEq):
            holds = (left == right) == isinstance(order, ast.Eq)
        elif isinstance(left, str) or isinstance(right, str):
            raise TypeError("words are only equal or not")
        else:
            holds = _ORDERS[type(order)](left, right)
        if not holds:
            return False
        left = right
    return True


def _condition(node: ast.expr, row: Mapping[str, Value]) -> bool:
    found = _value(node, row)
    if not isinstance(found, bool):
        raise TypeError(f"{found!r} is not true or false")
    return found


def _number(node: ast.expr, row: Mapping[str, Value]) -> float:
    found = _value(node, row)
    if isinstance(found, bool | str):
        raise TypeError(f"{found!r} is no number")
    return found
