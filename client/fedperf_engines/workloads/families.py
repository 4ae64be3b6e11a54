"""The families of shipped workloads: random programs of each, and random plans for them.

Word count, embeddings, page rank and credit analysis are more than relational. The family `tpch`
has six join queries in the manner of TPC-H over customers, orders, lines and parts; `rows` are the
rows of `lines`. Foreign keys point to existing, unique keys, so no join gives more rows than its
larger side has.

The family `relational` has programs of 3 to 14 steps over events, items, offers and groups. A
program grows from one stream of events. Each turn draws an operation that fits the columns of the
stream (its keys, its numbers of known range). So types fit, filters leave rows, and joins have a
known multiplicity: at most one with two partners per row, all others with one.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum, unique
from functools import partial

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS, supporting
from fedperf_engines.platforms.operations import Embed
from fedperf_engines.platforms.program import Program, Step, to_json
from fedperf_engines.workloads.data import CATEGORIES, DAYS, GROUPS, HIGHEST_NUMBER, SCALES, read
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform


class Draft:
    """A program under construction. `add` returns the position to read the result from."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._schemas: list[ops.Schema] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, operation: ops.AnyOperation, *inputs: int) -> int:
        """Append a step; InvalidProgramError when its inputs do not fit."""
        schema = ops.output_schema(operation, tuple(self._schemas[parent] for parent in inputs))
        self._steps.append(Step(operation, inputs))
        self._schemas.append(schema)
        return len(self._steps) - 1

    def schema(self, position: int) -> ops.Schema:
        """Return columns of a step's result."""
        return self._schemas[position]

    def finish(self, result: int) -> Program:
        """Return the program whose sink is `result`."""
        self.add(ops.Sink(), result)
        return Program(tuple(self._steps))


def count(name: str = "rows_seen") -> ops.Aggregation:
    """Return number of rows of the group."""
    return ops.Aggregation(ops.AggregateFunction.COUNT, name)


def total(column: str, name: str) -> ops.Aggregation:
    """Return sum of a column."""
    return ops.Aggregation(ops.AggregateFunction.SUM, name, column)


def mean(column: str, name: str) -> ops.Aggregation:
    """Return mean of a column."""
    return ops.Aggregation(ops.AggregateFunction.MEAN, name, column)


def highest(column: str, name: str) -> ops.Aggregation:
    """Return maximum of a column."""
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
    """Return a whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def eighths(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a multiple of 1/8 from low to high, so that computed numbers stay exact."""
    return between(rng, int(low * 8), int(high * 8)) / 8


def chance(rng: np.random.Generator, probability: float) -> bool:
    """Return True with this probability."""
    return bool(rng.random() < probability)


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    """Return one of the choices, all equally likely."""
    return choices[int(rng.integers(len(choices)))]


def draw_word_count(rng: np.random.Generator, rows: int) -> Program:
    """Count the words of a text of `rows` words; keep frequent ones, in order or summed up."""
    draft = Draft()
    text = draft.add(read(pick(rng, ("prose", "chat")), rows))
    words = draft.add(ops.Tokenize("line"), text)
    if chance(rng, 0.5):
        first = pick(rng, "bdfgklmn") + pick(rng, "aeiou")
        words = draft.add(where("word", ">=", first), words)
    if chance(rng, 0.4):
        last = pick(rng, "prst") + pick(rng, "aeiou")
        words = draft.add(where("word", "<", last), words)
    counted = draft.add(ops.Aggregate(("word",), (count("times_seen"),)), words)
    if chance(rng, 0.8):
        least = where("times_seen", ">=", between(rng, 1, 6))
        counted = draft.add(least, counted)
    ending = pick(rng, ("sorted", "best", "summed", "plain"))
    if ending == "sorted":
        counted = draft.add(ops.Sort(descending("times_seen")), counted)
    elif ending == "best":
        counted = draft.add(ops.TopK(descending("times_seen"), between(rng, 5, 1000)), counted)
    elif ending == "summed":
        overall = ops.GlobalAggregate((count("words"), total("times_seen", "seen")))
        counted = draft.add(overall, counted)
    return draft.finish(counted)


def draw_embeddings(rng: np.random.Generator, rows: int) -> Program:
    """Embed the words of a text of `rows` words; cluster frequent ones, or list some."""
    draft = Draft()
    text = draft.add(read(pick(rng, ("prose", "chat")), rows))
    embed = ops.Embed("line", dimensions=between(rng, 2, 12), window=between(rng, 1, 4))
    words = draft.add(embed, text)
    if chance(rng, 0.5):
        first = pick(rng, "bdfgklmn") + pick(rng, "aeiou")
        words = draft.add(where("word", ">=", first), words)
    if chance(rng, 0.5):
        tokens = draft.add(ops.Tokenize("line", "seen_word"), text)
        counted = draft.add(ops.Aggregate(("seen_word",), (count("times_seen"),)), tokens)
        words = draft.add(ops.Join("word", "seen_word"), words, counted)
        least = where("times_seen", ">=", between(rng, 1, 6))
        words = draft.add(least, words)
    axes = embed.vector_names[: between(rng, 2, 6)]
    if chance(rng, 0.6):
        centers = draft.add(ops.KMeans(axes, between(rng, 2, 12), between(rng, 3, 12)), words)
        words = draft.add(ops.KMeansAssign(axes), words, centers)
        return draft.finish(draft.add(ops.Aggregate(("cluster",), (count("words"),)), words))
    return draft.finish(draft.add(ops.TopK(descending("e0"), between(rng, 5, 1000)), words))


def draw_pagerank(rng: np.random.Generator, rows: int) -> Program:
    """Rank the nodes of a graph of `rows` edges; sometimes repeated edges are removed first."""
    draft = Draft()
    edges = draft.add(read(pick(rng, ("web", "social")), rows))
    if chance(rng, 0.3):
        condition = where("source", "<", int(2**32 * rng.uniform(0.3, 1)))
        edges = draft.add(condition, edges)
    graph = edges
    if chance(rng, 0.3):
        graph = draft.add(ops.Distinct(("source", "target")), edges)
    damping = between(rng, 70, 95) / 100
    ranks = draft.add(ops.PageRank("source", "target", between(rng, 2, 20), damping), graph)
    if chance(rng, 0.4):
        followers = draft.add(ops.Aggregate(("target",), (count("followers"),)), edges)
        ranks = draft.add(ops.Join("node", "target"), ranks, followers)
        ranks = draft.add(where("followers", ">=", between(rng, 1, 5)), ranks)
    if chance(rng, 0.8):
        ranks = draft.add(ops.TopK(descending("rank"), between(rng, 5, 1000)), ranks)
    return draft.finish(ranks)


def draw_credit(rng: np.random.Generator, rows: int) -> Program:
    """Join applications with `rows` records of their histories, then cluster or score them."""
    draft = Draft()
    applicants = draft.add(read("applications", rows))
    if chance(rng, 0.5):
        condition = where("amount", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.8))
        applicants = draft.add(condition, applicants)
    records = draft.add(read("records", rows, "application_of", "balance", "days_late"))
    if chance(rng, 0.5):
        late = where("days_late", ">=", between(rng, 0, 60))
        records = draft.add(late, records)
    figures = (count("records"), mean("balance", "mean_balance"), highest("days_late", "worst"))
    history = draft.add(ops.Aggregate(("application_of",), figures), records)
    joined = draft.add(ops.Join("application", "application_of"), applicants, history)
    gap = ops.ComputedColumn("gap", "income", (minus("amount"), times(eighths(rng, 0.5, 2))))
    points = draft.add(
        ops.Project(("application", "region", "age", "mean_balance", "worst"), (gap,)), joined
    )
    if chance(rng, 0.65):
        return draft.finish(_clustered(draft, rng, points))
    return draft.finish(_scored(draft, rng, points))


def _clustered(draft: Draft, rng: np.random.Generator, points: int) -> int:
    columns = ("gap", "mean_balance", "worst", "age")[: between(rng, 2, 4)]
    centers = draft.add(ops.KMeans(columns, between(rng, 2, 8), between(rng, 3, 15)), points)
    labelled = draft.add(ops.KMeansAssign(columns), points, centers)
    keys = ("cluster", "region") if chance(rng, 0.4) else ("cluster",)
    figures = (count("applicants"), mean("gap", "mean_gap"))
    return draft.add(ops.Aggregate(keys, figures), labelled)


def _scored(draft: Draft, rng: np.random.Generator, points: int) -> int:
    features = ("gap", "worst", "age")[: between(rng, 1, 3)]
    model = draft.add(ops.LinearRegression(features, "mean_balance", eighths(rng, 0.5, 8)), points)
    scored = draft.add(ops.LinearPredict(features), points, model)
    if chance(rng, 0.5):
        return draft.add(ops.TopK(descending("prediction"), between(rng, 10, 1000)), scored)
    return draft.add(
        ops.Aggregate(("region",), (count("applicants"), mean("prediction", "score"))), scored
    )


_REVENUE = ops.ComputedColumn("revenue", "discount", (times(-1.0), minus(-1.0), times("price")))


def draw_tpch(rng: np.random.Generator, rows: int) -> Program:
    """Return one of six queries with drawn parameters."""
    queries = (
        _pricing_summary,
        _shipping_priority,
        _nation_volume,
        _returned_items,
        _brand_revenue,
        _large_orders,
    )
    return queries[int(rng.integers(len(queries)))](rng, rows)


def _pricing_summary(rng: np.random.Generator, rows: int) -> Program:
    """Build query 1: one pass over lines, few groups."""
    draft = Draft()
    lines = draft.add(
        read("lines", rows, "quantity", "price", "discount", "ship_day", "return_flag")
    )
    shipped = draft.add(where("ship_day", "<=", _day(rng)), lines)
    priced = draft.add(ops.Project(("return_flag", "quantity", "price"), (_REVENUE,)), shipped)
    figures = (total("quantity", "pieces"), total("revenue", "net"), mean("price", "mean_price"))
    summary = draft.add(ops.Aggregate(("return_flag",), (*figures, count())), priced)
    return draft.finish(draft.add(ops.Sort(descending("net")), summary))


def _shipping_priority(rng: np.random.Generator, rows: int) -> Program:
    """Build query 3: three tables, selective, best orders."""
    draft = Draft()
    day = _day(rng)
    customers = draft.add(read("customers", rows, "customer", "segment"))
    segment = draft.add(where("segment", "=", f"segment_{between(rng, 0, 4):02d}"), customers)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    early = draft.add(where("order_day", "<", day), orders)
    bought = draft.add(ops.Join("order_customer", "customer"), early, segment)
    lines = draft.add(read("lines", rows, "line_order", "price", "discount", "ship_day"))
    late = draft.add(where("ship_day", ">", day), lines)
    joined = draft.add(ops.Join("line_order", "order_id"), late, bought)
    priced = draft.add(ops.Project(("line_order", "order_day"), (_REVENUE,)), joined)
    summed = draft.add(
        ops.Aggregate(("line_order", "order_day"), (total("revenue", "net"),)), priced
    )
    return draft.finish(draft.add(ops.TopK(descending("net"), between(rng, 5, 100)), summed))


def _nation_volume(rng: np.random.Generator, rows: int) -> Program:
    """Build query 5: three tables, a range of days, revenue per nation."""
    draft = Draft()
    first = between(rng, 0, DAYS // 2)
    last = first + between(rng, 100, DAYS // 2)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    since = draft.add(where("order_day", ">=", first), orders)
    period = draft.add(where("order_day", "<", last), since)
    customers = draft.add(read("customers", rows, "customer", "nation"))
    bought = draft.add(ops.Join("order_customer", "customer"), period, customers)
    lines = draft.add(read("lines", rows, "line_order", "price", "discount"))
    joined = draft.add(ops.Join("line_order", "order_id"), lines, bought)
    priced = draft.add(ops.Project(("nation",), (_REVENUE,)), joined)
    volume = draft.add(ops.Aggregate(("nation",), (total("revenue", "net"), count())), priced)
    return draft.finish(draft.add(ops.Sort(descending("net")), volume))


def _returned_items(rng: np.random.Generator, rows: int) -> Program:
    """Build query 10: customers by lost revenue; many groups."""
    draft = Draft()
    lines = draft.add(read("lines", rows, "line_order", "price", "discount", "return_flag"))
    flag = f"flag_{between(rng, 0, 2):02d}"
    returned = draft.add(where("return_flag", "=", flag), lines)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    recent = draft.add(where("order_day", ">", _day(rng)), orders)
    joined = draft.add(ops.Join("line_order", "order_id"), returned, recent)
    priced = draft.add(ops.Project(("order_customer",), (_REVENUE,)), joined)
    lost = draft.add(ops.Aggregate(("order_customer",), (total("revenue", "net"),)), priced)
    customers = draft.add(read("customers", rows))
    named = draft.add(ops.Join("order_customer", "customer"), lost, customers)
    return draft.finish(draft.add(ops.TopK(descending("net"), between(rng, 5, 200)), named))


def _brand_revenue(rng: np.random.Generator, rows: int) -> Program:
    """Build queries 14 and 19: lines with parts of some size, by brand or altogether."""
    draft = Draft()
    parts = draft.add(read("parts", rows))
    small = draft.add(where("size", "<=", between(rng, 3, 50)), parts)
    lines = draft.add(read("lines", rows, "line_part", "price", "discount", "quantity"))
    few = draft.add(where("quantity", ">", between(rng, 0, 40)), lines)
    joined = draft.add(ops.Join("line_part", "part"), few, small)
    priced = draft.add(ops.Project(("brand", "quantity"), (_REVENUE,)), joined)
    figures = (total("revenue", "net"), mean("quantity", "mean_quantity"), count())
    if chance(rng, 0.3):
        return draft.finish(draft.add(ops.GlobalAggregate(figures), priced))
    return draft.finish(draft.add(ops.Aggregate(("brand",), figures), priced))


def _large_orders(rng: np.random.Generator, rows: int) -> Program:
    """Build query 18: group all lines by order first, then join the large ones."""
    draft = Draft()
    lines = draft.add(read("lines", rows, "line_order", "quantity", "price"))
    figures = (total("quantity", "pieces"), total("price", "gross"))
    grouped = draft.add(ops.Aggregate(("line_order",), figures), lines)
    large = draft.add(where("pieces", ">", between(rng, 50, 200)), grouped)
    orders = draft.add(read("orders", rows))
    rich = draft.add(where("total", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.7)), orders)
    joined = draft.add(ops.Join("line_order", "order_id"), large, rich)
    by = pick(rng, ("gross", "total", "pieces"))
    return draft.finish(draft.add(ops.TopK(descending(by), between(rng, 5, 500)), joined))


def _day(rng: np.random.Generator) -> int:
    return between(rng, DAYS // 10, DAYS * 9 // 10)


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
    """A program under construction. The next operation reads `end`, the stream's last step."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        super().__init__()
        self.rng, self.rows = rng, rows
        self.joined: set[str] = set()
        self.end = self.add(_source(rng, rows))

    @property
    def columns(self) -> ops.Schema:
        """Return columns of the stream."""
        return self.schema(self.end)

    def among(self, names: Collection[str]) -> list[str]:
        """Return the names that the stream has, sorted."""
        return sorted(set(ops.column_names(self.columns)).intersection(names))

    def numbers(self, *without: str) -> list[str]:
        """Return the numeric columns, except for those named."""
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
    """Return a program over `rows` events."""
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
        (lambda stream: stream.then(_condition(stream)), 2.0 if filterable else 0),
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


def _condition(stream: _Stream) -> ops.Filter:
    """Return a condition that keeps between a tenth and nearly all of the rows."""
    rng = stream.rng
    column = pick(rng, stream.among((*_RANGES, *_WHOLE_RANGES)))
    comparison, low, high = ("<", 0.15, 0.95) if chance(rng, 0.5) else (">=", 0.05, 0.85)
    if column in _RANGES:
        span = _RANGES[column]
        return where(column, comparison, eighths(rng, low * span, high * span))
    count = _WHOLE_RANGES[column]
    return where(column, comparison, between(rng, int(low * count), int(high * count)))


def _project(stream: _Stream) -> None:
    rng, numbers, keep = stream.rng, stream.among(_NUMBERS), ops.column_names(stream.columns)
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
    group_keys = [pick(rng, keys)]
    if len(keys) > 1 and chance(rng, 0.35):
        group_keys.append(pick(rng, [key for key in keys if key not in group_keys]))
    numbers = stream.numbers(*group_keys)
    figures = [count(f"count_{len(stream)}")]
    for number, make in enumerate((total, mean, highest)):
        if numbers and chance(rng, 0.5):
            figures.append(make(pick(rng, numbers), f"figure_{len(stream)}_{number}"))
    stream.then(ops.Aggregate(tuple(group_keys), tuple(figures)))


def _distinct(stream: _Stream) -> None:
    keys = stream.among(_GROUPING)
    subset = tuple(key for key in keys if chance(stream.rng, 0.6)) or (pick(stream.rng, keys),)
    stream.then(ops.Distinct(subset))


def _window(stream: _Stream) -> None:
    rng, numbers = stream.rng, stream.among(_NUMBERS)
    partition = pick(rng, stream.among(_GROUPING))
    others = [name for name in ops.column_names(stream.columns) if name != partition]
    by = (ops.Order(pick(rng, others or [partition]), descending=chance(rng, 0.5)),)
    function, column = ops.WindowFunction.ROW_NUMBER, ""
    if numbers and chance(rng, 0.5):
        function, column = ops.WindowFunction.RUNNING_SUM, pick(rng, numbers)
    stream.then(ops.Window(function, (partition,), by, f"along_{len(stream)}", column))


def _sort(stream: _Stream) -> None:
    column = pick(stream.rng, ops.column_names(stream.columns))
    stream.then(ops.Sort((ops.Order(column, descending=chance(stream.rng, 0.5)),)))


def _top(stream: _Stream) -> None:
    by = descending(pick(stream.rng, ops.column_names(stream.columns)))
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
    """Join every row with aggregates of its group: the shared result is read twice."""
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


ONE_PLATFORM_SHARE = 0.6
"""How often a drawn plan stays on one platform where that is possible."""
SWITCH_CHANCE = 0.2
"""How often a step of a mixed plan draws a platform of its own instead of its input's."""
TRAINING_SWITCH_CHANCE = 0.7
"""The same for graph and training steps, for which more platforms compete."""


@unique
class Family(StrEnum):
    """A kind of job; the value is its name in files and commands."""

    WORD_COUNT = "word_count"
    EMBEDDINGS = "embeddings"
    PAGERANK = "pagerank"
    CREDIT = "credit"
    TPCH = "tpch"
    RELATIONAL = "relational"


_DRAW = {
    Family.WORD_COUNT: draw_word_count,
    Family.EMBEDDINGS: draw_embeddings,
    Family.PAGERANK: draw_pagerank,
    Family.CREDIT: draw_credit,
    Family.TPCH: draw_tpch,
    Family.RELATIONAL: draw_relational,
}
_FAMILY_OF_TABLE = {
    "prose": Family.WORD_COUNT,
    "chat": Family.WORD_COUNT,
    "web": Family.PAGERANK,
    "social": Family.PAGERANK,
    "applications": Family.CREDIT,
    "lines": Family.TPCH,
    "events": Family.RELATIONAL,
    "hot_events": Family.RELATIONAL,
}


def draw_program(family: Family, *, rng: np.random.Generator, rows: int) -> Program:
    """Return a program of the family whose largest source has `rows` rows (words, for texts).

    Its data sets are named by `program.datasets`; `data.prepare` writes them.

    Raises:
        InvalidInputError: `rows` is not one of `data.SCALES`.
    """
    if rows not in SCALES:
        raise InvalidInputError(f"rows must be one of {', '.join(map(str, SCALES))}, got {rows!r}")
    return _DRAW[family](rng, rows)


def workload_name(program: Program) -> str:
    """Family and fingerprint: the same for one program on data sets of any scale.

    Literals are part of the fingerprint, so the name must not leave the organization.
    """
    unscaled = re.sub(rb'("dataset":"[a-z_]+)_\d+"', rb'\1"', to_json(program))
    digest = hashlib.blake2b(unscaled, digest_size=8).hexdigest()
    return f"{_family_name(program)}-{digest}"


def single_platforms(
    program: Program, among: Collection[Platform] = EMBEDDED_PLATFORMS
) -> tuple[Platform, ...]:
    """Return the platforms that can run the whole program, in the order of the vocabulary."""
    able = set(among)
    for step in program.steps:
        able &= set(supporting(step.operation, among))
    return tuple(sorted(able))


def draw_platforms(program: Program, *, rng: np.random.Generator) -> tuple[Platform, ...]:
    """Return a random valid platform per step: one for all in 60 %, else mixed with few switches.

    Embedded platforms only, whatever is installed: the same seed draws the same plans.
    """
    single = single_platforms(program)
    if single and rng.random() < ONE_PLATFORM_SHARE:
        return (single[int(rng.integers(len(single)))],) * len(program.steps)
    platforms: list[Platform] = []
    favourite = _any_of(supporting(program.steps[0].operation), rng)
    for step in program.steps:
        able = supporting(step.operation)
        trains = step.operation.kind in {OperatorKind.GRAPH_ITERATE, OperatorKind.ML_TRAIN}
        platform = favourite
        if step.inputs:  # a prediction stays with its model, other steps with their rows
            closest = -1 if step.operation.kind is OperatorKind.ML_PREDICT else 0
            platform = platforms[step.inputs[closest]]
        if rng.random() < (TRAINING_SWITCH_CHANCE if trains else SWITCH_CHANCE):
            platform = _any_of(able, rng)
        elif platform not in able:
            platform = favourite
        platforms.append(platform)
    return tuple(platforms)


def _family_name(program: Program) -> str:
    if any(isinstance(step.operation, Embed) for step in program.steps):
        return Family.EMBEDDINGS.value
    tables = [dataset.rpartition("_")[0] for dataset in program.datasets]
    families = [_FAMILY_OF_TABLE[table].value for table in tables if table in _FAMILY_OF_TABLE]
    return families[0] if families else "own"


def _any_of(platforms: tuple[Platform, ...], rng: np.random.Generator) -> Platform:
    return platforms[int(rng.integers(len(platforms)))]
