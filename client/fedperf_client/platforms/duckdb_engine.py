"""DuckDB: a frame is the text of a query, run when it is kept or collected.

Operations only nest texts (`duckdb_query`), so a segment is bound, optimized and run once
as a whole. `keep` writes a table of the in-memory database. Iterative operations keep their
state in such tables or, where it has the size of a model, in this process.

Under a memory cap DuckDB gets a share of it and spills beyond that, into a directory of
its own under the temporary directory of the process. Its limit counts buffers only: the
rest of the cap is for everything else that the process holds, results among it.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from fedperf_client.platforms import operations as ops
from fedperf_client.platforms.algebra import centers_moved_by, ridge, starting_centers
from fedperf_client.platforms.duckdb_query import (
    DuckDbQuery,
    as_doubles,
    join_query,
    model_query,
    nearest_center,
    one_input_query,
    renamed,
    sql_literal,
    sql_name,
    sql_named,
    sql_names,
)

if TYPE_CHECKING:
    from fedperf_client.platforms.arrow import Table


_SHARE_OF_CAP = 0.6


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
            f"FROM read_parquet({sql_literal(str(path))}) SELECT {sql_names(columns)}", columns
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

    def apply(  # noqa: PLR0911 - a dispatch
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
                return join_query(operation, first, inputs[1])
            case ops.Union():
                return DuckDbQuery(f"({first.text}) UNION ALL ({inputs[1].text})", first.columns)
        return one_input_query(operation, first)

    def _page_rank(self, operation: ops.PageRank, edges: DuckDbQuery) -> DuckDbQuery:
        ends = self.keep(renamed(edges, {operation.source: "source", operation.target: "target"}))
        both = DuckDbQuery(
            f"({ends.text} SELECT source AS node) UNION ({ends.text} SELECT target AS node)",
            ("node",),
        )
        nodes = self.keep(both)
        count = self.fetch(nodes.select(["count(*)"], ["count"]))[0][0]
        degrees = ends.select(
            ["source AS node", "count(*) AS degree"], ["node", "degree"], "GROUP BY source"
        )
        share = sql_named(f"{sql_literal(operation.damping)} / degree", "share")
        columns = ("source", "target", "share")
        links = self.keep(
            ends.join(degrees, "source = node").select(["source", "target", share], columns)
        )
        start = sql_literal(1 / max(count, 1))
        rank = nodes.select(["node", sql_named(start, "rank")], ("node", "rank"))
        base = sql_literal((1 - operation.damping) / max(count, 1))
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
        points = self.keep(as_doubles(rows, columns, columns))
        extremes = [f"{function}({sql_name(c)})" for function in ("min", "max") for c in columns]
        bounds = self.fetch(points.select(extremes, extremes))[0]
        if bounds[0] is None:
            return model_query(names, [], whole=("cluster",))
        low, high = np.split(np.array(bounds, dtype=np.float64), 2)
        centers = starting_centers(operation, low, high)
        sums = ["cluster__", "count(*)", *(f"sum({sql_name(column)})" for column in columns)]
        for _ in range(operation.iterations):
            nearest = nearest_center(points, columns, centers, name="cluster__")
            found = self.fetch(nearest.select(sums, sums, "GROUP BY cluster__"))
            centers = centers_moved_by(centers, found)
        rows_of_model = [(float(n), *center) for n, center in enumerate(centers.tolist())]
        return model_query(names, rows_of_model, whole=("cluster",))

    def _assign(
        self, operation: ops.KMeansAssign, rows: DuckDbQuery, model: DuckDbQuery
    ) -> DuckDbQuery:
        ordered = model.select(
            [sql_names(operation.columns)], operation.columns, "ORDER BY cluster"
        )
        found = self.fetch(ordered)
        centers = np.array(found, dtype=np.float64).reshape(len(found), len(operation.columns))
        return nearest_center(rows, operation.columns, centers, name=operation.name)

    def _regression(self, operation: ops.LinearRegression, rows: DuckDbQuery) -> DuckDbQuery:
        columns = (*operation.features, operation.target)
        names = (*(f"coefficient_{name}" for name in operation.features), "intercept")
        plain = tuple(f"c{number}" for number in range(len(columns)))
        points = self.keep(as_doubles(rows, columns, plain))
        found = self.fetch(points.select([f"avg({name})" for name in plain], plain))[0]
        if found[0] is None:
            return model_query(names, [])
        means = np.array(found, dtype=np.float64)
        centered = [f"({n} - {sql_literal(mean)})" for n, mean in zip(plain, found, strict=True)]
        products = [f"sum({left} * {right})" for left in centered for right in centered]
        sums = self.fetch(points.select(products, products))[0]
        matrix = np.array(sums, dtype=np.float64).reshape(len(columns), len(columns))
        return model_query(names, [tuple(ridge(matrix, means, operation.penalty).tolist())])

    def _embed(self, operation: ops.Embed, texts: DuckDbQuery) -> DuckDbQuery:
        words = (
            f"list_filter(string_split({sql_name(operation.column)}, ' '), lambda word: word <> '')"
        )
        numbered = texts.select(
            [sql_named(words, "words"), "row_number() OVER () << 32 AS text"], ()
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
            sql_named(f"sum({factor} * other % {ops.INDEX_MODULUS} % 3 - 1)", name)
            for factor, name in zip(operation.factors, names, strict=True)
        ]
        sums = DuckDbQuery(around, ("rank", "other")).select(
            ["rank", *vectors], ("rank", *names), "GROUP BY rank"
        )
        together = DuckDbQuery(f"FROM ({vocabulary.text}) LEFT JOIN ({sums.text}) USING (rank)", ())
        filled = [sql_named(f"coalesce({name}, 0)::DOUBLE", name) for name in names]
        return together.select(
            [sql_named("word", operation.name), *filled], (operation.name, *names)
        )

    def _predict(
        self, operation: ops.LinearPredict, rows: DuckDbQuery, model: DuckDbQuery
    ) -> DuckDbQuery:
        names = [*(f"coefficient_{name}" for name in operation.features), "intercept"]
        found = self.fetch(model.select([sql_names(names)], names))
        *coefficients, intercept = found[0] if found else [0.0] * len(names)
        terms = [
            f"{sql_literal(coefficient)} * {sql_name(name)}"
            for coefficient, name in zip(coefficients, operation.features, strict=True)
        ]
        total = " + ".join([*terms, sql_literal(intercept)])
        return rows.select(["*", sql_named(total, operation.name)], (*rows.columns, operation.name))

    def _new_name(self) -> str:
        self._tables += 1
        return f"table_{self._tables}"
