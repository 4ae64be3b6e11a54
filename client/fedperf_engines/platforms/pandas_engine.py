"""pandas: a frame is an eager DataFrame, so every operation runs when it is applied."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.algebra import (
    Vector,
    index_vectors,
    moved_centers,
    nearest_centers,
    ridge,
    starting_centers,
)
from fedperf_engines.platforms.engine import UnsupportedOperationError
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from fedperf_engines.platforms.arrow import Table


class PandasEngine:
    """Runs operations as DataFrame calls, on one thread."""

    def __init__(self, *, threads: int, memory_bytes: int | None = None) -> None:
        del threads, memory_bytes

    def read(self, path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
        """The file's columns, read now."""
        return pd.read_parquet(path, columns=list(columns))

    def load(self, table: "Table") -> pd.DataFrame:
        """The table's rows; text becomes Python strings."""
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def keep(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame itself: it is computed already, and no operation changes its input."""
        return frame

    def collect(self, frame: pd.DataFrame) -> "Table":
        """The frame as an Arrow table."""
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)

    def close(self) -> None:
        """Nothing is held."""

    def apply(  # noqa: PLR0911, PLR0912 - a dispatch
        self, operation: ops.AnyOperation, inputs: Sequence[pd.DataFrame]
    ) -> pd.DataFrame:
        """The operation's result."""
        first = inputs[0]
        match operation:
            case ops.PageRank():
                return _page_rank(operation, first)
            case ops.KMeans():
                return _k_means(operation, first)
            case ops.KMeansAssign(columns=columns, name=name):
                centers = inputs[1].sort_values("cluster")[list(columns)].to_numpy(np.float64)
                return first.assign(**{name: nearest_centers(_floats(first, columns), centers)})
            case ops.LinearRegression():
                return _regression(operation, first)
            case ops.Embed():
                return _embed(operation, first)
            case ops.LinearPredict():
                return _predict(operation, first, inputs[1])
            case ops.Join():
                return _join(operation, first, inputs[1])
            case ops.Union():
                return pd.concat([first, inputs[1]], ignore_index=True)
            case ops.Project(keep=keep, computed=computed):
                added = {each.name: _computed(each, first) for each in computed}
                return first[list(keep)].assign(**added)
            case ops.Filter(column=column, comparison=comparison, literal=literal):
                kept: pd.Series[bool] = comparison.function(first[column], literal)
                return first[kept]
            case ops.Aggregate():
                return _aggregate(operation, first)
            case ops.GlobalAggregate():
                return _global_aggregate(operation, first)
            case ops.Distinct(columns=columns):
                return first[list(columns)].drop_duplicates()
            case ops.Sort(by=by):
                return _sorted(first, by, ())
            case ops.TopK(by=by, count=count):
                return _sorted(first, by, list(first.columns)).head(count)
            case ops.Window():
                return _window(operation, first)
            case ops.Tokenize(column=column, name=name):
                words = first[column].str.split(" ").explode()
                return words[words != ""].to_frame(name)
        raise UnsupportedOperationError(operation.type, Platform.PANDAS)


def _aggregate(operation: ops.Aggregate, frame: pd.DataFrame) -> pd.DataFrame:
    keys = list(operation.keys)
    named = {
        # A count takes no column and counts rows, missing values among them.
        each.name: (each.column, each.function.value) if each.column else (keys[0], "size")
        for each in operation.aggregations
    }
    return frame.groupby(keys, sort=False, as_index=False).agg(**named)


def _global_aggregate(operation: ops.GlobalAggregate, frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty:
        return pd.DataFrame({each.name: [] for each in operation.aggregations})
    return pd.DataFrame(
        {
            each.name: [frame[each.column].agg(each.function.value) if each.column else len(frame)]
            for each in operation.aggregations
        }
    )


def _join(operation: ops.Join, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    names = operation.added(right.columns)
    renamed = right.rename(columns=names | {operation.right_key: "right_key__"})
    joined = left.merge(renamed, left_on=operation.left_key, right_on="right_key__")
    return joined[[*left.columns, *names.values()]]


def _window(window: ops.Window, frame: pd.DataFrame) -> pd.DataFrame:
    ordered = _sorted(frame, window.by, list(frame.columns))
    groups = ordered.groupby(list(window.partition), sort=False)
    if window.function is ops.WindowFunction.ROW_NUMBER:
        return ordered.assign(**{window.name: groups.cumcount() + 1})
    return ordered.assign(**{window.name: groups[window.column].cumsum()})


def _sorted(frame: pd.DataFrame, by: tuple[ops.Order, ...], ties: Sequence[str]) -> pd.DataFrame:
    names, descending = ops.total_order(by, ties)
    ascending = [not each for each in descending]
    return frame.sort_values(names, ascending=ascending, ignore_index=True)


def _computed(computed: ops.ComputedColumn, frame: pd.DataFrame) -> "pd.Series[float]":
    value = frame[computed.column].astype(np.float64)
    for step in computed.steps:
        operand = (
            frame[step.operand].astype(np.float64)
            if isinstance(step.operand, str)
            else float(step.operand)
        )
        value = step.operator.function(value, operand)
    return value


def _page_rank(operation: ops.PageRank, edges: pd.DataFrame) -> pd.DataFrame:
    ends = pd.concat([edges[operation.source], edges[operation.target]], ignore_index=True)
    codes, nodes = pd.factorize(ends)
    source, target = np.split(codes, 2)
    links = pd.DataFrame({"source": source, "target": target})
    degree = links.groupby("source")["target"].transform("size")
    share = operation.damping / degree.to_numpy(np.float64)
    count = len(nodes)
    base = (1 - operation.damping) / max(count, 1)
    rank = np.full(count, 1 / max(count, 1))
    for _ in range(operation.iterations):
        sent = pd.Series(share * rank[source])
        received = sent.groupby(target).sum()
        rank = np.full(count, base)
        rank[received.index.to_numpy()] += received.to_numpy()
    return pd.DataFrame({"node": nodes, "rank": rank})


def _k_means(operation: ops.KMeans, rows: pd.DataFrame) -> pd.DataFrame:
    columns = list(operation.columns)
    if rows.empty:
        return pd.DataFrame({name: [] for name in ("cluster", *columns)})
    points = _floats(rows, operation.columns)
    low = np.array([column.min() for column in points])
    high = np.array([column.max() for column in points])
    centers = starting_centers(operation, low, high)
    for _ in range(operation.iterations):
        nearest = nearest_centers(points, centers)
        size = len(centers)
        counts = np.bincount(nearest, minlength=size).astype(np.float64)
        sums = [np.bincount(nearest, weights=column, minlength=size) for column in points]
        centers = moved_centers(centers, np.stack(sums, axis=1), counts)
    return pd.DataFrame(centers, columns=columns).assign(cluster=np.arange(len(centers)))


def _regression(operation: ops.LinearRegression, rows: pd.DataFrame) -> pd.DataFrame:
    names = ops.model_columns(operation.features)
    if rows.empty:
        return pd.DataFrame({name: [] for name in names})
    points = np.stack(_floats(rows, (*operation.features, operation.target)))
    means = points.mean(axis=1)
    centered = points - means[:, None]
    found = ridge(centered @ centered.T, means, operation.penalty)
    return pd.DataFrame([found], columns=names)


def _predict(operation: ops.LinearPredict, rows: pd.DataFrame, model: pd.DataFrame) -> pd.DataFrame:
    total = np.zeros(len(rows))
    if len(model):
        for name in operation.features:
            total += rows[name].to_numpy(np.float64) * float(model[f"coefficient_{name}"].iloc[0])
        total += float(model["intercept"].iloc[0])
    return rows.assign(**{operation.name: total})


def _embed(operation: ops.Embed, texts: pd.DataFrame) -> pd.DataFrame:
    words = texts[operation.column].reset_index(drop=True).str.split(" ").explode()
    words = words[words != ""]
    ranks, vocabulary = pd.factorize(words, sort=True)
    text, count = words.index.to_numpy(), len(vocabulary)
    index = index_vectors(operation, count)
    vectors = np.zeros((operation.dimensions, count))
    for distance in range(1, operation.window + 1):
        together = text[distance:] == text[:-distance]
        before, behind = ranks[:-distance][together], ranks[distance:][together]
        for axis in range(operation.dimensions):
            vectors[axis] += np.bincount(before, index[behind, axis], count)
            vectors[axis] += np.bincount(behind, index[before, axis], count)
    columns = dict(zip(operation.vector_names, vectors, strict=True))
    return pd.DataFrame({operation.name: vocabulary, **columns})


def _floats(frame: pd.DataFrame, columns: tuple[str, ...]) -> list[Vector]:
    return [frame[name].to_numpy(np.float64) for name in columns]
