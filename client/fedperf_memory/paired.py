"""Bootstrap intervals over cases that come in groups.

A case is a new participant, a split or a job that both sides predict. Where cases have much in
common (queries of a lineage, draws of a job), their groups are resampled.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]

RESAMPLES = 2000
LEVEL = 0.95
_AT_ONCE = 100  # resamples that are held in memory


def interval_by_groups(
    values: Floats, groups: Sequence[object], *, share: float | None = None
) -> Interval | None:
    """95 % bootstrap interval of a mean or a quantile, resampling groups with all their cases.

    Args:
        values: [cases].
        groups: that of each case.
        share: of the cases that a quantile is not below; None for the mean.

    Returns:
        Both ends; None of a single group.
    """
    labels, group = np.unique([str(each) for each in groups], return_inverse=True)
    if len(labels) < 2:  # noqa: PLR2004
        return None
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    weights_by_resample = np.random.default_rng(0).multinomial(
        len(labels), np.full(len(labels), 1 / len(labels)), RESAMPLES
    )
    estimates = []
    for each in np.array_split(weights_by_resample, RESAMPLES // _AT_ONCE):
        weights = each[:, group[order]]
        total = weights.sum(axis=1)
        if share is None:
            estimates.append(weights @ ascending / total)
        else:
            reached = weights.cumsum(axis=1) >= share * total[:, None]
            estimates.append(ascending[reached.argmax(axis=1)])
    return interval_of(np.concatenate(estimates))


def interval_of(values: Floats) -> Interval:
    """Return the interval that holds `LEVEL` of the values."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
