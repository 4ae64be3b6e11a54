"""pandas: a frame is an eager DataFrame, so every operation runs when it is applied."""

from collections.abc import Sequence
from pathlib import Path

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
from fedperf_engines.platforms.engine import Engine
from fedperf_shared.workflow.vocabulary import Platform


class PandasEngine(Engine[pd.DataFrame]):
    """Runs operations as DataFrame calls, on one thread."""

    platform = Platform.PANDAS

    def read(self, path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
        """Read the file's columns now."""
        return pd.read_parquet(path, columns=list(columns))

    def load(self, table: pa.Table) -> pd.DataFrame:
        """Return the table's rows, with texts as Python strings."""
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def collect(self, frame: pd.DataFrame) -> pa.Table:
        """Return the frame as an Arrow table."""
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)

    def _union(self, _: ops.Union, first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([first, second], ignore_index=True)

    def _project(self, operation: ops.Project, rows: pd.DataFrame) -> pd.DataFrame:
        added = {each.name: _computed(each, rows) for each in operation.computed}
        return rows[list(operation.keep)].assign(**added)

    def _filter(self, operation: ops.Filter, rows: pd.DataFrame) -> pd.DataFrame:
        mask: pd.Series[bool]
        mask = operation.comparison.function(rows[operation.column], operation.literal)
        return rows[mask]

    def _distinct(self, operation: ops.Distinct, rows: pd.DataFrame) -> pd.DataFrame:
        return rows[list(operation.columns)].drop_duplicates()

    def _sort(self, operation: ops.Sort, rows: pd.DataFrame) -> pd.DataFrame:
        return _sorted(rows, operation.by, ())

    def _top_k(self, operation: ops.TopK, rows: pd.DataFrame) -> pd.DataFrame:
        return _sorted(rows, operation.by, list(rows.columns)).head(operation.count)

    def _tokenize(self, operation: ops.Tokenize, rows: pd.DataFrame) -> pd.DataFrame:
        words = rows[operation.column].str.split(" ").explode()
        return words[words != ""].to_frame(operation.name)

    def _k_means_assign(
        self, operation: ops.KMeansAssign, rows: pd.DataFrame, model: pd.DataFrame
    ) -> pd.DataFrame:
        columns = operation.columns
        centers = model.sort_values("cluster")[list(columns)].to_numpy(np.float64)
        return rows.assign(**{operation.name: nearest_centers(_floats(rows, columns), centers)})

    def _aggregate(self, operation: ops.Aggregate, frame: pd.DataFrame) -> pd.DataFrame:
        keys = list(operation.keys)
        named = {
            # A count takes no column and counts rows, missing values among them.
            each.name: (each.column, each.function.value) if each.column else (keys[0], "size")
            for each in operation.aggregations
        }
        return frame.groupby(keys, sort=False, as_index=False).agg(**named)

    def _global_aggregate(
        self, operation: ops.GlobalAggregate, frame: pd.DataFrame
    ) -> pd.DataFrame:
        if frame.empty:
            return pd.DataFrame({each.name: [] for each in operation.aggregations})
        return pd.DataFrame(
            {
                each.name: [
                    frame[each.column].agg(each.function.value) if each.column else len(frame)
                ]
                for each in operation.aggregations
            }
        )

    def _join(self, operation: ops.Join, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        names = operation.added(right.columns)
        renamed = right.rename(columns=names | {operation.right_key: "right_key__"})
        joined = left.merge(renamed, left_on=operation.left_key, right_on="right_key__")
        return joined[[*left.columns, *names.values()]]

    def _window(self, operation: ops.Window, frame: pd.DataFrame) -> pd.DataFrame:
        ordered = _sorted(frame, operation.by, list(frame.columns))
        groups = ordered.groupby(list(operation.partition), sort=False)
        if operation.function is ops.WindowFunction.ROW_NUMBER:
            return ordered.assign(**{operation.name: groups.cumcount() + 1})
        return ordered.assign(**{operation.name: groups[operation.column].cumsum()})

    def _page_rank(self, operation: ops.PageRank, edges: pd.DataFrame) -> pd.DataFrame:
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

    def _k_means(self, operation: ops.KMeans, rows: pd.DataFrame) -> pd.DataFrame:
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

    def _linear_regression(
        self, operation: ops.LinearRegression, rows: pd.DataFrame
    ) -> pd.DataFrame:
        names = ops.model_columns(operation.features)
        if rows.empty:
            return pd.DataFrame({name: [] for name in names})
        points = np.stack(_floats(rows, (*operation.features, operation.target)))
        means = points.mean(axis=1)
        centered = points - means[:, None]
        betas = ridge(centered @ centered.T, means, operation.penalty)
        return pd.DataFrame([betas], columns=names)

    def _linear_predict(
        self, operation: ops.LinearPredict, rows: pd.DataFrame, model: pd.DataFrame
    ) -> pd.DataFrame:
        total = np.zeros(len(rows))
        if len(model):
            for name in operation.features:
                total += rows[name].to_numpy(np.float64) * float(
                    model[f"coefficient_{name}"].iloc[0]
                )
            total += float(model["intercept"].iloc[0])
        return rows.assign(**{operation.name: total})

    def _embed(self, operation: ops.Embed, texts: pd.DataFrame) -> pd.DataFrame:
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


def _floats(frame: pd.DataFrame, columns: tuple[str, ...]) -> list[Vector]:
    return [frame[name].to_numpy(np.float64) for name in columns]
