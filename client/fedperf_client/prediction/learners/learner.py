"""The interface of everything that the weighting can mix.

A `Learner` is a recipe: fitted on samples and log run times it gives a function
from samples to log run times. It keeps no state, so that folds can fit it many times.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries

Fitted = Callable[[EncodedQueries], Floats]

ROUNDING = 1e-9
"""Relative difference below which two numbers of a column are the same."""

SAME = 1 - 1e-9
"""Correlation from which on two columns say the same."""


class Learner(Protocol):
    """A recipe for a predictor."""

    @property
    def name(self) -> str:
        """How explanations call it."""
        ...

    @property
    def start(self) -> str | None:
        """The start model that it builds on; None for a local-only learner."""
        ...

    @property
    def fewest(self) -> int:
        """Fewest own executions from which it is worth a try."""
        ...

    @property
    def most(self) -> int | None:
        """Most own executions up to which it is worth a try; None without end."""
        ...

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn from own executions, at least `fewest - 1` of them (a fold leaves some out)."""
        ...


def varying_columns(features: Floats) -> NDArray[np.int64]:
    """Columns that are not constant over the rows."""
    if len(features) == 0:
        return np.empty(0, np.int64)
    rounding = ROUNDING * np.abs(features).max(axis=0)
    return np.flatnonzero(np.ptp(features, axis=0) > rounding).astype(np.int64)


def telling_columns(features: Floats) -> NDArray[np.int64]:
    """Columns that vary and are not, over the rows, a straight line of one before them."""
    columns = varying_columns(features)
    if len(columns) == 0:
        return columns
    centred = features[:, columns] - features[:, columns].mean(axis=0)
    centred /= np.linalg.norm(centred, axis=0)
    alike = np.abs(np.triu(centred.T @ centred, k=1)) > SAME
    return np.asarray(columns[~alike.any(axis=0)], dtype=np.int64)
