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
from fedperf_engines.platforms.algebra import (
    NO_CENTER,
    Vector,
    centers_moved_by,
    ridge,
    starting_centers,
)
from fedperf_engines.platforms.arrow import Table
from fedperf_engines.platforms.engine import UnsupportedOperationError
from fedperf_engines.platforms.spark_session import SessionResources, running_spark
from fedperf_shared.workflow.vocabulary import Platform


class SparkEngine:
    """Runs operations as lazy DataFrames of the process's session."""

    def __init__(self, *, threads: int, memory_bytes: int | None = None) -> None:
        self._spark = running_spark(SessionResources(threads, memory_bytes))
        self._persisted: list[DataFrame] = []
        self._rounds: list[DataFrame] = []

    def read(self, path: Path, columns: tuple[str, ...]) -> DataFrame:
        """A frame that scans the file; Spark looks into it now, for its columns."""
        place = "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path.absolute()))
        with self._spark.memory_errors():
            return self._spark.session.read.parquet(place).select(*columns)

    def load(self, table: Table) -> DataFrame:
        """A frame over the table, copied to the JVM now."""
        with self._spark.memory_errors():
            return self._spark.session.createDataFrame(table)

    def keep(self, frame: DataFrame) -> DataFrame:
        """The frame with its rows in the JVM's memory, on disk where they do not fit."""
        kept = frame.persist()
        self._persisted.append(kept)
        with self._spark.memory_errors():
            kept.count()
        return kept

    def collect(self, frame: DataFrame) -> Table:
        """Run the query."""
        with self._spark.memory_errors():
            return frame.toArrow()

    def fetch(self, frame: DataFrame) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""
        with self._spark.memory_errors():
            return [tuple(row) for row in frame.collect()]

    def close(self) -> None:
        """Drop what was kept; the session stays, warm for the next run."""
        for frame in self._persisted:
            frame.unpersist()
        for frame in self._rounds:
            _free(frame)
        self._persisted.clear()
        self._rounds.clear()

    def apply(  # noqa: PLR0911, PLR0912 - a dispatch
        self, operation: ops.AnyOperation, inputs: Sequence[DataFrame]
    ) -> DataFrame:
        """The lazy frame of the operation; iterative operations run at once."""
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
                return _join(operation, first, inputs[1])
            case ops.Union():
                return first.union(inputs[1])
            case ops.Project(keep=keep, computed=computed):
                return first.selectExpr(*map(_name, keep), *(_computed(each) for each in computed))
            case ops.Filter(column=column, comparison=comparison, literal=literal):
                return first.where(comparison.function(sql.col(column), sql.lit(literal)))
            case ops.Aggregate(keys=keys, aggregations=aggregations):
                return first.groupBy(*keys).agg(*(_aggregation(each) for each in aggregations))
            case ops.GlobalAggregate(aggregations=aggregations):
                rows = sql.count("*").alias("all_rows__")
                total = first.agg(*(_aggregation(each) for each in aggregations), rows)
                return total.where("all_rows__ > 0").drop("all_rows__")
            case ops.Distinct(columns=columns):
                return first.select(*columns).distinct()
            case ops.Sort(by=by):
                return first.orderBy(*_order(by, ()))
            case ops.TopK(by=by, count=count):
                return first.orderBy(*_order(by, first.columns)).limit(count)
            case ops.Window():
                return first.withColumn(operation.name, _window(operation, first.columns))
            case ops.Tokenize(column=column, name=name):
                words = first.select(sql.explode(sql.split(sql.col(column), " ")).alias(name))
                return words.where(sql.col(name) != "")
        raise UnsupportedOperationError(operation.type, Platform.SPARK)

    def _page_rank(self, operation: ops.PageRank, edges: DataFrame) -> DataFrame:
        ends = self.keep(
            edges.selectExpr(
                f"{_name(operation.source)} AS source", f"{_name(operation.target)} AS target"
            )
        )
        both = ends.selectExpr("source AS node").union(ends.selectExpr("target AS node"))
        nodes = self.keep(both.distinct())
        count = self.fetch(nodes.selectExpr("count(*)"))[0][0]
        degrees = ends.groupBy(sql.col("source").alias("from")).agg(sql.count("*").alias("degree"))
        share = f"{_literal(operation.damping)} / degree AS share"
        links = self.keep(
            ends.join(degrees, sql.col("source") == sql.col("from")).selectExpr(
                "source", "target", share
            )
        )
        rank = nodes.selectExpr("node", f"{_literal(1 / max(count, 1))} AS rank")
        base = _literal((1 - operation.damping) / max(count, 1))
        for number in range(operation.iterations):
            received = (
                links.join(rank, sql.col("source") == sql.col("node"))
                .groupBy("target")
                .agg(sql.expr("sum(share * rank) AS received"))
            )
            both = nodes.join(received, sql.col("node") == sql.col("target"), "left")
            total = both.selectExpr("node", f"{base} + coalesce(received, 0D) AS rank")
            self._rounds.append(self._without_history(total))
            if number:
                _free(self._rounds.pop(-2))
            rank = self._rounds[-1]
        return rank

    def _without_history(self, frame: DataFrame) -> DataFrame:
        """The rows, computed now, without the plan that led to them; `_free` gives them back."""
        with self._spark.memory_errors():
            return frame.localCheckpoint()

    def _k_means(self, operation: ops.KMeans, rows: DataFrame) -> DataFrame:
        columns, names = operation.columns, ("cluster", *operation.columns)
        points = self.keep(_doubles(rows, columns, columns))
        extremes = [f"{function}({_name(c)})" for function in ("min", "max") for c in columns]
        bounds = self.fetch(points.selectExpr(*extremes))[0]
        if bounds[0] is None:
            return self._model(names, np.empty((0, len(names))))
        low, high = np.split(np.array(bounds, dtype=np.float64), 2)
        centers = starting_centers(operation, low, high)
        sums = [sql.expr(f"sum({_name(column)})") for column in columns]
        for _ in range(operation.iterations):
            nearest = _nearest(points, columns, centers, name="cluster__")
            found = self.fetch(nearest.groupBy("cluster__").agg(sql.count("*"), *sums))
            centers = centers_moved_by(centers, found)
        return self._model(names, np.column_stack([np.arange(len(centers)), centers]))

    def _assign(self, operation: ops.KMeansAssign, rows: DataFrame, model: DataFrame) -> DataFrame:
        found = self.fetch(model.orderBy("cluster").select(*operation.columns))
        centers = np.array(found, dtype=np.float64).reshape(len(found), len(operation.columns))
        return _nearest(rows, operation.columns, centers, name=operation.name)

    def _regression(self, operation: ops.LinearRegression, rows: DataFrame) -> DataFrame:
        columns = (*operation.features, operation.target)
        names = ops.model_columns(operation.features)
        plain = tuple(f"c{number}" for number in range(len(columns)))
        points = self.keep(_doubles(rows, columns, plain))
        found = self.fetch(points.selectExpr(*(f"avg({name})" for name in plain)))[0]
        if found[0] is None:
            return self._model(names, np.empty((0, len(names))))
        centered = [f"({n} - {_literal(mean)})" for n, mean in zip(plain, found, strict=True)]
        products = [f"sum({left} * {right})" for left in centered for right in centered]
        sums = self.fetch(points.selectExpr(*products))[0]
        matrix = np.array(sums, dtype=np.float64).reshape(len(columns), len(columns))
        means = np.array(found, dtype=np.float64)
        return self._model(names, ridge(matrix, means, operation.penalty)[None, :])

    def _embed(self, operation: ops.Embed, texts: DataFrame) -> DataFrame:
        words = f"filter(split({_name(operation.column)}, ' '), word -> word <> '') AS words"
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
            _named("word", operation.name),
            *(_named(f"coalesce({name}, 0) * 1D", name) for name in operation.vector_names),
        )

    def _predict(
        self, operation: ops.LinearPredict, rows: DataFrame, model: DataFrame
    ) -> DataFrame:
        names = ops.model_columns(operation.features)
        found = self.fetch(model.select(*names))
        *coefficients, intercept = found[0] if found else [0.0] * len(names)
        terms = [
            f"{_literal(coefficient)} * {_name(name)}"
            for coefficient, name in zip(coefficients, operation.features, strict=True)
        ]
        total = " + ".join([*terms, _literal(intercept)])
        return rows.selectExpr("*", _named(total, operation.name))

    def _model(self, names: Sequence[str], rows: Vector) -> DataFrame:
        """A trained model: one column of `rows` per name, `cluster` in whole numbers."""
        columns = dict(zip(names, rows.T, strict=True))
        if "cluster" in columns:
            return self.load(pa.table(columns | {"cluster": columns["cluster"].astype(np.int64)}))
        return self.load(pa.table(columns))


def _free(rows: DataFrame) -> None:
    """Drop rows without history, which no method of a DataFrame does."""
    rows._jdf.queryExecution().logical().rdd().unpersist(False)


def _join(operation: ops.Join, left: DataFrame, right: DataFrame) -> DataFrame:
    keyed = right.selectExpr(
        _named(_name(operation.right_key), "right_key__"),
        *(_named(_name(old), new) for old, new in operation.added(right.columns).items()),
    )
    joined = left.join(keyed, sql.col(operation.left_key) == sql.col("right_key__"))
    return joined.drop("right_key__")


def _doubles(frame: DataFrame, columns: tuple[str, ...], names: tuple[str, ...]) -> DataFrame:
    pairs = zip(columns, names, strict=True)
    return frame.selectExpr(*(_named(_double(old), new) for old, new in pairs))


def _nearest(rows: DataFrame, columns: tuple[str, ...], centers: Vector, *, name: str) -> DataFrame:
    """The rows and, as `name`, the number of the nearest center."""
    if not len(centers):
        return rows.selectExpr("*", _named(f"{NO_CENTER}L", name))
    distances = [f"distance_{number}__" for number in range(len(centers))]
    terms = [
        " + ".join(
            f"({_name(column)} - {_literal(coordinate)}) "
            f"* ({_name(column)} - {_literal(coordinate)})"
            for column, coordinate in zip(columns, center, strict=True)
        )
        for center in centers.tolist()
    ]
    measured = rows.selectExpr("*", *map(_named, terms, distances))
    # The smallest of one is not known to Spark's least().
    smallest = f"least({', '.join(distances)})" if len(distances) > 1 else distances[0]
    whens = " ".join(f"WHEN {each} THEN {number}L" for number, each in enumerate(distances))
    nearest = _named(f"CASE {smallest} {whens} END", name)
    return measured.selectExpr(*map(_name, rows.columns), nearest)


def _computed(computed: ops.ComputedColumn) -> str:
    expression = _double(computed.column)
    for step in computed.steps:
        operand = (
            _double(step.operand)
            if isinstance(step.operand, str)
            else _literal(float(step.operand))
        )
        expression = f"({expression} {step.operator.value} {operand})"
    return _named(expression, computed.name)


def _aggregation(aggregation: ops.Aggregation) -> Column:
    function = {
        ops.AggregateFunction.COUNT: sql.count,
        ops.AggregateFunction.SUM: sql.sum,
        ops.AggregateFunction.MEAN: sql.avg,
        ops.AggregateFunction.MIN: sql.min,
        ops.AggregateFunction.MAX: sql.max,
    }[aggregation.function]
    return function(aggregation.column or "*").alias(aggregation.name)


def _window(window: ops.Window, columns: Sequence[str]) -> Column:
    ordered = Partitions.partitionBy(*window.partition).orderBy(*_order(window.by, columns))
    rows = ordered.rowsBetween(Partitions.unboundedPreceding, Partitions.currentRow)
    if window.function is ops.WindowFunction.ROW_NUMBER:
        return sql.row_number().over(rows).cast("bigint")
    return sql.sum(window.column).over(rows)


def _order(by: tuple[ops.Order, ...], ties: Iterable[str]) -> list[Column]:
    names, descending = ops.total_order(by, ties)
    ways = [sql.desc if each else sql.asc for each in descending]
    return [way(name) for way, name in zip(ways, names, strict=True)]


def _literal(value: float) -> str:
    return f"({value!r}D)"


def _double(name: str) -> str:
    return f"CAST({_name(name)} AS DOUBLE)"


def _name(name: str) -> str:
    return f"`{name}`"


def _named(expression: str, name: str) -> str:
    return f"{expression} AS {_name(name)}"
