"""Spark in local mode: a frame is a lazy DataFrame; iterative operations run at once.

`keep` persists, and `close` gives that back, but leaves the session of the process
alive: a JVM that is warm is what a next run finds (see `spark_session`). Many terms are
written as SQL text, because every call of a DataFrame's methods crosses into the JVM.

Rounds of PageRank hand on rows without their history: a plan that grows with every
round would take longer to analyze than to run.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Partitions
from pyspark.sql import functions as sql

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.spark_session import SessionResources, running_spark
from fedperf_engines.platforms.sql_engine import SqlEngine
from fedperf_shared.workflow.vocabulary import Platform


class SparkEngine(SqlEngine[DataFrame]):
    """Runs operations as lazy DataFrames of the process's session."""

    platform = Platform.SPARK

    def __init__(self, *, threads: int, memory_bytes: int | None = None) -> None:
        self._spark = running_spark(SessionResources(threads, memory_bytes))
        self._persisted: list[DataFrame] = []
        self._rounds: list[DataFrame] = []

    def read(self, path: Path, columns: tuple[str, ...]) -> DataFrame:
        """Return a frame that scans the file. Spark reads its columns' names now."""
        place = "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path.absolute()))
        with self._spark.memory_errors():
            return self._spark.session.read.parquet(place).select(*columns)

    def load(self, table: pa.Table) -> DataFrame:
        """Return a frame over the table, copied to the JVM now."""
        with self._spark.memory_errors():
            return self._spark.session.createDataFrame(table)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return the frame with its rows in the JVM's memory, on disk where they do not fit."""
        persisted = frame.persist()
        self._persisted.append(persisted)
        with self._spark.memory_errors():
            persisted.count()
        return persisted

    def collect(self, frame: DataFrame) -> pa.Table:
        """Run the query."""
        with self._spark.memory_errors():
            return frame.toArrow()

    def fetch(self, frame: DataFrame) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""
        with self._spark.memory_errors():
            return [tuple(row) for row in frame.collect()]

    def close(self) -> None:
        """Drop what was kept. The session stays, warm for the next run."""
        for frame in self._persisted:
            frame.unpersist()
        for frame in self._rounds:
            _free(frame)
        self._persisted.clear()
        self._rounds.clear()

    def _join(self, operation: ops.Join, left: DataFrame, right: DataFrame) -> DataFrame:
        names = {operation.right_key: "right_key__"} | operation.added(right.columns)
        keyed = right.selectExpr(*(self._named(self._name(c), new) for c, new in names.items()))
        joined = left.join(keyed, sql.col(operation.left_key) == sql.col("right_key__"))
        return joined.drop("right_key__")

    def _union(self, _: ops.Union, first: DataFrame, second: DataFrame) -> DataFrame:
        return first.union(second)

    def _filter(self, operation: ops.Filter, rows: DataFrame) -> DataFrame:
        column, literal = sql.col(operation.column), sql.lit(operation.literal)
        return rows.where(operation.comparison.function(column, literal))

    def _aggregate(self, operation: ops.Aggregate, rows: DataFrame) -> DataFrame:
        return rows.groupBy(*operation.keys).agg(*map(_aggregation, operation.aggregations))

    def _global_aggregate(self, operation: ops.GlobalAggregate, rows: DataFrame) -> DataFrame:
        count = sql.count("*").alias("all_rows__")
        total = rows.agg(*map(_aggregation, operation.aggregations), count)
        return total.where("all_rows__ > 0").drop("all_rows__")

    def _distinct(self, operation: ops.Distinct, rows: DataFrame) -> DataFrame:
        return rows.select(*operation.columns).distinct()

    def _sort(self, operation: ops.Sort, rows: DataFrame) -> DataFrame:
        return rows.orderBy(*_order(operation.by, ()))

    def _top_k(self, operation: ops.TopK, rows: DataFrame) -> DataFrame:
        return rows.orderBy(*_order(operation.by, rows.columns)).limit(operation.count)

    def _window(self, operation: ops.Window, rows: DataFrame) -> DataFrame:
        partitions = Partitions.partitionBy(*operation.partition)
        ordered = partitions.orderBy(*_order(operation.by, rows.columns))
        frame = ordered.rowsBetween(Partitions.unboundedPreceding, Partitions.currentRow)
        if operation.function is ops.WindowFunction.ROW_NUMBER:
            value = sql.row_number().over(frame).cast("bigint")
        else:
            value = sql.sum(operation.column).over(frame)
        return rows.withColumn(operation.name, value)

    def _tokenize(self, operation: ops.Tokenize, rows: DataFrame) -> DataFrame:
        words = sql.explode(sql.split(sql.col(operation.column), " ")).alias(operation.name)
        return rows.select(words).where(sql.col(operation.name) != "")

    def _page_rank(self, operation: ops.PageRank, edges: DataFrame) -> DataFrame:
        ends = self.keep(
            edges.selectExpr(
                f"{self._name(operation.source)} AS source",
                f"{self._name(operation.target)} AS target",
            )
        )
        both = ends.selectExpr("source AS node").union(ends.selectExpr("target AS node"))
        nodes = self.keep(both.distinct())
        count = self.fetch(nodes.selectExpr("count(*)"))[0][0]
        degrees = ends.groupBy(sql.col("source").alias("from")).agg(sql.count("*").alias("degree"))
        share = f"{self._literal(operation.damping)} / degree AS share"
        links = self.keep(
            ends.join(degrees, sql.col("source") == sql.col("from")).selectExpr(
                "source", "target", share
            )
        )
        rank = nodes.selectExpr("node", f"{self._literal(1 / max(count, 1))} AS rank")
        base = self._literal((1 - operation.damping) / max(count, 1))
        for number in range(operation.iterations):
            received = (
                links.join(rank, sql.col("source") == sql.col("node"))
                .groupBy("target")
                .agg(sql.expr("sum(share * rank) AS received"))
            )
            both = nodes.join(received, sql.col("node") == sql.col("target"), "left")
            total = both.selectExpr("node", f"{base} + coalesce(received, 0D) AS rank")
            with self._spark.memory_errors():  # the rows, without the plan that led to them
                self._rounds.append(total.localCheckpoint())
            if number:
                _free(self._rounds.pop(-2))
            rank = self._rounds[-1]
        return rank

    def _embed(self, operation: ops.Embed, texts: DataFrame) -> DataFrame:
        words = f"filter(split({self._name(operation.column)}, ' '), word -> word <> '') AS words"
        places = self.keep(
            texts.selectExpr(words).selectExpr("words", "posexplode(words) AS (place, word)")
        )
        ranked = places.select("word").distinct()
        vocabulary = self.keep(
            ranked.selectExpr("word", "row_number() OVER (ORDER BY word) AS rank")
        )
        first = f"greatest(1, place + 1 - {operation.window})"
        around = (
            f"concat(slice(words, {first}, place + 1 - {first}), "
            f"slice(words, place + 2, {operation.window}))"
        )
        pairs = places.selectExpr("word AS here", f"explode({around}) AS there")
        sums = [
            sql.expr(f"sum(CAST({factor} AS BIGINT) * rank % {ops.INDEX_MODULUS} % 3 - 1)").alias(
                name
            )
            for factor, name in zip(operation.factors, operation.vector_names, strict=True)
        ]
        others = pairs.join(vocabulary, sql.col("there") == sql.col("word"))
        vectors = others.groupBy("here").agg(*sums)
        return vocabulary.join(vectors, sql.col("word") == sql.col("here"), "left").selectExpr(
            self._named("word", operation.name),
            *(self._named(f"coalesce({name}, 0) * 1D", name) for name in operation.vector_names),
        )

    def _select(self, frame: DataFrame, parts: Sequence[str], names: Sequence[str]) -> DataFrame:
        del names  # follow from the expressions
        return frame.selectExpr(*parts)

    def _grouped(self, frame: DataFrame, key: str, parts: Sequence[str]) -> DataFrame:
        return frame.groupBy(key).agg(*map(sql.expr, parts))

    def _columns(self, frame: DataFrame) -> Sequence[str]:
        return list(frame.columns)

    def _model(self, names: Sequence[str], rows: Sequence[Sequence[float]]) -> DataFrame:
        columns = np.array(rows, dtype=np.float64).reshape(len(rows), len(names)).T
        table = dict(zip(names, columns, strict=True))
        if "cluster" in table:
            return self.load(pa.table(table | {"cluster": table["cluster"].astype(np.int64)}))
        return self.load(pa.table(table))

    def _name(self, name: str) -> str:
        return f"`{name}`"

    def _literal(self, value: float) -> str:
        return f"({value!r}D)"

    def _integer(self, value: int) -> str:
        return f"{value}L"

    def _square(self, expression: str) -> str:
        return f"{expression} * {expression}"


def _free(rows: DataFrame) -> None:
    """Drop rows without history, which no method of a DataFrame does."""
    rows._jdf.queryExecution().logical().rdd().unpersist(False)


def _aggregation(aggregation: ops.Aggregation) -> Column:
    function = {
        ops.AggregateFunction.COUNT: sql.count,
        ops.AggregateFunction.SUM: sql.sum,
        ops.AggregateFunction.MEAN: sql.avg,
        ops.AggregateFunction.MIN: sql.min,
        ops.AggregateFunction.MAX: sql.max,
    }[aggregation.function]
    return function(aggregation.column or "*").alias(aggregation.name)


def _order(by: tuple[ops.Order, ...], ties: Iterable[str]) -> list[Column]:
    names, descending = ops.total_order(by, ties)
    ways = [sql.desc if each else sql.asc for each in descending]
    return [way(name) for way, name in zip(ways, names, strict=True)]
