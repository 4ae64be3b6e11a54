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
from dataclasses import dataclass
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
    """A program under construction, over tables of one scale."""

    def __init__(self, scale: int) -> None:
        """Begin without steps; `scale` is one of `data.SCALES`."""
        self.scale = scale
        self.steps: list[Step] = []
        self.schemas: list[ops.Schema] = []

    def read(self, table: str, *columns: str) -> "Rows":
        """Append a step that reads columns of a table, all of them by default."""
        return self.add(read(table, self.scale, *columns))

    def add(self, operation: ops.AnyOperation, *inputs: "Rows") -> "Rows":
        """Append a step; InvalidProgramError when its inputs do not fit."""
        schema = ops.output_schema(operation, tuple(each.columns for each in inputs))
        self.steps.append(Step(operation, tuple(each.position for each in inputs)))
        self.schemas.append(schema)
        return Rows(self, len(self.steps) - 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of one step of a draft."""

    draft: Draft
    position: int

    @property
    def columns(self) -> ops.Schema:
        """Return its columns."""
        return self.draft.schemas[self.position]

    def then(self, operation: ops.AnyOperation, *others: "Rows") -> "Rows":
        """Append a step that reads this result first, and then the others."""
        return self.draft.add(operation, self, *others)

    def where(self, column: str, comparison: str, literal: str | float) -> "Rows":
        """Append a step that keeps the rows where the comparison holds."""
        return self.then(ops.Filter(column, ops.Comparison(comparison), literal))

    def finish(self) -> Program:
        """Return the program whose sink reads this result."""
        self.then(ops.Sink())
        return Program(tuple(self.draft.steps))


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


plus = partial(ops.Arithmetic, ops.ArithmeticOperator.ADD)
minus = partial(ops.Arithmetic, ops.ArithmeticOperator.SUBTRACT)
times = partial(ops.Arithmetic, ops.ArithmeticOperator.MULTIPLY)


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
    words = Draft(rows).read(pick(rng, ("prose", "chat"))).then(ops.Tokenize("line"))
    if chance(rng, 0.5):
        words = words.where("word", ">=", pick(rng, "bdfgklmn") + pick(rng, "aeiou"))
    if chance(rng, 0.4):
        words = words.where("word", "<", pick(rng, "prst") + pick(rng, "aeiou"))
    counted = words.then(ops.Aggregate(("word",), (count("times_seen"),)))
    if chance(rng, 0.8):
        counted = counted.where("times_seen", ">=", between(rng, 1, 6))
    ending = pick(rng, ("sorted", "best", "summed", "plain"))
    if ending == "sorted":
        counted = counted.then(ops.Sort(descending("times_seen")))
    elif ending == "best":
        counted = counted.then(ops.TopK(descending("times_seen"), between(rng, 5, 1000)))
    elif ending == "summed":
        counted = counted.then(ops.GlobalAggregate((count("words"), total("times_seen", "seen"))))
    return counted.finish()


def draw_embeddings(rng: np.random.Generator, rows: int) -> Program:
    """Embed the words of a text of `rows` words; cluster frequent ones, or list some."""
    text = Draft(rows).read(pick(rng, ("prose", "chat")))
    embed = ops.Embed("line", dimensions=between(rng, 2, 12), window=between(rng, 1, 4))
    words = text.then(embed)
    if chance(rng, 0.5):
        words = words.where("word", ">=", pick(rng, "bdfgklmn") + pick(rng, "aeiou"))
    if chance(rng, 0.5):
        tokens = text.then(ops.Tokenize("line", "seen_word"))
        counted = tokens.then(ops.Aggregate(("seen_word",), (count("times_seen"),)))
        words = words.then(ops.Join("word", "seen_word"), counted)
        words = words.where("times_seen", ">=", between(rng, 1, 6))
    axes = embed.vector_names[: between(rng, 2, 6)]
    if chance(rng, 0.6):
        centers = words.then(ops.KMeans(axes, between(rng, 2, 12), between(rng, 3, 12)))
        words = words.then(ops.KMeansAssign(axes), centers)
        return words.then(ops.Aggregate(("cluster",), (count("words"),))).finish()
    return words.then(ops.TopK(descending("e0"), between(rng, 5, 1000))).finish()


def draw_pagerank(rng: np.random.Generator, rows: int) -> Program:
    """Rank the nodes of a graph of `rows` edges; sometimes repeated edges are removed first."""
    edges = Draft(rows).read(pick(rng, ("web", "social")))
    if chance(rng, 0.3):
        edges = edges.where("source", "<", int(2**32 * rng.uniform(0.3, 1)))
    graph = edges
    if chance(rng, 0.3):
        graph = edges.then(ops.Distinct(("source", "target")))
    damping = between(rng, 70, 95) / 100
    ranks = graph.then(ops.PageRank("source", "target", between(rng, 2, 20), damping))
    if chance(rng, 0.4):
        followers = edges.then(ops.Aggregate(("target",), (count("followers"),)))
        ranks = ranks.then(ops.Join("node", "target"), followers)
        ranks = ranks.where("followers", ">=", between(rng, 1, 5))
    if chance(rng, 0.8):
        ranks = ranks.then(ops.TopK(descending("rank"), between(rng, 5, 1000)))
    return ranks.finish()


def draw_credit(rng: np.random.Generator, rows: int) -> Program:
    """Join applications with `rows` records of their histories, then cluster or score them."""
    draft = Draft(rows)
    applicants = draft.read("applications")
    if chance(rng, 0.5):
        applicants = applicants.where("amount", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.8))
    records = draft.read("records", "application_of", "balance", "days_late")
    if chance(rng, 0.5):
        records = records.where("days_late", ">=", between(rng, 0, 60))
    figures = (count("records"), mean("balance", "mean_balance"), highest("days_late", "worst"))
    history = records.then(ops.Aggregate(("application_of",), figures))
    joined = applicants.then(ops.Join("application", "application_of"), history)
    gap = ops.ComputedColumn("gap", "income", (minus("amount"), times(eighths(rng, 0.5, 2))))
    points = joined.then(
        ops.Project(("application", "region", "age", "mean_balance", "worst"), (gap,))
    )
    return (_clustered if chance(rng, 0.65) else _scored)(rng, points).finish()


def _clustered(rng: np.random.Generator, points: Rows) -> Rows:
    columns = ("gap", "mean_balance", "worst", "age")[: between(rng, 2, 4)]
    centers = points.then(ops.KMeans(columns, between(rng, 2, 8), between(rng, 3, 15)))
    labelled = points.then(ops.KMeansAssign(columns), centers)
    keys = ("cluster", "region") if chance(rng, 0.4) else ("cluster",)
    return labelled.then(ops.Aggregate(keys, (count("applicants"), mean("gap", "mean_gap"))))


def _scored(rng: np.random.Generator, points: Rows) -> Rows:
    features = ("gap", "worst", "age")[: between(rng, 1, 3)]
    model = points.then(ops.LinearRegression(features, "mean_balance", eighths(rng, 0.5, 8)))
    scored = points.then(ops.LinearPredict(features), model)
    if chance(rng, 0.5):
        return scored.then(ops.TopK(descending("prediction"), between(rng, 10, 1000)))
    figures = (count("applicants"), mean("prediction", "score"))
    return scored.then(ops.Aggregate(("region",), figures))


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
    return queries[int(rng.integers(len(queries)))](rng, Draft(rows)).finish()


def _pricing_summary(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build query 1: one pass over lines, few groups."""
    lines = draft.read("lines", "quantity", "price", "discount", "ship_day", "return_flag")
    shipped = lines.where("ship_day", "<=", _day(rng))
    priced = shipped.then(ops.Project(("return_flag", "quantity", "price"), (_REVENUE,)))
    figures = (total("quantity", "pieces"), total("revenue", "net"), mean("price", "mean_price"))
    summary = priced.then(ops.Aggregate(("return_flag",), (*figures, count())))
    return summary.then(ops.Sort(descending("net")))


def _shipping_priority(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build query 3: three tables, selective, best orders."""
    day = _day(rng)
    customers = draft.read("customers", "customer", "segment")
    segment = customers.where("segment", "=", f"segment_{between(rng, 0, 4):02d}")
    orders = draft.read("orders", "order_id", "order_customer", "order_day")
    early = orders.where("order_day", "<", day)
    bought = early.then(ops.Join("order_customer", "customer"), segment)
    lines = draft.read("lines", "line_order", "price", "discount", "ship_day")
    joined = lines.where("ship_day", ">", day).then(ops.Join("line_order", "order_id"), bought)
    keys = ("line_order", "order_day")
    summed = joined.then(ops.Project(keys, (_REVENUE,))).then(
        ops.Aggregate(keys, (total("revenue", "net"),))
    )
    return summed.then(ops.TopK(descending("net"), between(rng, 5, 100)))


def _nation_volume(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build query 5: three tables, a range of days, revenue per nation."""
    first = between(rng, 0, DAYS // 2)
    last = first + between(rng, 100, DAYS // 2)
    orders = draft.read("orders", "order_id", "order_customer", "order_day")
    period = orders.where("order_day", ">=", first).where("order_day", "<", last)
    customers = draft.read("customers", "customer", "nation")
    bought = period.then(ops.Join("order_customer", "customer"), customers)
    lines = draft.read("lines", "line_order", "price", "discount")
    joined = lines.then(ops.Join("line_order", "order_id"), bought)
    priced = joined.then(ops.Project(("nation",), (_REVENUE,)))
    volume = priced.then(ops.Aggregate(("nation",), (total("revenue", "net"), count())))
    return volume.then(ops.Sort(descending("net")))


def _returned_items(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build query 10: customers by lost revenue; many groups."""
    lines = draft.read("lines", "line_order", "price", "discount", "return_flag")
    returned = lines.where("return_flag", "=", f"flag_{between(rng, 0, 2):02d}")
    orders = draft.read("orders", "order_id", "order_customer", "order_day")
    recent = orders.where("order_day", ">", _day(rng))
    joined = returned.then(ops.Join("line_order", "order_id"), recent)
    priced = joined.then(ops.Project(("order_customer",), (_REVENUE,)))
    lost = priced.then(ops.Aggregate(("order_customer",), (total("revenue", "net"),)))
    named = lost.then(ops.Join("order_customer", "customer"), draft.read("customers"))
    return named.then(ops.TopK(descending("net"), between(rng, 5, 200)))


def _brand_revenue(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build queries 14 and 19: lines with parts of some size, by brand or altogether."""
    small = draft.read("parts").where("size", "<=", between(rng, 3, 50))
    lines = draft.read("lines", "line_part", "price", "discount", "quantity")
    few = lines.where("quantity", ">", between(rng, 0, 40))
    joined = few.then(ops.Join("line_part", "part"), small)
    priced = joined.then(ops.Project(("brand", "quantity"), (_REVENUE,)))
    figures = (total("revenue", "net"), mean("quantity", "mean_quantity"), count())
    if chance(rng, 0.3):
        return priced.then(ops.GlobalAggregate(figures))
    return priced.then(ops.Aggregate(("brand",), figures))


def _large_orders(rng: np.random.Generator, draft: Draft) -> Rows:
    """Build query 18: group all lines by order first, then join the large ones."""
    lines = draft.read("lines", "line_order", "quantity", "price")
    figures = (total("quantity", "pieces"), total("price", "gross"))
    grouped = lines.then(ops.Aggregate(("line_order",), figures))
    large = grouped.where("pieces", ">", between(rng, 50, 200))
    rich = draft.read("orders").where("total", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.7))
    joined = large.then(ops.Join("line_order", "order_id"), rich)
    by = pick(rng, ("gross", "total", "pieces"))
    return joined.then(ops.TopK(descending(by), between(rng, 5, 500)))


def _day(rng: np.random.Generator) -> int:
    return between(rng, DAYS // 10, DAYS * 9 // 10)


MAX_STEPS = 14
MIN_STEPS = 3
_JOIN_STEPS = 2
_UNION_STEPS = 3  # steps that the larger moves add
_LAST_STEPS = 3  # so near to the end, moves that leave few rows or columns become likely
_FEWEST_KEPT = 3  # projections keep at least so many columns
_RANGES = {"x": HIGHEST_NUMBER, "y": HIGHEST_NUMBER, "weight": HIGHEST_NUMBER}
_WHOLE_RANGES = {"category": CATEGORIES, "group_id": GROUPS, "maker": CATEGORIES}
_GROUPING = ("item", "group_id", "category", "city", "maker", "color", "owner", "seller")
_NUMBERS = ("x", "y", "weight", "cost", "budget")


class _Stream:
    """A program under construction. The next operation reads `end`, the stream's last step."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self.rng, self.draft = rng, Draft(rows)
        self.joined: set[str] = set()
        everything = ["event", "item", "group_id", "category", "x", "y", "city"]
        dropped = pick(rng, ("event", "y", "city", "category", ""))
        columns = [name for name in everything if name != dropped]
        self.end = self.draft.read(pick(rng, ("events", "hot_events")), *columns)

    def __len__(self) -> int:
        return len(self.draft.steps)

    @property
    def columns(self) -> ops.Schema:
        """Return columns of the stream."""
        return self.end.columns

    def among(self, names: Collection[str]) -> list[str]:
        """Return the names that the stream has, sorted."""
        return sorted(set(ops.column_names(self.columns)).intersection(names))

    def numbers(self, *without: str) -> list[str]:
        """Return the numeric columns, except for those named."""
        return [each.name for each in self.columns if each.numeric and each.name not in without]

    def then(self, operation: ops.AnyOperation, *others: Rows) -> None:
        """Apply an operation to the stream."""
        self.end = self.end.then(operation, *others)


_Move = Callable[[_Stream], None]


def draw_relational(rng: np.random.Generator, rows: int) -> Program:
    """Return a program over `rows` events."""
    steps = between(rng, MIN_STEPS, MAX_STEPS)
    stream = _Stream(rng, rows)
    while len(stream) + 1 < steps:
        moves = _moves(stream, steps - len(stream) - 1)
        weights = np.array([weight for _, weight in moves])
        moves[int(rng.choice(len(moves), p=weights / weights.sum()))][0](stream)
    return stream.end.finish()


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
        literal: float = eighths(rng, low * span, high * span)
    else:
        values = _WHOLE_RANGES[column]
        literal = between(rng, int(low * values), int(high * values))
    return ops.Filter(column, ops.Comparison(comparison), literal)


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
    left, right = (stream.end.then(_condition(stream)) for _ in range(2))
    stream.end = left.then(ops.Union(), right)


def _join_own_aggregate(stream: _Stream) -> None:
    """Join every row with aggregates of its group: the shared result is read twice."""
    key = pick(stream.rng, stream.among(_GROUPING))
    number = pick(stream.rng, stream.among(_NUMBERS))
    grouping = ops.Aggregate((key,), (count("size"), mean(number, f"mean_{number}")))
    stream.then(ops.Join(key, key, right_suffix="_of_group"), stream.end.then(grouping))
    stream.joined.add("self")


def _join_table(stream: _Stream, name: str) -> None:
    key, table, table_key = _JOINS[name]
    columns: tuple[str, ...] = ()
    if table == "items":
        columns = ("item_key", "weight", "maker", "color")
        columns = columns if chance(stream.rng, 0.6) else columns[:3]
    stream.then(ops.Join(key, table_key), stream.draft.read(table, *columns))
    stream.joined.add(name)


# What may be joined: a key of the stream, a table, and the key there.
_JOINS = {
    "item": ("item", "items", "item_key"),
    "offer": ("item", "offers", "offer_item"),
    "group": ("group_id", "groups", "group_key"),
}


ONE_PLATFORM_SHARE = 0.6  # how often a drawn plan stays on one platform where that is possible
# How often a step of a mixed plan draws a platform of its own instead of its input's.
SWITCH_CHANCE = 0.2
# The same for graph and training steps, for which more platforms compete.
TRAINING_SWITCH_CHANCE = 0.7


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

    Embedded platforms only, independent of installed extras: the same seed draws the same plans.
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
