"""DuckDB: a frame is the text of a query, run when it is kept or collected.

Operations only nest texts, in DuckDB's FROM-first order, so a segment is bound, optimized and run
once as a whole. Every name and every literal is quoted. `keep` writes a table of the in-memory
database. Iterative operations keep their state in such tables or, where it has the size of a model,
in this process.

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

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.algebra import (
    NO_CENTER,
    Vector,
    centers_moved_by,
    ridge,
    starting_centers,
)
from fedperf_engines.platforms.engine import UnsupportedOperationError
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_engines.platforms.arrow import Table


_SHARE_OF_CAP = 0.6


@dataclass(frozen=True, slots=True)
class DuckDbQuery:
    """The text of a query and the columns of its result."""

    text: str
    columns: tuple[str, ...]

    def select(
        self, parts: Iterable[str], columns: Iterable[str], behind: str = ""
    ) -> "DuckDbQuery":
        """Select expressions from this query, with clauses such as WHERE behind them."""
        return DuckDbQuery(f"FROM ({self.text}) SELECT {', '.join(parts)} {behind}", tuple(columns))

    def all(self, behind: str) -> "DuckDbQuery":
        """All columns, with clauses behind them."""
        return DuckDbQuery(f"FROM ({self.text}) {behind}", self.columns)

    def join(self, other: "DuckDbQuery", condition: str, *, kind: str = "JOIN") -> "DuckDbQuery":
        """All columns of both, which must not share a name."""
        text = f"FROM ({self.text}) {kind} ({other.text}) ON {condition}"
        return DuckDbQuery(text, (*self.columns, *other.columns))


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

    def read(self, path: Path, columns: tuple[str, ...]) -> DuckDbQuery:
        """A query that scans the file."""
        return DuckDbQuery(
            f"FROM read_parquet({_sql_literal(str(path))}) SELECT {_sql_names(columns)}", columns
        )

    def load(self, table: "Table") -> DuckDbQuery:
        """A query that scans the table, which is not copied."""
        name = self._new_name()
        self._connection.register(name, table)
        return DuckDbQuery(f"FROM {name}", tuple(table.column_names))

    def keep(self, frame: DuckDbQuery) -> DuckDbQuery:
        """Run the query into a new table."""
        name = self._new_name()
        self._connection.execute(f"CREATE TABLE {name} AS {frame.text}")
        return DuckDbQuery(f"FROM {name}", frame.columns)

    def collect(self, frame: DuckDbQuery) -> "Table":
        """Run the query."""
        return self._connection.sql(frame.text).to_arrow_table()

    def fetch(self, frame: DuckDbQuery) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""
        rows: list[tuple[Any, ...]] = self._connection.execute(frame.text).fetchall()
        return rows

    def close(self) -> None:
        """Close the database and remove what it spilled."""
        self._held.close()

    def apply(  # noqa: PLR0911, PLR0912 - a dispatch
        self, operation: ops.AnyOperation, inputs: Sequence[DuckDbQuery]
    ) -> DuckDbQuery:
        """The query of the operation; iterative operations run at once."""
        first = inputs[0]
        match operation:
            case ops.PageRank():
                return self._page_rank(operation, first)
            case ops.KMeans():
                return self._k_means(operation, first)
            case ops.KMeansAssign():
                return self._assign(operation, first, inputs[1])
            case ops.LinearRegression():
                return self._regression(operation, first)
            case ops.Embed():
                return self._embed(operation, first)
            case ops.LinearPredict():
                return self._predict(operation, first, inputs[1])
            case ops.Join():
                return _join_query(operation, first, inputs[1])
            case ops.Union():
                return DuckDbQuery(f"({first.text}) UNION ALL ({inputs[1].text})", first.columns)
            case ops.Project(keep=keep, computed=computed):
                parts = [
                    *(_sql_name(name) for name in keep),
                    *(_computed(each) for each in computed),
                ]
                return first.select(parts, (*keep, *(each.name for each in computed)))
            case ops.Filter(column=column, comparison=comparison, literal=literal):
                return first.all(
                    f"WHERE {_sql_name(column)} {comparison.value} {_sql_literal(literal)}"
                )
            case ops.Aggregate(keys=keys, aggregations=aggregations):
                parts = [_sql_names(keys), *(_aggregation(each) for each in aggregations)]
                names = (*keys, *(each.name for each in aggregations))
                return first.select(parts, names, f"GROUP BY {_sql_names(keys)}")
            case ops.GlobalAggregate(aggregations=aggregations):
                parts = [_aggregation(each) for each in aggregations]
                names = tuple(each.name for each in aggregations)
                return first.select(parts, names, "HAVING count(*) > 0")
            case ops.Distinct(columns=columns):
                return first.select([f"DISTINCT {_sql_names(columns)}"], columns)
            case ops.Sort(by=by):
                return first.all(f"ORDER BY {_order(by, ())}")
            case ops.TopK(by=by, count=count):
                return first.all(f"ORDER BY {_order(by, first.columns)} LIMIT {count}")
            case ops.Window(name=name):
                window = _window(operation, first.columns)
                return first.select(["*", window], (*first.columns, name))
            case ops.Tokenize(column=column, name=name):
                words = f"unnest(string_split({_sql_name(column)}, ' '))"
                return first.select([_sql_named(words, name)], (name,)).all(
                    f"WHERE {_sql_name(name)} <> ''"
                )
        raise UnsupportedOperationError(operation.type, Platform.DUCKDB)

    def _page_rank(self, operation: ops.PageRank, edges: DuckDbQuery) -> DuckDbQuery:
        ends = self.keep(_renamed(edges, {operation.source: "source", operation.target: "target"}))
        both = DuckDbQuery(
            f"({ends.text} SELECT source AS node) UNION ({ends.text} SELECT target AS node)",
            ("node",),
        )
        nodes = self.keep(both)
        count = self.fetch(nodes.select(["count(*)"], ["count"]))[0][0]
        degrees = ends.select(
            ["source AS node", "count(*) AS degree"], ["node", "degree"], "GROUP BY source"
        )
        share = _sql_named(f"{_sql_literal(operation.damping)} / degree", "share")
        columns = ("source", "target", "share")
        links = self.keep(
            ends.join(degrees, "source = node").select(["source", "target", share], columns)
        )
        start = _sql_literal(1 / max(count, 1))
        rank = nodes.select(["node", _sql_named(start, "rank")], ("node", "rank"))
        base = _sql_literal((1 - operation.damping) / max(count, 1))
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

    def _k_means(self, operation: ops.KMeans, rows: DuckDbQuery) -> DuckDbQuery:
        columns, names = operation.columns, ("cluster", *operation.columns)
        points = self.keep(_as_doubles(rows, columns, columns))
        extremes = [f"{function}({_sql_name(c)})" for function in ("min", "max") for c in columns]
        bounds = self.fetch(points.select(extremes, extremes))[0]
        if bounds[0] is None:
            return _model_query(names, [], whole=("cluster",))
        low, high = np.split(np.array(bounds, dtype=np.float64), 2)
        centers = starting_centers(operation, low, high)
        sums = ["cluster__", "count(*)", *(f"sum({_sql_name(column)})" for column in columns)]
        for _ in range(operation.iterations):
            nearest = _nearest_center(points, columns, centers, name="cluster__")
            found = self.fetch(nearest.select(sums, sums, "GROUP BY cluster__"))
            centers = centers_moved_by(centers, found)
        rows_of_model = [(float(n), *center) for n, center in enumerate(centers.tolist())]
        return _model_query(names, rows_of_model, whole=("cluster",))

    def _assign(
        self, operation: ops.KMeansAssign, rows: DuckDbQuery, model: DuckDbQuery
    ) -> DuckDbQuery:
        ordered = model.select(
            [_sql_names(operation.columns)], operation.columns, "ORDER BY cluster"
        )
        found = self.fetch(ordered)
        centers = np.array(found, dtype=np.float64).reshape(len(found), len(operation.columns))
        return _nearest_center(rows, operation.columns, centers, name=operation.name)

    def _regression(self, operation: ops.LinearRegression, rows: DuckDbQuery) -> DuckDbQuery:
        columns = (*operation.features, operation.target)
        names = ops.model_columns(operation.features)
        plain = tuple(f"c{number}" for number in range(len(columns)))
        points = self.keep(_as_doubles(rows, columns, plain))
        found = self.fetch(points.select([f"avg({name})" for name in plain], plain))[0]
        if found[0] is None:
            return _model_query(names, [])
        means = np.array(found, dtype=np.float64)
        centered = [f"({n} - {_sql_literal(mean)})" for n, mean in zip(plain, found, strict=True)]
        products = [f"sum({left} * {right})" for left in centered for right in centered]
        sums = self.fetch(points.select(products, products))[0]
        matrix = np.array(sums, dtype=np.float64).reshape(len(columns), len(columns))
        return _model_query(names, [tuple(ridge(matrix, means, operation.penalty).tolist())])

    def _embed(self, operation: ops.Embed, texts: DuckDbQuery) -> DuckDbQuery:
        split = f"string_split({_sql_name(operation.column)}, ' ')"
        words = f"list_filter({split}, lambda word: word <> '')"
        numbered = texts.select(
            [_sql_named(words, "words"), "row_number() OVER () << 32 AS text"], ()
        )
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
            DuckDbQuery(f"FROM ({places.text}) JOIN ({vocabulary.text}) USING (word)", ()).select(
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
            _sql_named(f"sum({factor} * other % {ops.INDEX_MODULUS} % 3 - 1)", name)
            for factor, name in zip(operation.factors, names, strict=True)
        ]
        sums = DuckDbQuery(around, ("rank", "other")).select(
            ["rank", *vectors], ("rank", *names), "GROUP BY rank"
        )
        together = DuckDbQuery(f"FROM ({vocabulary.text}) LEFT JOIN ({sums.text}) USING (rank)", ())
        filled = [_sql_named(f"coalesce({name}, 0)::DOUBLE", name) for name in names]
        return together.select(
            [_sql_named("word", operation.name), *filled], (operation.name, *names)
        )

    def _predict(
        self, operation: ops.LinearPredict, rows: DuckDbQuery, model: DuckDbQuery
    ) -> DuckDbQuery:
        names = ops.model_columns(operation.features)
        found = self.fetch(model.select([_sql_names(names)], names))
        *coefficients, intercept = found[0] if found else [0.0] * len(names)
        terms = [
            f"{_sql_literal(coefficient)} * {_sql_name(name)}"
            for coefficient, name in zip(coefficients, operation.features, strict=True)
        ]
        total = " + ".join([*terms, _sql_literal(intercept)])
        return rows.select(
            ["*", _sql_named(total, operation.name)], (*rows.columns, operation.name)
        )

    def _new_name(self) -> str:
        self._tables += 1
        return f"table_{self._tables}"


def _join_query(operation: ops.Join, left: DuckDbQuery, right: DuckDbQuery) -> DuckDbQuery:
    """The query of a join: left columns, then right columns without the key."""
    names = operation.added(right.columns)
    keyed = _renamed(right, {operation.right_key: "right_key__", **names})
    columns = (*left.columns, *names.values())
    joined = left.join(keyed, f"{_sql_name(operation.left_key)} = right_key__")
    return joined.select([_sql_names(columns)], columns)


def _renamed(query: DuckDbQuery, names: dict[str, str]) -> DuckDbQuery:
    """Some of the columns, under new names."""
    parts = [_sql_named(_sql_name(old), new) for old, new in names.items()]
    return query.select(parts, names.values())


def _as_doubles(
    query: DuckDbQuery, columns: tuple[str, ...], names: tuple[str, ...]
) -> DuckDbQuery:
    """Some of the columns as DOUBLE, under new names."""
    pairs = zip(columns, names, strict=True)
    return query.select([_sql_named(f"{_sql_name(old)}::DOUBLE", new) for old, new in pairs], names)


def _nearest_center(
    query: DuckDbQuery, columns: tuple[str, ...], centers: Vector, *, name: str
) -> DuckDbQuery:
    """The query's columns and, as `name`, the number of the nearest center."""
    names = (*query.columns, name)
    if not len(centers):
        return query.select(["*", _sql_named(f"{NO_CENTER}::BIGINT", name)], names)
    distances = [f"distance_{number}__" for number in range(len(centers))]
    terms = [
        " + ".join(
            f"({_sql_name(column)} - {_sql_literal(coordinate)}) ** 2"
            for column, coordinate in zip(columns, center, strict=True)
        )
        for center in centers.tolist()
    ]
    measured = query.select(["*", *map(_sql_named, terms, distances)], (*query.columns, *distances))
    whens = " ".join(f"WHEN {each} THEN {number}" for number, each in enumerate(distances))
    nearest = f"(CASE least({', '.join(distances)}) {whens} END)::BIGINT"
    return measured.select([_sql_names(query.columns), _sql_named(nearest, name)], names)


def _model_query(
    names: tuple[str, ...], rows: list[tuple[float, ...]], *, whole: tuple[str, ...] = ()
) -> DuckDbQuery:
    """A query of literals: a trained model, with the columns in `whole` as whole numbers."""
    nothing = (0.0,) * len(names)
    lists = [
        f"({', '.join(_sql_literal(float(value)) for value in row)})" for row in rows or [nothing]
    ]
    text = f"FROM (VALUES {', '.join(lists)}) AS model({_sql_names(names)})"
    parts = [
        _sql_named(f"{_sql_name(n)}::{'BIGINT' if n in whole else 'DOUBLE'}", n) for n in names
    ]
    return DuckDbQuery(text, names).select(parts, names, "" if rows else "WHERE false")


def _sql_literal(value: str | float) -> str:
    """A text or number as a literal; a float is a DOUBLE."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}::DOUBLE" if isinstance(value, float) else repr(value)


def _sql_name(name: str) -> str:
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def _sql_named(expression: str, name: str) -> str:
    """An expression under a name."""
    return f"{expression} AS {_sql_name(name)}"


def _sql_names(names: Iterable[str]) -> str:
    """Quoted names in a list."""
    return ", ".join(_sql_name(name) for name in names)


def _computed(computed: ops.ComputedColumn) -> str:
    expression = f"{_sql_name(computed.column)}::DOUBLE"
    for step in computed.steps:
        operand = (
            f"{_sql_name(step.operand)}::DOUBLE"
            if isinstance(step.operand, str)
            else _sql_literal(float(step.operand))
        )
        expression = f"({expression} {step.operator.value} {operand})"
    return f"{expression} AS {_sql_name(computed.name)}"


def _aggregation(aggregation: ops.Aggregation) -> str:
    expression = "count(*)"
    if aggregation.function is not ops.AggregateFunction.COUNT:
        expression = f"{aggregation.function.value}({_sql_name(aggregation.column)})"
    return f"{expression} AS {_sql_name(aggregation.name)}"


def _window(window: ops.Window, columns: Sequence[str]) -> str:
    function = (
        "row_number()"
        if window.function is ops.WindowFunction.ROW_NUMBER
        else f"sum({_sql_name(window.column)})"
    )
    return (
        f"{function} OVER (PARTITION BY {_sql_names(window.partition)} "
        f"ORDER BY {_order(window.by, columns)} "
        f"ROWS UNBOUNDED PRECEDING) AS {_sql_name(window.name)}"
    )


def _order(by: tuple[ops.Order, ...], ties: Sequence[str]) -> str:
    ordered = zip(*ops.total_order(by, ties), strict=True)
    return ", ".join(f"{_sql_name(name)} {'DESC' if down else 'ASC'}" for name, down in ordered)
