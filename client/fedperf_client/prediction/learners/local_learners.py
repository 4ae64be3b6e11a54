"""Predictors that know the organization's own executions only.

They read no start model, so they cap what joining can cost: a mix with them in it is
never much worse than without having joined.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.prediction.learners.boosted_trees import (
    Additive,
    BoostedTrees,
    Trees,
    fit_boosting,
)
from fedperf_client.prediction.learners.learner import Fitted, Learner, varying_columns
from fedperf_client.prediction.learners.ridge import STRENGTHS, fit_ridge
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries

if TYPE_CHECKING:
    from fedperf_client.prediction.learners.gaussian_process import GaussianProcess

UNKNOWN_LOG_SECONDS = 0.0
"""What a constant says before any execution: one second."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The median of the own executions."""

    name: str = "local constant"
    start: None = None
    fewest: int = 0
    most: int | None = 9

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the median."""
        del samples
        level = float(np.median(log_seconds)) if len(log_seconds) else UNKNOWN_LOG_SECONDS
        return lambda asked: np.full(len(asked), level)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The mean over the nearest executions by standardized features, nearer ones count more."""

    name: str = "local nearest"
    start: None = None
    fewest: int = 10
    most: int | None = 19
    neighbours: int = 3

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Keep the executions."""
        columns = varying_columns(samples.features)
        if len(columns) == 0:
            return Constant().fit(samples, log_seconds)
        from scipy.spatial.distance import cdist

        scale = samples.features[:, columns].std(axis=0) * np.sqrt(len(columns))
        known = samples.features[:, columns] / scale

        def answer(asked: EncodedQueries) -> Floats:
            points = asked.features[:, columns] / scale
            distance = cdist(points, known)
            nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
            weight = 1.0 / (np.take_along_axis(distance, nearest, axis=1) + 0.05)
            values: Floats = (weight * log_seconds[nearest]).sum(axis=1) / weight.sum(axis=1)
            return values

        return answer


@dataclass(frozen=True, slots=True)
class LogRidge:
    """Ridge regression of log seconds on the flat features; of degree 2 on their products too.

    Attributes:
        degree: 1 or 2.
        strengths: of the ridge, to choose among.
    """

    name: str = "local ridge"
    start: None = None
    fewest: int = 5
    most: int | None = None
    degree: int = 1
    strengths: tuple[float, ...] = STRENGTHS

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the coefficients."""
        return Additive(
            line=fit_ridge(
                samples.features,
                log_seconds,
                degree=self.degree,
                strengths=self.strengths,
                weights=samples.shares,
            )
        )


@dataclass(frozen=True, slots=True)
class Boosting:
    """Gradient boosting of log seconds on the flat features, with levels or lines as leaves."""

    name: str = "local boosting"
    start: None = None
    fewest: int = 20
    most: int | None = None
    linear_leaves: bool = False

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the trees."""
        trees = fit_boosting(
            samples.features,
            log_seconds,
            linear_leaves=self.linear_leaves,
            weights=samples.shares,
        )
        return Additive(trees=trees)


@dataclass(frozen=True, slots=True)
class Forest:
    """Random forest of log seconds on the flat features; `seed` draws its trees."""

    name: str = "local forest"
    start: None = None
    fewest: int = 20
    most: int | None = None
    trees: int = 40
    seed: int = 1

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the trees."""
        columns = varying_columns(samples.features)
        if len(columns) == 0:
            return Constant().fit(samples, log_seconds)
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            self.trees, max_features="sqrt", min_samples_leaf=2, n_jobs=1, random_state=self.seed
        ).fit(samples.features[:, columns], log_seconds, samples.shares)

        trees = Trees.mean_of([each.tree_ for each in forest.estimators_])
        return Additive(trees=BoostedTrees(columns, trees, -np.inf, np.inf))


@dataclass(frozen=True, slots=True, eq=False)
class FittedProcess:
    """Samples -> log seconds, with the standard deviation of one execution beside.

    Attributes:
        process: of the residual, or of log seconds where there is no base.
        base: what the residual belongs to.
    """

    process: "GaussianProcess"
    base: Fitted | None = None

    def __call__(self, asked: EncodedQueries) -> Floats:
        """Mean log seconds, [questions]."""
        mean = self.process.mean(asked.features)
        return mean if self.base is None else mean + self.base(asked)

    def sd(self, asked: EncodedQueries) -> Floats:
        """Standard deviation of the log seconds of one execution, [questions]."""
        return self.process.sd(asked.features)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A Gaussian process of log seconds on the features."""

    name: str = "local process"
    start: None = None
    fewest: int = 3
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> FittedProcess:
        """Learn the process."""
        from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

        return FittedProcess(fit_process(samples.features, log_seconds, samples.weights))


@dataclass(frozen=True, slots=True)
class ResidualProcess:
    """Another learner, and a Gaussian process of its residuals."""

    base: Learner
    fewest: int = 3
    most: int | None = None

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.base.name}+process"

    @property
    def start(self) -> str | None:
        """The start model of the base."""
        return self.base.start

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> FittedProcess:
        """Learn the base, then what it leaves."""
        from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

        base = self.base.fit(samples, log_seconds)
        left = np.asarray(log_seconds - base(samples))
        return FittedProcess(fit_process(samples.features, left, samples.weights), base)
