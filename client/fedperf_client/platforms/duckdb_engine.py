"""DuckDB: a frame is the text of a query, run when it is kept or collected.

Operations only nest texts (in DuckDB's FROM-first order), so a segment is bound,
optimized and run once as a whole. `keep` writes a table of the in-memory database.
Iterative operations keep their state in such tables or, where it has the size of a
model, in this process.

Under a memory cap DuckDB gets a share of it and spills beyond that, into a directory of
its own under the temporary directory of the process. Its limit counts buffers only: the
rest of the cap is for everything else that the process holds, results among it.
"""

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from fedperf_client.platforms.algebra import (
    NO_CENTER,
    Vector,
    centers_moved_by,
    ridge,
    starting_centers,
)
from fedperf_client.platforms.engine import UnsupportedOperationError
from fedperf_client.platforms.operations.analytic import (
    INDEX_MODULUS,
    Embed,
    KMeans,
    KMeansAssign,
    LinearPredict,
    LinearRegression,
    PageRank,
)
from fedperf_client.platforms.operations.catalogue import AnyOperation
from fedperf_client.platforms.operations.expressions import (
    AggregateFunction,
    Aggregation,
    Computed,
    Order,
    WindowFunction,
)
from fedperf_client.platforms.operations.tabular import (
    Aggregate,
    Distinct,
    Filter,
    GlobalAggregate,
    Join,
    Project,
    Sort,
    Tokenize,
    TopK,
    Union,
    Window,
)
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_client.platforms.arrow import Table


_SHARE_OF_CAP = 0.6


@dataclass(frozen=True, slots=True)
class Query:
    """The text of a query and the columns of its result."""

    text: str
    columns: tuple[str, ...]

    def select(self, parts: Iterable[str], columns: Iterable[str], behind: str = "") -> "Query":
        """Select expressions from this query, with clauses such as WHERE behind them."""
        return Query(f"FROM ({self.text}) SELECT {', '.join(parts)} {behind}", tuple(columns))

    def all(self, behind: str) -> "Query":
        """All columns, with clauses behind them."""
        return Query(f"FROM ({self.text}) {behind}", self.columns)

    def join(self, other: "Query", condition: str, *, kind: str = "JOIN") -> "Query":
        """All columns of both, which must not share a name."""
        text = f"FROM ({self.text}) {kind} ({other.text}) ON {condition}"
        return Query(text, (*self.columns, *other.columns))


class DuckDbEngine:
    """Runs operations in one in-memory database with `threads` threads."""

    def __init__(self, *, threads: int, memory_bytes: int | None = None) -> None:
        self._held = ExitStack()
        config: dict[str, Any] = {"threads": threads}
        if memory_bytes is not None:
            spilled = tempfile.TemporaryDirectory(prefix="fedperf-duckdb-")
            config |= {
                "memory_limit": f"{int(_SHARE_OF_CAP * memory_bytes)}B",
                "temp_directory": self._held.enter_context(spilled),
            }
        self._connection = self._held.enter_context(duckdb.connect(config=config))
        self._tables = 0

    def read(self, path: Path, columns: tuple[str, ...]) -> Query:
        """A query that scans the file."""
        return Query(f"FROM read_parquet({_literal(str(path))}) SELECT {_names(columns)}", columns)

    def load(self, table: "Table") -> Query:
        """A query that scans the table, which is not copied."""
        name = self._new_name()
        self._connection.register(name, table)
        return Query(f"FROM {name}", tuple(table.column_names))

    def keep(self, frame: Query) -> Query:
        """Run the query into a new table."""
        name = self._new_name()
        self._connection.execute(f"CREATE TABLE {name} AS {frame.text}")
        return Query(f"FROM {name}", frame.columns)

    def collect(self, frame: Query) -> "Table":
        """Run the query."""
        return self._connection.sql(frame.text).to_arrow_table()

    def fetch(self, frame: Query) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""
        rows: list[tuple[Any, ...]] = self._connection.execute(frame.text).fetchall()
        return rows

    def close(self) -> None:
        """Close the database and remove what it spilled."""
        self._held.close()

    def apply(  # noqa: PLR0911 - a dispatch
        self, operation: AnyOperation, inputs: Sequence[Query]
    ) -> Query:
        """The query of the operation; iterative operations run at once."""
        first = inputs[0]
        match operation:
            case PageRank():
                return self._page_rank(operation, first)
            case KMeans():
                return self._k_means(operation, first)
            case KMeansAssign():
                return self._assign(operation, first, inputs[1])
            case LinearRegression():
                return self._regression(operation, first)
            case Embed():
                return self._embed(operation, first)
            case LinearPredict():
                return self._predict(operation, first, inputs[1])
            case Join():
                return _join(operation, first, inputs[1])
            case Union():
                return Query(f"({first.text}) UNION ALL ({inputs[1].text})", first.columns)
        return _on_one_input(operation, first)

    def _page_rank(self, operation: PageRank, edges: Query) -> Query:
        ends = self.keep(_renamed(edges, {operation.source: "source", operation.target: "target"}))
        both = Query(
            f"({ends.text} SELECT source AS node) UNION ({ends.text} SELECT target AS node)",
            ("node",),
        )
        nodes = self.keep(both)
        count = self.fetch(nodes.select(["count(*)"], ["count"]))[0][0]
        degrees = ends.select(
            ["source AS node", "count(*) AS degree"], ["node", "degree"], "GROUP BY source"
        )
        share = _named(f"{_literal(operation.damping)} / degree", "share")
        columns = ("source", "target", "share")
        links = self.keep(
            ends.join(degrees, "source = node").select(["source", "target", share], columns)
        )
        start = _literal(1 / max(count, 1))
        rank = nodes.select(["node", _named(start, "rank")], ("node", "rank"))
        base = _literal((1 - operation.damping) / max(count, 1))
        for _ in range(operation.iterations):
            received = links.join(rank, "source = node").select(
                ["target", "sum(share * rank) AS received"],
                ("target", "received"),
                "GROUP BY target",
            )
            both = nodes.join(received, "node = target", kind="LEFT JOIN")
            total = f"{base} + coalesce(received, 0) AS rank"
            rank = self.keep(both.select(["node", total], ("node", "rank")))
        return rank

    def _k_means(self, operation: KMeans, rows: Query) -> Query:
        columns, names = operation.columns, ("cluster", *operation.columns)
        points = self.keep(_doubles(rows, columns, columns))
        extremes = [f"{function}({_name(c)})" for function in ("min", "max") for c in columns]
        bounds = self.fetch(points.select(extremes, extremes))[0]
        if bounds[0] is None:
            return _model(names, [], whole=("cluster",))
        low, high = np.split(np.array(bounds, dtype=np.float64), 2)
        centers = starting_centers(operation, low, high)
        sums = ["cluster__", "count(*)", *(f"sum({_name(column)})" for column in columns)]
        for _ in range(operation.iterations):
            nearest = _nearest(points, columns, centers, name="cluster__")
            found = self.fetch(nearest.select(sums, sums, "GROUP BY cluster__"))
            centers = centers_moved_by(centers, found)
        rows_of_model = [(float(n), *center) for n, center in enumerate(centers.tolist())]
        return _model(names, rows_of_model, whole=("cluster",))

    def _assign(self, operation: KMeansAssign, rows: Query, model: Query) -> Query:
        ordered = model.select([_names(operation.columns)], operation.columns, "ORDER BY cluster")
        found = self.fetch(ordered)
        centers = np.array(found, dtype=np.float64).reshape(len(found), len(operation.columns))
        return _nearest(rows, operation.columns, centers, name=operation.name)

    def _regression(self, operation: LinearRegression, rows: Query) -> Query:
        columns = (*operation.features, operation.target)
        names = (*(f"coefficient_{name}" for name in operation.features), "intercept")
        plain = tuple(f"c{number}" for number in range(len(columns)))
        points = self.keep(_doubles(rows, columns, plain))
        found = self.fetch(points.select([f"avg({name})" for name in plain], plain))[0]
        if found[0] is None:
            return _model(names, [])
        means = np.array(found, dtype=np.float64)
        centered = [f"({n} - {_literal(mean)})" for n, mean in zip(plain, found, strict=True)]
        products = [f"sum({left} * {right})" for left in centered for right in centered]
        sums = self.fetch(points.select(products, products))[0]
        matrix = np.array(sums, dtype=np.float64).reshape(len(columns), len(columns))
        return _model(names, [tuple(ridge(matrix, means, operation.penalty).tolist())])

    def _embed(self, operation: Embed, texts: Query) -> Query:
        words = (
            f"list_filter(string_split({_name(operation.column)}, ' '), lambda word: word <> '')"
        )
        numbered = texts.select([_named(words, "words"), "row_number() OVER () << 32 AS text"], ())
        places = self.keep(
            numbered.select(
                ["unnest(words) AS word", "text + generate_subscripts(words, 1) AS place"],
                ("word", "place"),
            )
        )
        ranked = ["word", "row_number() OVER (ORDER BY word) AS rank"]
        vocabulary = self.keep(
            places.select(["DISTINCT word"], ("word",)).select(ranked, ("word", "rank"))
        )
        ranks = self.keep(
            Query(f"FROM ({places.text}) JOIN ({vocabulary.text}) USING (word)", ()).select(
                ["place", "rank"], ("place", "rank")
            )
        )
        around = " UNION ALL ".join(
            f"(FROM ({ranks.text}) here JOIN ({ranks.text}) there "
            f"ON there.place = here.place + {distance} "
            "SELECT here.rank AS rank, there.rank AS other)"
            for distance in range(-operation.window, operation.window + 1)
            if distance
        )
        names = operation.vector_names
        vectors = [
            _named(f"sum({factor} * other % {INDEX_MODULUS} % 3 - 1)", name)
            for factor, name in zip(operation.factors, names, strict=True)
        ]
        sums = Query(around, ("rank", "other")).select(
            ["rank", *vectors], ("rank", *names), "GROUP BY rank"
        )
        together = Query(f"FROM ({vocabulary.text}) LEFT JOIN ({sums.text}) USING (rank)", ())
        filled = [_named(f"coalesce({name}, 0)::DOUBLE", name) for name in names]
        return together.select([_named("word", operation.name), *filled], (operation.name, *names))

    def _predict(self, operation: LinearPredict, rows: Query, model: Query) -> Query:
        names = [*(f"coefficient_{name}" for name in operation.features), "intercept"]
        found = self.fetch(model.select([_names(names)], names))
        *coefficients, intercept = found[0] if found else [0.0] * len(names)
        terms = [
            f"{_literal(coefficient)} * {_name(name)}"
            for coefficient, name in zip(coefficients, operation.features, strict=True)
        ]
        total = " + ".join([*terms, _literal(intercept)])
        return rows.select(["*", _named(total, operation.name)], (*rows.columns, operation.name))

    def _new_name(self) -> str:
        self._tables += 1
        return f"table_{self._tables}"


def _on_one_input(  # noqa: PLR0911 - a dispatch
    operation: AnyOperation, frame: Query
) -> Query:
    match operation:
        case Project(keep=keep, computed=computed):
            parts = [*(_name(name) for name in keep), *(_computed(each) for each in computed)]
            return frame.select(parts, (*keep, *(each.name for each in computed)))
        case Filter(column=column, comparison=comparison, literal=literal):
            return frame.all(f"WHERE {_name(column)} {comparison.value} {_literal(literal)}")
        case Aggregate(keys=keys, aggregations=aggregations):
            parts = [_names(keys), *(_aggregation(each) for each in aggregations)]
            names = (*keys, *(each.name for each in aggregations))
            return frame.select(parts, names, f"GROUP BY {_names(keys)}")
        case GlobalAggregate(aggregations=aggregations):
            parts = [_aggregation(each) for each in aggregations]
            names = tuple(each.name for each in aggregations)
            return frame.select(parts, names, "HAVING count(*) > 0")
        case Distinct(columns=columns):
            return frame.select([f"DISTINCT {_names(columns)}"], columns)
        case Sort(by=by):
            return frame.all(f"ORDER BY {_order(by, ())}")
        case TopK(by=by, count=count):
            return frame.all(f"ORDER BY {_order(by, frame.columns)} LIMIT {count}")
        case Window(name=name):
            window = _window(operation, frame.columns)
            return frame.select(["*", window], (*frame.columns, name))
        case Tokenize(column=column, name=name):
            words = f"unnest(string_split({_name(column)}, ' '))"
            return frame.select([_named(words, name)], (name,)).all(f"WHERE {_name(name)} <> ''")
    raise UnsupportedOperationError(operation.type, Platform.DUCKDB)


def _join(operation: Join, left: Query, right: Query) -> Query:
    names = {
        name: name + operation.right_suffix for name in right.columns if name != operation.right_key
    }
    keyed = _renamed(right, {operation.right_key: "right_key__", **names})
    columns = (*left.columns, *names.values())
    joined = left.join(keyed, f"{_name(operation.left_key)} = right_key__")
    return joined.select([_names(columns)], columns)


def _renamed(query: Query, names: dict[str, str]) -> Query:
    parts = [_named(_name(old), new) for old, new in names.items()]
    return query.select(parts, names.values())


def _doubles(query: Query, columns: tuple[str, ...], names: tuple[str, ...]) -> Query:
    pairs = zip(columns, names, strict=True)
    return query.select([_named(f"{_name(old)}::DOUBLE", new) for old, new in pairs], names)


def _nearest(query: Query, columns: tuple[str, ...], centers: Vector, *, name: str) -> Query:
    """The query's columns and, as `name`, the number of the nearest center."""
    names = (*query.columns, name)
    if not len(centers):
        return query.select(["*", _named(f"{NO_CENTER}::BIGINT", name)], names)
    distances = [f"distance_{number}__" for number in range(len(centers))]
    terms = [
        " + ".join(
            f"({_name(column)} - {_literal(coordinate)}) ** 2"
            for column, coordinate in zip(columns, center, strict=True)
        )
        for center in centers.tolist()
    ]
    measured = query.select(["*", *map(_named, terms, distances)], (*query.columns, *distances))
    whens = " ".join(f"WHEN {each} THEN {number}" for number, each in enumerate(distances))
    nearest = f"(CASE least({', '.join(distances)}) {whens} END)::BIGINT"
    return measured.select([_names(query.columns), _named(nearest, name)], names)


def _model(
    names: tuple[str, ...], rows: list[tuple[float, ...]], *, whole: tuple[str, ...] = ()
) -> Query:
    """A query of literals: a trained model, with the columns in `whole` as whole numbers."""
    nothing = (0.0,) * len(names)
    lists = [f"({', '.join(_literal(float(value)) for value in row)})" for row in rows or [nothing]]
    text = f"FROM (VALUES {', '.join(lists)}) AS model({_names(names)})"
    parts = [_named(f"{_name(n)}::{'BIGINT' if n in whole else 'DOUBLE'}", n) for n in names]
    return Query(text, names).select(parts, names, "" if rows else "WHERE false")


def _computed(computed: Computed) -> str:
    expression = f"{_name(computed.column)}::DOUBLE"
    for step in computed.steps:
        operand = (
            f"{_name(step.operand)}::DOUBLE"
            if isinstance(step.operand, str)
            else _literal(float(step.operand))
        )
        expression = f"({expression} {step.operator.value} {operand})"
    return f"{expression} AS {_name(computed.name)}"


def _aggregation(aggregation: Aggregation) -> str:
    column = _name(aggregation.column)
    expression = {
        AggregateFunction.COUNT: "count(*)",
        AggregateFunction.SUM: f"sum({column})",
        AggregateFunction.MEAN: f"avg({column})",
        AggregateFunction.MIN: f"min({column})",
        AggregateFunction.MAX: f"max({column})",
    }[aggregation.function]
    return f"{expression} AS {_name(aggregation.name)}"


def _window(window: Window, columns: Sequence[str]) -> str:
    function = (
        "row_number()"
        if window.function is WindowFunction.ROW_NUMBER
        else f"sum({_name(window.column)})"
    )
    return (
        f"{function} OVER (PARTITION BY {_names(window.partition)} "
        f"ORDER BY {_order(window.by, columns)} "
        f"ROWS UNBOUNDED PRECEDING) AS {_name(window.name)}"
    )


def _order(by: tuple[Order, ...], ties: Sequence[str]) -> str:
    keys = [f"{_name(order.column)} {'DESC' if order.descending else 'ASC'}" for order in by]
    named = {order.column for order in by}
    return ", ".join([*keys, *(f"{_name(tie)} ASC" for tie in ties if tie not in named)])


def _literal(value: str | float) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}::DOUBLE" if isinstance(value, float) else repr(value)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(expression: str, name: str) -> str:
    return f"{expression} AS {_name(name)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(_name(name) for name in names)
