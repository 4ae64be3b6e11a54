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
from typing import Any

import duckdb
import pyarrow as pa

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.sql_engine import SqlEngine
from fedperf_shared.workflow.vocabulary import Platform

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
        """Select all columns, with clauses behind them."""
        return DuckDbQuery(f"FROM ({self.text}) {behind}", self.columns)

    def join(self, other: "DuckDbQuery", condition: str, *, kind: str = "JOIN") -> "DuckDbQuery":
        """Select all columns of both, which must not share a name."""
        text = f"FROM ({self.text}) {kind} ({other.text}) ON {condition}"
        return DuckDbQuery(text, (*self.columns, *other.columns))


class DuckDbEngine(SqlEngine[DuckDbQuery]):
    """Runs operations in one in-memory database with `threads` threads."""

    platform = Platform.DUCKDB

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
        """Return a query that scans the file."""
        return DuckDbQuery(
            f"FROM read_parquet({_literal(str(path))}) SELECT {_names(columns)}", columns
        )

    def load(self, table: pa.Table) -> DuckDbQuery:
        """Return a query that scans the table, which is not copied."""
        name = self._new_name()
        self._connection.register(name, table)
        return DuckDbQuery(f"FROM {name}", tuple(table.column_names))

    def keep(self, frame: DuckDbQuery) -> DuckDbQuery:
        """Run the query into a new table."""
        name = self._new_name()
        self._connection.execute(f"CREATE TABLE {name} AS {frame.text}")
        return DuckDbQuery(f"FROM {name}", frame.columns)

    def collect(self, frame: DuckDbQuery) -> pa.Table:
        """Run the query."""
        return self._connection.sql(frame.text).to_arrow_table()

    def fetch(self, frame: DuckDbQuery) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""
        rows: list[tuple[Any, ...]] = self._connection.execute(frame.text).fetchall()
        return rows

    def close(self) -> None:
        """Close the database and remove what it spilled."""
        self._held.close()

    def _join(self, operation: ops.Join, left: DuckDbQuery, right: DuckDbQuery) -> DuckDbQuery:
        names = operation.added(right.columns)
        keyed = _renamed(right, {operation.right_key: "right_key__", **names})
        columns = (*left.columns, *names.values())
        joined = left.join(keyed, f"{_name(operation.left_key)} = right_key__")
        return joined.select([_names(columns)], columns)

    def _union(self, _: ops.Union, first: DuckDbQuery, second: DuckDbQuery) -> DuckDbQuery:
        return DuckDbQuery(f"({first.text}) UNION ALL ({second.text})", first.columns)

    def _filter(self, operation: ops.Filter, rows: DuckDbQuery) -> DuckDbQuery:
        comparison, literal = operation.comparison.value, _literal(operation.literal)
        return rows.all(f"WHERE {_name(operation.column)} {comparison} {literal}")

    def _aggregate(self, operation: ops.Aggregate, rows: DuckDbQuery) -> DuckDbQuery:
        keys = _names(operation.keys)
        parts = [keys, *map(_aggregation, operation.aggregations)]
        names = (*operation.keys, *(each.name for each in operation.aggregations))
        return rows.select(parts, names, f"GROUP BY {keys}")

    def _global_aggregate(self, operation: ops.GlobalAggregate, rows: DuckDbQuery) -> DuckDbQuery:
        names = (each.name for each in operation.aggregations)
        return rows.select(map(_aggregation, operation.aggregations), names, "HAVING count(*) > 0")

    def _distinct(self, operation: ops.Distinct, rows: DuckDbQuery) -> DuckDbQuery:
        return rows.select([f"DISTINCT {_names(operation.columns)}"], operation.columns)

    def _sort(self, operation: ops.Sort, rows: DuckDbQuery) -> DuckDbQuery:
        return rows.all(f"ORDER BY {_order(operation.by, ())}")

    def _top_k(self, operation: ops.TopK, rows: DuckDbQuery) -> DuckDbQuery:
        return rows.all(f"ORDER BY {_order(operation.by, rows.columns)} LIMIT {operation.count}")

    def _window(self, operation: ops.Window, rows: DuckDbQuery) -> DuckDbQuery:
        function = "row_number()"
        if operation.function is ops.WindowFunction.RUNNING_SUM:
            function = f"sum({_name(operation.column)})"
        window = (
            f"{function} OVER (PARTITION BY {_names(operation.partition)} "
            f"ORDER BY {_order(operation.by, rows.columns)} "
            f"ROWS UNBOUNDED PRECEDING) AS {_name(operation.name)}"
        )
        return rows.select(["*", window], (*rows.columns, operation.name))

    def _tokenize(self, operation: ops.Tokenize, rows: DuckDbQuery) -> DuckDbQuery:
        name = operation.name
        words = f"unnest(string_split({_name(operation.column)}, ' '))"
        return rows.select([_named(words, name)], (name,)).all(f"WHERE {_name(name)} <> ''")

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

    def _embed(self, operation: ops.Embed, texts: DuckDbQuery) -> DuckDbQuery:
        split = f"string_split({_name(operation.column)}, ' ')"
        words = f"list_filter({split}, lambda word: word <> '')"
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
            _named(f"sum({factor} * other % {ops.INDEX_MODULUS} % 3 - 1)", name)
            for factor, name in zip(operation.factors, names, strict=True)
        ]
        sums = DuckDbQuery(around, ("rank", "other")).select(
            ["rank", *vectors], ("rank", *names), "GROUP BY rank"
        )
        together = DuckDbQuery(f"FROM ({vocabulary.text}) LEFT JOIN ({sums.text}) USING (rank)", ())
        filled = [_named(f"coalesce({name}, 0)::DOUBLE", name) for name in names]
        return together.select([_named("word", operation.name), *filled], (operation.name, *names))

    def _select(
        self, frame: DuckDbQuery, parts: Sequence[str], names: Sequence[str]
    ) -> DuckDbQuery:
        return frame.select(parts, names)

    def _grouped(self, frame: DuckDbQuery, key: str, parts: Sequence[str]) -> DuckDbQuery:
        return frame.select([key, *parts], [key, *parts], f"GROUP BY {key}")

    def _columns(self, frame: DuckDbQuery) -> Sequence[str]:
        return frame.columns

    def _model(self, names: Sequence[str], rows: Sequence[Sequence[float]]) -> DuckDbQuery:
        """Return a query of literals."""
        lists = [
            f"({', '.join(_literal(float(value)) for value in row)})"
            for row in rows or [(0.0,) * len(names)]
        ]
        text = f"FROM (VALUES {', '.join(lists)}) AS model({_names(names)})"
        parts = [
            _named(f"{_name(n)}::{'BIGINT' if n == 'cluster' else 'DOUBLE'}", n) for n in names
        ]
        return DuckDbQuery(text, ()).select(parts, names, "" if rows else "WHERE false")

    def _name(self, name: str) -> str:
        return _name(name)

    def _literal(self, value: float) -> str:
        return _literal(value)

    def _integer(self, value: int) -> str:
        return f"{value}::BIGINT"

    def _square(self, expression: str) -> str:
        return f"{expression} ** 2"

    def _new_name(self) -> str:
        self._tables += 1
        return f"table_{self._tables}"


def _renamed(query: DuckDbQuery, names: dict[str, str]) -> DuckDbQuery:
    """Select some of the columns, under new names."""
    return query.select([_named(_name(old), new) for old, new in names.items()], names.values())


def _literal(value: str | float) -> str:
    """Return a text or number as a literal. A float is a DOUBLE."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}::DOUBLE" if isinstance(value, float) else repr(value)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(expression: str, name: str) -> str:
    return f"{expression} AS {_name(name)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _aggregation(aggregation: ops.Aggregation) -> str:
    expression = "count(*)"
    if aggregation.function is not ops.AggregateFunction.COUNT:
        expression = f"{aggregation.function.value}({_name(aggregation.column)})"
    return _named(expression, aggregation.name)


def _order(by: tuple[ops.Order, ...], ties: Sequence[str]) -> str:
    ordered = zip(*ops.total_order(by, ties), strict=True)
    return ", ".join(f"{_name(name)} {'DESC' if down else 'ASC'}" for name, down in ordered)
