"""Random relational programs of 3 to 14 steps over events, items, offers and groups.

A program grows from one stream of events. Each turn draws a move that fits what
the stream still has (its keys, its numbers of known range), so that types fit,
filters leave rows, and joins have a known multiplicity: at most one with two
partners per row, all others with one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedperf_client.platforms import operations as ops
from fedperf_client.platforms.program import Program
from fedperf_client.workloads.data import CATEGORIES, GROUPS, HIGHEST_NUMBER, read
from fedperf_client.workloads.program_draft import (
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


@dataclass(frozen=True, slots=True)
class _Stream:
    """Where a result stands, and what may still be done with it."""

    position: int
    joined: frozenset[str] = frozenset()


_Move = Callable[[Draft, np.random.Generator, _Stream, int], _Stream]


def draw_relational(rng: np.random.Generator, rows: int) -> Program:
    """A program over `rows` events."""
    draft = Draft()
    steps = between(rng, MIN_STEPS, MAX_STEPS)
    stream = _Stream(draft.add(_source(rng, rows)))
    while len(draft) + 1 < steps:
        moves = _moves(draft, stream, steps - len(draft) - 1)
        weights = np.array([weight for _, weight in moves])
        move = moves[int(rng.choice(len(moves), p=weights / weights.sum()))][0]
        stream = move(draft, rng, stream, rows)
    return draft.finish(stream.position)


def _source(rng: np.random.Generator, rows: int) -> ops.ReadParquet:
    everything = ["event", "item", "group_id", "category", "x", "y", "city"]
    dropped = pick(rng, ("event", "y", "city", "category", ""))
    columns = [name for name in everything if name != dropped]
    return read(pick(rng, ("events", "hot_events")), rows, *columns)


def _moves(draft: Draft, stream: _Stream, room: int) -> list[tuple[_Move, float]]:
    """Moves that fit the stream's columns and the steps left, with their weights."""
    names = _names(draft, stream)
    near_end = room <= _LAST_STEPS
    keys, numbers = bool(names & set(_GROUPING)), bool(names & set(_NUMBERS))
    filterable = bool(names & (_RANGES.keys() | _WHOLE_RANGES.keys()))
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
            (join, 1.2 if room >= _JOIN_STEPS and _can_join(names, stream, key) else 0)
            for key, join in _JOINS.items()
        ),
    ]
    return [(move, weight) for move, weight in weights if weight]


def _filter(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    return replace(stream, position=draft.add(_condition(draft, rng, stream), stream.position))


def _condition(draft: Draft, rng: np.random.Generator, stream: _Stream) -> ops.Filter:
    """A condition that keeps between a tenth and nearly all of the rows."""
    names = sorted(_names(draft, stream) & (_RANGES.keys() | _WHOLE_RANGES.keys()))
    column = pick(rng, names)
    if chance(rng, 0.5):
        comparison, low, high = ops.Comparison.LESS, 0.15, 0.95
    else:
        comparison, low, high = ops.Comparison.GREATER_OR_EQUAL, 0.05, 0.85
    if column in _RANGES:
        return ops.Filter(
            column, comparison, eighths(rng, low * _RANGES[column], high * _RANGES[column])
        )
    span = _WHOLE_RANGES[column]
    return ops.Filter(column, comparison, between(rng, int(low * span), int(high * span)))


def _project(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    schema = draft.schema(stream.position)
    numbers = sorted(_names(draft, stream) & set(_NUMBERS))
    start = pick(rng, numbers)
    steps = []
    for _ in range(between(rng, 1, 4)):
        make = (plus, minus, times)[between(rng, 0, 2)]
        steps.append(make(eighths(rng, 0.5, 2)))
    if chance(rng, 0.5):
        steps.append(plus(pick(rng, numbers)))
    keep = ops.names_of(schema)
    if len(keep) > _FEWEST_KEPT and chance(rng, 0.5):
        dropped = pick(rng, keep)
        keep = tuple(name for name in keep if name != dropped)
    computed = ops.ComputedColumn(f"made_{len(draft)}", start, tuple(steps))
    return replace(stream, position=draft.add(ops.Project(keep, (computed,)), stream.position))


def _aggregate(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    return replace(stream, position=draft.add(_grouping(draft, rng, stream), stream.position))


def _grouping(draft: Draft, rng: np.random.Generator, stream: _Stream) -> ops.Aggregate:
    schema = draft.schema(stream.position)
    keys = sorted(_names(draft, stream) & set(_GROUPING))
    chosen = [pick(rng, keys)]
    if len(keys) > 1 and chance(rng, 0.35):
        chosen.append(pick(rng, [key for key in keys if key not in chosen]))
    numbers = [column.name for column in schema if column.numeric and column.name not in chosen]
    figures = [count(f"count_{len(draft)}")]
    for number, make in enumerate((total, mean, highest)):
        if numbers and chance(rng, 0.5):
            figures.append(make(pick(rng, numbers), f"figure_{len(draft)}_{number}"))
    return ops.Aggregate(tuple(chosen), tuple(figures))


def _distinct(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    keys = sorted(_names(draft, stream) & set(_GROUPING))
    chosen = tuple(key for key in keys if chance(rng, 0.6)) or (pick(rng, keys),)
    return replace(stream, position=draft.add(ops.Distinct(chosen), stream.position))


def _window(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    schema = draft.schema(stream.position)
    partition = pick(rng, sorted(_names(draft, stream) & set(_GROUPING)))
    others = [column.name for column in schema if column.name != partition]
    by = (ops.Order(pick(rng, others or [partition]), descending=chance(rng, 0.5)),)
    name = f"along_{len(draft)}"
    numbers = sorted(_names(draft, stream) & set(_NUMBERS))
    if numbers and chance(rng, 0.5):
        sums = ops.WindowFunction.RUNNING_SUM
        window = ops.Window(sums, (partition,), by, name, column=pick(rng, numbers))
    else:
        window = ops.Window(ops.WindowFunction.ROW_NUMBER, (partition,), by, name)
    return replace(stream, position=draft.add(window, stream.position))


def _sort(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    names = ops.names_of(draft.schema(stream.position))
    by = (ops.Order(pick(rng, names), descending=chance(rng, 0.5)),)
    return replace(stream, position=draft.add(ops.Sort(by), stream.position))


def _top(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    names = ops.names_of(draft.schema(stream.position))
    top = ops.TopK(descending(pick(rng, names)), between(rng, 10, 1000))
    return replace(stream, position=draft.add(top, stream.position))


def _summary(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rows
    schema = draft.schema(stream.position)
    numbers = [column.name for column in schema if column.numeric]
    figures = [count("all_of_them")]
    if numbers:
        figures.append(mean(pick(rng, numbers), f"overall_{len(draft)}"))
    return replace(stream, position=draft.add(ops.GlobalAggregate(tuple(figures)), stream.position))


def _split_and_union(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    """Two conditions on one shared result, put together again."""
    del rows
    left = draft.add(_condition(draft, rng, stream), stream.position)
    right = draft.add(_condition(draft, rng, stream), stream.position)
    return replace(stream, position=draft.add(ops.Union(), left, right))


def _join_own_aggregate(
    draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int
) -> _Stream:
    """Every row beside figures of its group: the shared result is read twice."""
    del rows
    key = pick(rng, sorted(_names(draft, stream) & set(_GROUPING)))
    number = pick(rng, sorted(_names(draft, stream) & set(_NUMBERS)))
    grouping = ops.Aggregate((key,), (count("size"), mean(number, f"mean_{number}")))
    figures = draft.add(grouping, stream.position)
    joined = draft.add(ops.Join(key, key, right_suffix="_of_group"), stream.position, figures)
    return replace(stream, position=joined, joined=stream.joined | {"self"})


def _join_items(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    columns = ("item_key", "weight", "maker", "color")
    chosen = columns if chance(rng, 0.6) else columns[:3]
    items = draft.add(read("items", rows, *chosen))
    joined = draft.add(ops.Join("item", "item_key"), stream.position, items)
    return replace(stream, position=joined, joined=stream.joined | {"item"})


def _join_offers(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rng
    offers = draft.add(read("offers", rows))
    joined = draft.add(ops.Join("item", "offer_item"), stream.position, offers)
    return replace(stream, position=joined, joined=stream.joined | {"offer"})


def _join_groups(draft: Draft, rng: np.random.Generator, stream: _Stream, rows: int) -> _Stream:
    del rng
    groups = draft.add(read("groups", rows))
    joined = draft.add(ops.Join("group_id", "group_key"), stream.position, groups)
    return replace(stream, position=joined, joined=stream.joined | {"group"})


_JOINS: dict[str, _Move] = {"item": _join_items, "offer": _join_offers, "group": _join_groups}
_JOIN_KEYS = {"item": "item", "offer": "item", "group": "group_id"}


def _can_join(names: set[str], stream: _Stream, join: str) -> bool:
    return _JOIN_KEYS[join] in names and join not in stream.joined


def _names(draft: Draft, stream: _Stream) -> set[str]:
    return set(ops.names_of(draft.schema(stream.position)))
