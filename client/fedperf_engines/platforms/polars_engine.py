"""Polars: a frame is a LazyFrame; `keep` collects it, iterative operations run at once.

The number of threads is read from POLARS_MAX_THREADS when Polars is imported, not
from the argument (see `engine`).
"""

import operator
from functools import reduce
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.algebra import (
    NO_CENTER,
    Vector,
    moved_centers,
    ridge,
    starting_centers,
)
from fedperf_engines.platforms.engine import Engine
from fedperf_shared.workflow.vocabulary import Platform


class PolarsEngine(Engine[pl.LazyFrame]):
    """Runs operations as lazy frames."""

    platform = Platform.POLARS

    def read(self, path: Path, columns: tuple[str, ...]) -> pl.LazyFrame:
        """Return a frame that scans the file when it is collected."""
        return pl.scan_parquet(path).select(columns)

    def load(self, table: pa.Table) -> pl.LazyFrame:
        """Return a frame over the table, mostly without a copy."""
        frame = pl.from_arrow(table)
        return (frame.to_frame() if isinstance(frame, pl.Series) else frame).lazy()

    def keep(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return the collected frame."""
        return frame.collect().lazy()

    def collect(self, frame: pl.LazyFrame) -> pa.Table:
        """Run the query."""
        return frame.collect().to_arrow()

    def _union(self, _: ops.Union, first: pl.LazyFrame, second: pl.LazyFrame) -> pl.LazyFrame:
        return pl.concat([first, second])

    def _project(self, operation: ops.Project, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.select(*operation.keep, *map(_computed, operation.computed))

    def _filter(self, operation: ops.Filter, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.filter(
            operation.comparison.function(pl.col(operation.column), operation.literal)
        )

    def _aggregate(self, operation: ops.Aggregate, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.group_by(*operation.keys).agg(*map(_aggregation, operation.aggregations))

    def _global_aggregate(self, operation: ops.GlobalAggregate, rows: pl.LazyFrame) -> pl.LazyFrame:
        count = pl.len().alias("all_rows__")
        total = rows.select(*map(_aggregation, operation.aggregations), count)
        return total.filter(pl.col("all_rows__") > 0).drop("all_rows__")

    def _distinct(self, operation: ops.Distinct, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.select(operation.columns).unique()

    def _sort(self, operation: ops.Sort, rows: pl.LazyFrame) -> pl.LazyFrame:
        order, descending = ops.total_order(operation.by)
        return rows.sort(order, descending=descending)

    def _top_k(self, operation: ops.TopK, rows: pl.LazyFrame) -> pl.LazyFrame:
        order, descending = ops.total_order(operation.by, _columns(rows))
        return rows.bottom_k(operation.count, by=order, reverse=descending)

    def _tokenize(self, operation: ops.Tokenize, rows: pl.LazyFrame) -> pl.LazyFrame:
        words = pl.col(operation.column).str.split(" ").explode().alias(operation.name)
        return rows.select(words).filter(pl.col(operation.name) != "")

    def _join(self, operation: ops.Join, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
        added = operation.added(_columns(right))
        renamed = [pl.col(old).alias(new) for old, new in added.items()]
        right = right.select(pl.col(operation.right_key).alias("right_key__"), *renamed)
        joined = left.join(right, left_on=operation.left_key, right_on="right_key__", how="inner")
        return joined.select(*_columns(left), *added.values())

    def _window(self, operation: ops.Window, frame: pl.LazyFrame) -> pl.LazyFrame:
        keys, descending = ops.total_order(operation.by, _columns(frame))
        if operation.function is ops.WindowFunction.ROW_NUMBER:
            value = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        else:
            value = pl.col(operation.column).cum_sum()
        # One sort for all partitions: `over(order_by=...)` allows one direction for all keys only.
        ordered = frame.sort(keys, descending=descending)
        return ordered.with_columns(value.over(operation.partition).alias(operation.name))

    def _page_rank(self, operation: ops.PageRank, edges: pl.LazyFrame) -> pl.LazyFrame:
        ends = edges.select(
            pl.col(operation.source).alias("source"), pl.col(operation.target).alias("target")
        ).collect()
        nodes = pl.concat(
            [ends.select(node="source"), ends.select(node="target")], rechunk=True
        ).unique()
        degrees = ends.group_by("source").agg(pl.len().alias("degree"))
        links = ends.join(degrees, on="source").select(
            "source", "target", (operation.damping / pl.col("degree")).alias("share")
        )
        rank = nodes.with_columns(pl.lit(1 / max(len(nodes), 1)).alias("rank"))
        base = (1 - operation.damping) / max(len(nodes), 1)
        for _ in range(operation.iterations):
            received = (
                links.lazy()
                .join(rank.lazy(), left_on="source", right_on="node")
                .group_by("target")
                .agg((pl.col("share") * pl.col("rank")).sum().alias("received"))
            )
            rank = (
                nodes.lazy()
                .join(received, left_on="node", right_on="target", how="left")
                .select("node", (base + pl.col("received").fill_null(0.0)).alias("rank"))
                .collect()
            )
        return rank.lazy()

    def _k_means(self, operation: ops.KMeans, rows: pl.LazyFrame) -> pl.LazyFrame:
        columns = operation.columns
        points = rows.select(pl.col(columns).cast(pl.Float64)).collect()
        schema = {"cluster": pl.Int64, **dict.fromkeys(columns, pl.Float64)}
        if points.is_empty():
            return pl.LazyFrame(schema=schema)
        low, high = points.min().to_numpy()[0], points.max().to_numpy()[0]
        centers = starting_centers(operation, low, high)
        for _ in range(operation.iterations):
            sums = (
                _nearest(points.lazy(), columns, centers, name="cluster__")
                .group_by("cluster__")
                .agg(pl.len().alias("rows__"), pl.col(columns).sum())
                .collect()
            )
            clusters = sums.get_column("cluster__").to_numpy()
            counts, totals = np.zeros(len(centers)), np.zeros_like(centers)
            counts[clusters] = sums.get_column("rows__").to_numpy()
            totals[clusters] = sums.select(columns).to_numpy()
            centers = moved_centers(centers, totals, counts)
        model = {"cluster": np.arange(len(centers))} | dict(zip(columns, centers.T, strict=True))
        return pl.LazyFrame(model, schema=schema)

    def _k_means_assign(
        self, operation: ops.KMeansAssign, rows: pl.LazyFrame, model: pl.LazyFrame
    ) -> pl.LazyFrame:
        centers = model.sort("cluster").select(operation.columns).collect().to_numpy()
        return _nearest(rows, operation.columns, centers, name=operation.name)

    def _linear_regression(
        self, operation: ops.LinearRegression, rows: pl.LazyFrame
    ) -> pl.LazyFrame:
        columns = (*operation.features, operation.target)
        plain = [f"c{number}" for number in range(len(columns))]
        names = ops.model_columns(operation.features)
        points = rows.select(
            pl.col(column).cast(pl.Float64).alias(name)
            for column, name in zip(columns, plain, strict=True)
        ).collect()
        if points.is_empty():
            return pl.LazyFrame(schema=dict.fromkeys(names, pl.Float64))
        means = points.mean().to_numpy()[0]
        centered = [pl.col(name) - mean for name, mean in zip(plain, means, strict=True)]
        products = points.select(
            (left * right).sum().alias(f"{row}_{column}")
            for row, left in enumerate(centered)
            for column, right in enumerate(centered)
        )
        matrix = products.to_numpy().reshape(len(columns), len(columns))
        betas = ridge(matrix, means, operation.penalty)
        return pl.LazyFrame({name: [value] for name, value in zip(names, betas, strict=True)})

    def _linear_predict(
        self, operation: ops.LinearPredict, rows: pl.LazyFrame, model: pl.LazyFrame
    ) -> pl.LazyFrame:
        names = ops.model_columns(operation.features)
        weights = model.select(names).collect()
        *coefficients, intercept = weights.row(0) if len(weights) else [0.0] * len(names)
        terms = [
            pl.col(name) * coefficient
            for name, coefficient in zip(operation.features, coefficients, strict=True)
        ]
        total = reduce(operator.add, terms) + intercept
        return rows.with_columns(total.alias(operation.name))

    def _embed(self, operation: ops.Embed, texts: pl.LazyFrame) -> pl.LazyFrame:
        words = (
            texts.select(pl.col(operation.column).str.split(" ").alias("word"))
            .with_row_index("text")
            .explode("word")
            .filter(pl.col("word") != "")
            .collect()
        )
        vocabulary = words.select("word").unique().sort("word").with_row_index("rank", offset=1)
        vocabulary = vocabulary.with_columns(pl.col("rank").cast(pl.Int64))
        places = words.join(vocabulary, on="word", how="left", maintain_order="left")
        around = [
            places.lazy()
            .select(
                "rank",
                pl.col("rank").shift(distance).alias("other"),
                (pl.col("text").shift(distance) == pl.col("text")).alias("together"),
            )
            .filter("together")
            for distance in range(-operation.window, operation.window + 1)
            if distance
        ]
        sums = (
            pl.concat(around)
            .group_by("rank")
            .agg(
                (factor * pl.col("other") % ops.INDEX_MODULUS % 3 - 1).sum().alias(name)
                for factor, name in zip(operation.factors, operation.vector_names, strict=True)
            )
        )
        vectors = [pl.col(name).fill_null(0).cast(pl.Float64) for name in operation.vector_names]
        joined = vocabulary.lazy().join(sums, on="rank", how="left")
        return joined.select(pl.col("word").alias(operation.name), *vectors)


def _nearest(
    rows: pl.LazyFrame, columns: tuple[str, ...], centers: Vector, *, name: str
) -> pl.LazyFrame:
    """Return the rows and, as `name`, the number of the nearest center."""
    nearest: pl.Expr = pl.lit(NO_CENTER, dtype=pl.Int64)
    if not len(centers):
        return rows.with_columns(nearest.alias(name))
    distances = [f"distance_{number}__" for number in range(len(centers))]
    terms = [
        reduce(
            operator.add,
            (
                (pl.col(c) - coordinate).pow(2)
                for c, coordinate in zip(columns, center, strict=True)
            ),
        ).alias(distance)
        for center, distance in zip(centers.tolist(), distances, strict=True)
    ]
    smallest = pl.min_horizontal(distances).alias("smallest__")
    for number in reversed(range(len(centers))):
        label = pl.lit(number, dtype=pl.Int64)
        is_nearest = pl.col(distances[number]) == pl.col("smallest__")
        nearest = pl.when(is_nearest).then(label).otherwise(nearest)
    measured = rows.with_columns(terms).with_columns(smallest)
    return measured.with_columns(nearest.alias(name)).drop(*distances, "smallest__")


def _computed(computed: ops.ComputedColumn) -> pl.Expr:
    value = pl.col(computed.column).cast(pl.Float64)
    for step in computed.steps:
        operand = (
            pl.col(step.operand).cast(pl.Float64)
            if isinstance(step.operand, str)
            else pl.lit(float(step.operand))
        )
        value = step.operator.function(value, operand)
    return value.alias(computed.name)


def _aggregation(aggregation: ops.Aggregation) -> pl.Expr:
    if aggregation.function is ops.AggregateFunction.COUNT:
        return pl.len().cast(pl.Int64).alias(aggregation.name)
    value: pl.Expr = getattr(pl.col(aggregation.column), aggregation.function.value)()
    return value.alias(aggregation.name)


def _columns(frame: pl.LazyFrame) -> list[str]:
    return frame.collect_schema().names()
