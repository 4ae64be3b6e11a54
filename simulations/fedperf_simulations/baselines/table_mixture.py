"""Ensembles for tables of columns, as experiments compare them.

The product combines local learners (`fedperf_campaigns.tables.learners`). Candidates
that read a downloaded posterior about public points are compared here alone.

The Bayesian download is the coordinator's posterior over public points. The mean is a pretrained
model like any other (`EncodedQueries.base_predictions`). The covariance describes its error, so one
own execution corrects every correlated point. An organization's own level may differ from the
others', and so may the dependence of its run times on the features: by a line and a smooth function
of them. Few executions do not determine the scale of the covariance, the length of the own
dependence and the noise of own executions. Predictions are averaged over a fixed grid of these
numbers, each weighted by its marginal likelihood. Without own executions the prediction is the
mean. An invalid covariance is refused.

For plans, whose points are the cells of the public basis, `residual_learners.CellCorrectedModel`
does the same in a form that stays cheap for thousands of executions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from fedperf_campaigns.tables.learners import MORE_FROM, Forest, ResidualProcess
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.ensemble import (
    EnsembleWeights,
    closest_split,
    cross_validate,
    grouped_split,
    holdout_splits,
)
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize, TrainingSet
from fedperf_client.prediction.learners.base_learners import (
    LOCAL_FROM,
    OWN_LEVEL_SD,
    REFERENCE,
    Boosting,
    Constant,
    Fitted,
    InvalidCorrectionError,
    Learner,
    LocalProcess,
    LogRidge,
    ShrunkenBias,
    UncorrectedModel,
)
from fedperf_client.prediction.learners.gaussian_process import Scaling
from fedperf_client.prediction.learners.ridge import WEAK_STRENGTHS
from fedperf_client.prediction.prediction import Floats, QueryRegime

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors on the covariance. Their prior is log-normal, of standard deviation 1."""

OWN_SDS = (0.0, 0.03, 0.1, 0.3)
"""Standard deviations of the own dependence on the features, log seconds."""

LENGTHS = (0.4, 0.8, 1.6)
"""Over which it changes, where own executions span [-1, 1]."""

NOISE_SDS = (0.03, 0.1, 0.3, 0.6)
"""Standard deviations of one execution, log seconds."""

LEAST_SHARE = 1e-3
"""Numbers of the grid that are less likely than this are left out of the average."""

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class PretrainedWithPosterior:
    """A pretrained model whose error is modelled as Gaussian over the public points.

    Attributes:
        covariance: of the pretrained model's error, (log seconds)^2, float64 [points, points]. The
            point of a query is the number of its cell (`EncodedQueries.cells`).
    """

    covariance: Floats
    base_model: str = REFERENCE
    fewest: int = 0
    most: int | None = 200

    def __post_init__(self) -> None:
        points = len(self.covariance)
        if self.covariance.shape != (points, points) or not np.isfinite(self.covariance).all():
            raise InvalidCorrectionError(
                f"a covariance is square and finite, got shape {self.covariance.shape}"
            )
        symmetric = np.abs(self.covariance - self.covariance.T).max(initial=0.0) <= ROUNDING
        if not (symmetric and np.linalg.eigvalsh(self.covariance).min(initial=0.0) >= -ROUNDING):
            raise InvalidCorrectionError("a covariance is symmetric and positive semi-definite")

    @property
    def name(self) -> str:
        """Its name in explanations."""
        return f"{self.base_model}+covariance"

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> "FittedDownload":
        """Condition on own executions.

        Raises:
            InvalidCorrectionError: an execution is at a point that the covariance lacks.
        """
        left = log_seconds - samples.base_predictions[self.base_model]
        scaling = Scaling.of(samples.features)
        inputs = scaling(samples.features)
        points = self.points(samples)
        crossed = self.covariance[np.ix_(points, points)]
        conditioned = list(_conditioned(crossed, inputs, left))
        posteriors = np.array([each.log_posterior for each in conditioned])
        shares = np.exp(posteriors - posteriors.max())
        places = np.flatnonzero(shares >= LEAST_SHARE * shares.sum())
        likely = [
            (float(shares[each] / shares[places].sum()), conditioned[each]) for each in places
        ]
        return FittedDownload(self, points, scaling, inputs, likely)

    def points(self, samples: EncodedQueries) -> NDArray[np.int64]:
        """Return the public point of each sample.

        Raises:
            InvalidCorrectionError: the covariance lacks one.
        """
        count = len(self.covariance)
        if not ((samples.cells >= 0) & (samples.cells < count)).all():
            raise InvalidCorrectionError(f"a query lies at none of the {count} points")
        return samples.cells


@dataclass(frozen=True, slots=True, eq=False)
class FittedDownload:
    """Samples -> log seconds."""

    download: PretrainedWithPosterior
    _points: NDArray[np.int64]
    _scaling: Scaling
    _inputs: Floats
    _likely: "list[tuple[float, _GridPoint]]"

    def __call__(self, queries: EncodedQueries) -> Floats:
        """Mean log seconds, [queries]."""
        crossed = self.download.covariance[np.ix_(self.download.points(queries), self._points)]
        inputs = self._scaling(queries.features)
        departures = {length: _departure(inputs, self._inputs, length) for length in LENGTHS}
        error = np.zeros(len(inputs))
        for share, each in self._likely:
            covariance = each.numbers.covariance(crossed, departures[each.numbers.length])
            error += share * (covariance @ each.weights)
        return np.asarray(queries.base_predictions[self.download.base_model] + error)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """One point of the grid, without the noise."""

    scale: float
    own_sd: float
    length: float

    def covariance(self, crossed: Floats, departure: Floats) -> Floats:
        """Return the covariance of the pretrained model's error, with own level and dependence."""
        return self.scale * crossed + OWN_LEVEL_SD**2 + self.own_sd**2 * departure


@dataclass(frozen=True, slots=True, eq=False)
class _GridPoint:
    """One point of the grid, how likely it is, and what follows from it."""

    numbers: _Numbers
    log_posterior: float
    weights: Floats


_GRID = tuple(
    _Numbers(scale, own_sd, length)
    for scale, own_sd, length in product(SCALES, OWN_SDS, LENGTHS)
    if own_sd > 0 or length == LENGTHS[0]  # without own dependence its length has no effect
)


def _conditioned(crossed: Floats, inputs: Floats, left: Floats) -> Iterator[_GridPoint]:
    """Yield every point of the grid. Posteriors lack the constant that all share."""
    departures = {length: _departure(inputs, inputs, length) for length in LENGTHS}
    for numbers in _GRID:
        alike = 1 if numbers.own_sd > 0 else len(LENGTHS)
        prior = math.log(alike) - math.log(numbers.scale) ** 2 / 2
        covariance = numbers.covariance(crossed, departures[numbers.length])
        for noise_sd in NOISE_SDS:
            factor = np.linalg.cholesky(covariance + noise_sd**2 * np.eye(len(left)))
            weights = np.asarray(cho_solve((factor, True), left), dtype=np.float64)
            fit = float(left @ weights) / 2 + float(np.log(np.diag(factor)).sum())
            yield _GridPoint(numbers, prior - fit, weights)


def _departure(one: Floats, other: Floats, length: float) -> Floats:
    """Covariance of an own dependence of size 1: half of it a line, and a smooth function."""
    apart = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(one @ other.T / 2 + np.exp(-apart / (2 * length**2)))


def mixed_for(
    kind: QueryRegime,
    queries: ScaleAndSize,
    training: TrainingSet,
    learners: Sequence[Learner],
    *,
    seed: int = 0,
) -> tuple[EnsembleWeights, Fitted]:
    """Weigh and fit `learners` for queries of one regime.

    Args:
        kind: of the queries, see `asks`.
        queries: encoded inputs, [queries].
        training: own executions.
        learners: as for `weigh`.
        seed: of folds that match no query.

    Raises:
        NoLearnerError: none of them can be used.
        PredictorFailedError: a learner gave values that cannot be used.
    """
    splits = holdout_splits(training.places, kind, training.samples.features)
    split = closest_split(splits, training.places, queries) or grouped_split(training.groups, seed)
    by_name = {learner.name: learner for learner in learners}
    weights = cross_validate(training, learners, split).weights()
    fits = {
        each.name: by_name[each.name].fit(training.samples, training.log_seconds)
        for each in weights.members
        if each.weight > 0
    }
    return weights, lambda queries: weights.predict(queries, fits.__getitem__)[0]


def local_table_learners() -> tuple[Learner, ...]:
    """Candidates that read no pretrained model and need no layout.

    Their ensemble is "local-only".
    """
    return (
        LocalProcess(),
        LogRidge(fewest=3, strengths=WEAK_STRENGTHS),
        Boosting("local linear boosting", linear_leaves=True),
        Forest(),
        Constant(),
    )


def joined_table_learners(covariance: Floats) -> tuple[Learner, ...]:
    """Candidates of an organization that downloaded a posterior about public points.

    Three below `LOCAL_FROM` own executions, then five until `MORE_FROM`: few errors cannot rank
    many candidates. The unchanged pretrained model stays among them, as the target of shrinkage.

    Args:
        covariance: of the error of the pretrained model `REFERENCE`, [points, points].
    """
    as_is = UncorrectedModel(REFERENCE)
    return (
        as_is,
        PretrainedWithPosterior(covariance),
        ShrunkenBias(REFERENCE),
        ResidualProcess(as_is, fewest=LOCAL_FROM),
        LocalProcess(fewest=LOCAL_FROM),
        LogRidge(fewest=MORE_FROM, strengths=WEAK_STRENGTHS),
        Boosting("local linear boosting", fewest=MORE_FROM, linear_leaves=True),
        Forest(fewest=MORE_FROM),
    )
