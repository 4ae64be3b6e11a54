"""Random relational programs of 3 to 14 steps over events, items, offers and groups.

A program grows from one stream of events. Each turn draws a move that fits what
the stream still has (its keys, its numbers of known range), so that types fit,
filters leave rows, and joins have a known multiplicity: at most one with two
partners per row, all others with one.
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.program import Program
from fedperf_engines.workloads.data import CATEGORIES, GROUPS, HIGHEST_NUMBER, read
from fedperf_engines.workloads.program_draft import (
    Draft,
    between,
    chance,
    count,
    descending,
    eighths,
    highest,
    mean,
    minus,
    pick,
    plus,
    times,
    total,
    where,
)

MAX_STEPS = 14
MIN_STEPS = 3
_JOIN_STEPS = 2
_UNION_STEPS = 3
"""Steps that the larger moves add."""
_LAST_STEPS = 3
"""So near to the end, moves that leave few rows or columns become likely."""
_FEWEST_KEPT = 3
"""Projections keep at least so many columns."""

_RANGES = {"x": HIGHEST_NUMBER, "y": HIGHEST_NUMBER, "weight": HIGHEST_NUMBER}
_WHOLE_RANGES = {"category": CATEGORIES, "group_id": GROUPS, "maker": CATEGORIES}
_GROUPING = ("item", "group_id", "category", "city", "maker", "color", "owner", "seller")
_NUMBERS = ("x", "y", "weight", "cost", "budget")


class _Stream(Draft):
    """A program being written: what is done next reads `end`, where the stream stands."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        super().__init__()
        self.rng, self.rows = rng, rows
        self.joined: set[str] = set()
        self.end = self.add(_source(rng, rows))

    @property
    def columns(self) -> ops.Schema:
        """Columns of the stream."""
        return self.schema(self.end)

    def among(self, names: Collection[str]) -> list[str]:
        """Those names that the stream has, sorted."""
        return sorted(set(ops.names_of(self.columns)).intersection(names))

    def numbers(self, *without: str) -> list[str]:
        """Columns that can be computed with, but for those."""
        return [each.name for each in self.columns if each.numeric and each.name not in without]

    def then(self, operation: ops.AnyOperation) -> None:
        """Apply an operation to the stream."""
        self.end = self.add(operation, self.end)

    def join(self, other: int, join: ops.Join, name: str) -> None:
        """Join the result of another step, which is called `name`."""
        self.end = self.add(join, self.end, other)
        self.joined.add(name)


_Move = Callable[[_Stream], None]


def draw_relational(rng: np.random.Generator, rows: int) -> Program:
    """A program over `rows` events."""
    steps = between(rng, MIN_STEPS, MAX_STEPS)
    stream = _Stream(rng, rows)
    while len(stream) + 1 < steps:
        moves = _moves(stream, steps - len(stream) - 1)
        weights = np.array([weight for _, weight in moves])
        moves[int(rng.choice(len(moves), p=weights / weights.sum()))][0](stream)
    return stream.finish(stream.end)


def _source(rng: np.random.Generator, rows: int) -> ops.ReadParquet:
    everything = ["event", "item", "group_id", "category", "x", "y", "city"]
    dropped = pick(rng, ("event", "y", "city", "category", ""))
    columns = [name for name in everything if name != dropped]
    return read(pick(rng, ("events", "hot_events")), rows, *columns)


def _moves(stream: _Stream, room: int) -> list[tuple[_Move, float]]:
    """Moves that fit the stream's columns and the steps left, with their weights."""
    near_end = room <= _LAST_STEPS
    keys, numbers = bool(stream.among(_GROUPING)), bool(stream.among(_NUMBERS))
    filterable = bool(stream.among((*_RANGES, *_WHOLE_RANGES)))
    beside_itself = keys and numbers and "self" not in stream.joined
    weights: list[tuple[_Move, float]] = [
        (_sort, 0.3),
        (_top, 0.4 if near_end else 0.05),
        (_summary, 0.3 if near_end else 0),
        (_filter, 2.0 if filterable else 0),
        (_project, 1.2 if numbers else 0),
        (_aggregate, (1.0 if near_end else 0.3) if keys else 0),
        (_distinct, (0.5 if near_end else 0.1) if keys else 0),
        (_window, 0.5 if keys else 0),
        (_join_own_aggregate, 0.7 if beside_itself and room >= _JOIN_STEPS else 0),
        (_split_and_union, 0.5 if filterable and room >= _UNION_STEPS else 0),
        *(
            (partial(_join_table, name=name), 1.2)
            for name, (key, *_) in _JOINS.items()
            if room >= _JOIN_STEPS and stream.among({key}) and name not in stream.joined
        ),
    ]
    return [(move, weight) for move, weight in weights if weight]


def _filter(stream: _Stream) -> None:
    stream.then(_condition(stream))


def _condition(stream: _Stream) -> ops.Filter:
    """A condition that keeps between a tenth and nearly all of the rows."""
    rng = stream.rng
    column = pick(rng, stream.among((*_RANGES, *_WHOLE_RANGES)))
    comparison, low, high = ("<", 0.15, 0.95) if chance(rng, 0.5) else (">=", 0.05, 0.85)
    if column in _RANGES:
        span = _RANGES[column]
        return where(column, comparison, eighths(rng, low * span, high * span))
    count = _WHOLE_RANGES[column]
    return where(column, comparison, between(rng, int(low * count), int(high * count)))


def _project(stream: _Stream) -> None:
    rng, numbers, keep = stream.rng, stream.among(_NUMBERS), ops.names_of(stream.columns)
    start = pick(rng, numbers)
    steps = []
    for _ in range(between(rng, 1, 4)):
        make = (plus, minus, times)[between(rng, 0, 2)]
        steps.append(make(eighths(rng, 0.5, 2)))
    if chance(rng, 0.5):
        steps.append(plus(pick(rng, numbers)))
    if len(keep) > _FEWEST_KEPT and chance(rng, 0.5):
        dropped = pick(rng, keep)
        keep = tuple(name for name in keep if name != dropped)
    stream.then(
        ops.Project(keep, (ops.ComputedColumn(f"made_{len(stream)}", start, tuple(steps)),))
    )


def _aggregate(stream: _Stream) -> None:
    rng, keys = stream.rng, stream.among(_GROUPING)
    chosen = [pick(rng, keys)]
    if len(keys) > 1 and chance(rng, 0.35):
        chosen.append(pick(rng, [key for key in keys if key not in chosen]))
    numbers = stream.numbers(*chosen)
    figures = [count(f"count_{len(stream)}")]
    for number, make in enumerate((total, mean, highest)):
        if numbers and chance(rng, 0.5):
            figures.append(make(pick(rng, numbers), f"figure_{len(stream)}_{number}"))
    stream.then(ops.Aggregate(tuple(chosen), tuple(figures)))


def _distinct(stream: _Stream) -> None:
    keys = stream.among(_GROUPING)
    chosen = tuple(key for key in keys if chance(stream.rng, 0.6)) or (pick(stream.rng, keys),)
    stream.then(ops.Distinct(chosen))


def _window(stream: _Stream) -> None:
    rng, numbers = stream.rng, stream.among(_NUMBERS)
    partition = pick(rng, stream.among(_GROUPING))
    others = [name for name in ops.names_of(stream.columns) if name != partition]
    by = (ops.Order(pick(rng, others or [partition]), descending=chance(rng, 0.5)),)
    function, column = ops.WindowFunction.ROW_NUMBER, ""
    if numbers and chance(rng, 0.5):
        function, column = ops.WindowFunction.RUNNING_SUM, pick(rng, numbers)
    stream.then(ops.Window(function, (partition,), by, f"along_{len(stream)}", column))


def _sort(stream: _Stream) -> None:
    column = pick(stream.rng, ops.names_of(stream.columns))
    stream.then(ops.Sort((ops.Order(column, descending=chance(stream.rng, 0.5)),)))


def _top(stream: _Stream) -> None:
    by = descending(pick(stream.rng, ops.names_of(stream.columns)))
    stream.then(ops.TopK(by, between(stream.rng, 10, 1000)))


def _summary(stream: _Stream) -> None:
    numbers, figures = stream.numbers(), [count("all_of_them")]
    if numbers:
        figures.append(mean(pick(stream.rng, numbers), f"overall_{len(stream)}"))
    stream.then(ops.GlobalAggregate(tuple(figures)))


def _split_and_union(stream: _Stream) -> None:
    """Two conditions on one shared result, put together again."""
    left = stream.add(_condition(stream), stream.end)
    right = stream.add(_condition(stream), stream.end)
    stream.end = stream.add(ops.Union(), left, right)


def _join_own_aggregate(stream: _Stream) -> None:
    """Every row beside figures of its group: the shared result is read twice."""
    key = pick(stream.rng, stream.among(_GROUPING))
    number = pick(stream.rng, stream.among(_NUMBERS))
    grouping = ops.Aggregate((key,), (count("size"), mean(number, f"mean_{number}")))
    figures = stream.add(grouping, stream.end)
    stream.join(figures, ops.Join(key, key, right_suffix="_of_group"), "self")


def _join_table(stream: _Stream, name: str) -> None:
    key, table, table_key = _JOINS[name]
    columns: tuple[str, ...] = ()
    if table == "items":
        columns = ("item_key", "weight", "maker", "color")
        columns = columns if chance(stream.rng, 0.6) else columns[:3]
    other = stream.add(read(table, stream.rows, *columns))
    stream.join(other, ops.Join(key, table_key), name)


_JOINS = {
    "item": ("item", "items", "item_key"),
    "offer": ("item", "offers", "offer_item"),
    "group": ("group_id", "groups", "group_key"),
}
"""What may be joined: a key of the stream, a table, and the key there."""
