"""scikit-learn with SciPy: a frame is an Arrow table; graph and learning operations only.

PageRank is a sparse matrix-vector product per round. K-means uses scikit-learn's
nearest-center search, but moves the centers itself: `sklearn.cluster.KMeans` relocates
empty clusters, which would give other results than the definition of the operation.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise_distances_argmin

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.algebra import (
    NO_CENTER,
    Vector,
    index_vectors,
    moved_centers,
    starting_centers,
)
from fedperf_engines.platforms.engine import Engine
from fedperf_shared.workflow.vocabulary import Platform


class SklearnEngine(Engine[pa.Table]):
    """Runs graph and learning operations on columns of Arrow tables."""

    platform = Platform.SKLEARN

    def load(self, table: pa.Table) -> pa.Table:
        """Return the table itself."""
        return table

    def collect(self, frame: pa.Table) -> pa.Table:
        """Return the table itself."""
        return frame

    def _page_rank(self, operation: ops.PageRank, edges: pa.Table) -> pa.Table:
        source = edges.column(operation.source).to_numpy()
        target = edges.column(operation.target).to_numpy()
        nodes, codes = np.unique(np.concatenate([source, target]), return_inverse=True)
        source, target = np.split(codes, 2)
        count = len(nodes)
        degree = np.bincount(source, minlength=count)
        share = operation.damping / degree[source]
        links = sp.csr_array(sp.coo_array((share, (target, source)), shape=(count, count)))
        base = (1 - operation.damping) / max(count, 1)
        rank = np.full(count, 1 / max(count, 1))
        for _ in range(operation.iterations):
            rank = base + links @ rank
        return pa.table({"node": nodes, "rank": rank})

    def _k_means(self, operation: ops.KMeans, rows: pa.Table) -> pa.Table:
        columns = operation.columns
        names = ["cluster", *columns]
        if not rows.num_rows:
            return pa.table({name: np.empty(0) for name in names})
        points = _matrix(rows, columns)
        centers = starting_centers(operation, points.min(axis=0), points.max(axis=0))
        for _ in range(operation.iterations):
            nearest = pairwise_distances_argmin(points, centers)
            members = sp.csr_array(
                (np.ones(len(points)), nearest, np.arange(len(points) + 1)),
                shape=(len(points), len(centers)),
            )
            counts = np.bincount(nearest, minlength=len(centers)).astype(np.float64)
            centers = moved_centers(centers, members.T @ points, counts)
        return pa.table([np.arange(len(centers)), *centers.T], names=names)

    def _k_means_assign(
        self, operation: ops.KMeansAssign, rows: pa.Table, model: pa.Table
    ) -> pa.Table:
        points, centers = _matrix(rows, operation.columns), _matrix(model, operation.columns)
        nearest = np.full(len(points), NO_CENTER, dtype=np.int64)
        if len(points) and len(centers):
            order = np.argsort(model.column("cluster").to_numpy())
            nearest = pairwise_distances_argmin(points, centers[order]).astype(np.int64)
        return rows.append_column(operation.name, pa.array(nearest))

    def _linear_regression(self, operation: ops.LinearRegression, rows: pa.Table) -> pa.Table:
        names = ops.model_columns(operation.features)
        if not rows.num_rows:
            return pa.table({name: np.empty(0) for name in names})
        solver = Ridge(alpha=operation.penalty, solver="cholesky")
        solver.fit(_matrix(rows, operation.features), rows.column(operation.target).to_numpy())
        return pa.table([[value] for value in (*solver.coef_, solver.intercept_)], names=names)

    def _linear_predict(
        self, operation: ops.LinearPredict, rows: pa.Table, model: pa.Table
    ) -> pa.Table:
        total = np.zeros(rows.num_rows)
        if model.num_rows:
            *coefficients, intercept = _matrix(model, ops.model_columns(operation.features))[0]
            total = _matrix(rows, operation.features) @ coefficients + intercept
        return rows.append_column(operation.name, pa.array(total))

    def _embed(self, operation: ops.Embed, texts: pa.Table) -> pa.Table:
        """Multiply the sparse co-occurrence matrix of words with their index vectors."""
        split = pc.split_pattern(texts.column(operation.column).combine_chunks(), " ")
        text, words = pc.list_parent_indices(split), pc.list_flatten(split)
        is_word = pc.not_equal(words, "")
        encoded = words.filter(is_word).dictionary_encode()
        vocabulary, text = encoded.dictionary, text.filter(is_word).to_numpy()
        order = pc.array_sort_indices(vocabulary).to_numpy()
        ranks = np.argsort(order)[encoded.indices.to_numpy()]
        count = len(vocabulary)
        pairs = []
        for distance in range(1, operation.window + 1):
            together = text[distance:] == text[:-distance]
            pairs.append((ranks[:-distance][together], ranks[distance:][together]))
        ends = tuple(np.concatenate(each) for each in zip(*pairs, strict=True))
        adjacent = sp.csr_array(sp.coo_array((np.ones(len(ends[0])), ends), shape=(count, count)))
        vectors = (adjacent + adjacent.T) @ index_vectors(operation, count).astype(np.float64)
        names = [operation.name, *operation.vector_names]
        return pa.table([vocabulary.take(pa.array(order)), *vectors.T], names=names)


def _matrix(table: pa.Table, columns: tuple[str, ...]) -> Vector:
    """Return columns as a (rows, columns) matrix of float64."""
    return np.column_stack([table.column(name).to_numpy() for name in columns]).astype(np.float64)
