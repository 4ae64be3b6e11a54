"""Dense linear algebra of the learning operations, in float64.

Engines do the passes over rows. The rest has the size of the model: centers, products of columns.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedperf_engines.platforms.operations import INDEX_MODULUS, Embed, KMeans

Vector = npt.NDArray[np.float64]

NO_CENTER = -1  # cluster of a row when the model has no centers, because it was trained on no rows


def starting_centers(operation: KMeans, low: Vector, high: Vector) -> Vector:
    """Return centers of shape (clusters, columns) before the first round."""
    return low + np.array(operation.starting_fractions()) * (high - low)


def moved_centers(centers: Vector, sums: Vector, counts: Vector) -> Vector:
    """Return means of the clusters; a center without rows stays. `sums` is (clusters, columns)."""
    filled = counts > 0
    new_centers = centers.copy()
    new_centers[filled] = sums[filled] / counts[filled, None]
    return new_centers


def centers_moved_by(centers: Vector, rows: Iterable[tuple[Any, ...]]) -> Vector:
    """Return `moved_centers` from a query's rows: cluster, count, then one sum per column."""
    counts = np.zeros(len(centers))
    totals = np.zeros_like(centers)
    for cluster, count, *total in rows:
        counts[cluster] = count
        totals[cluster] = total
    return moved_centers(centers, totals, counts)


def nearest_centers(columns: Sequence[Vector], centers: Vector) -> npt.NDArray[np.int64]:
    """For each row the number of its nearest center, the first one of a tie."""
    rows = len(columns[0])
    best = np.full(rows, np.inf)
    nearest = np.full(rows, NO_CENTER, dtype=np.int64)
    for number, center in enumerate(centers):
        distance = np.zeros(rows)
        for column, coordinate in zip(columns, center, strict=True):
            distance += (column - coordinate) ** 2
        closer = distance < best
        best[closer] = distance[closer]
        nearest[closer] = number
    return nearest


def ridge(products: Vector, means: Vector, penalty: float) -> Vector:
    """Return coefficients, then the intercept.

    `products` is the (p+1, p+1) matrix of summed products of centered columns,
    features first and target last; `means` the p+1 means.
    """
    width = len(means) - 1
    gram = products[:width, :width] + penalty * np.eye(width)
    coefficients = np.linalg.solve(gram, products[:width, width])
    intercept = means[width] - means[:width] @ coefficients
    return np.append(coefficients, intercept)


def index_vectors(operation: Embed, words: int) -> npt.NDArray[np.int64]:
    """Return index vectors of the words with ranks 1 to `words`, int64 [words, dimensions]."""
    ranks = np.arange(1, words + 1)[:, None]
    return np.array(operation.factors) * ranks % INDEX_MODULUS % 3 - 1
