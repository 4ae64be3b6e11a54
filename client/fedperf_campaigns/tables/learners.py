"""The base learners for tables of columns, for the product and for experiments.

They were chosen from publications about run times of tabular jobs and by errors inside the training
parts of public scenarios. The process with shares came last, after a look at the errors that the
experiment `profiling_models` prints. All learn log seconds on the features of a `TableLayout`,
whose inverse and log columns are the part of feature engineering that pays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import TableLayout
from fedperf_campaigns.tables.prior_slopes import NO_REPEATS, Scatter, prior_slopes
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.base_learners import (
    Boosting,
    Constant,
    Fitted,
    Learner,
    LocalProcess,
    LogRidge,
)
from fedperf_client.prediction.learners.boosted_trees import Additive, BoostedTrees, Trees
from fedperf_client.prediction.learners.ridge import WEAK_STRENGTHS, varying_columns
from fedperf_client.prediction.prediction import Floats

MORE_FROM = 30  # own executions from which on more than five learners are distinguishable
_LEAST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Ernest:
    """Ernest's scaling law, fitted to the relative error, on two features that are logs."""

    scale: int  # column of the log scale among the features
    size: int  # column of the log size
    name: str = "local ernest"
    base_model: None = None
    fewest: int = 5
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the four parts."""
        if len(log_seconds) == 0:
            return Constant().fit(samples, log_seconds)
        scale, size = self.scale, self.size
        model = fit_ernest(samples.features[:, scale], samples.features[:, size], log_seconds)
        return lambda queries: model(queries.features[:, scale], queries.features[:, size])


def fit_ernest(
    log_scale: Floats, log_size: Floats, log_seconds: Floats
) -> Callable[[Floats, Floats], Floats]:
    """Fit seconds as a sum of four parts, none negative, of scale and size.

    The fit is to the least relative error, so that long executions do not decide alone. More work
    takes longer far outside of the training data as well.

    Source: Venkataraman et al., NSDI 2016, section 3.1 (absolute errors there).

    Args:
        log_scale: log machines or cores, [rows].
        log_size: log of the input size, any unit, [rows].
        log_seconds: [rows], at least one.

    Returns:
        A function from log scale and log size to log seconds.
    """
    from scipy.optimize import nnls

    middle = float(np.median(log_size))

    def parts(log_scale: Floats, log_size: Floats) -> Floats:
        scale, size = np.exp(log_scale), np.exp(log_size - middle)
        return np.column_stack([np.ones(len(scale)), size / scale, log_scale, scale])

    terms = parts(log_scale, log_size) / np.exp(log_seconds)[:, None]
    weights, _ = nnls(terms, np.ones(len(log_seconds)))
    return lambda scale, size: np.asarray(
        np.log(np.maximum(parts(scale, size) @ weights, _LEAST_SECONDS))
    )


@dataclass(frozen=True, slots=True)
class WithShare:
    """A local process that reads one more feature: the share of the input of each machine."""

    scale: int  # column of the log scale among the features
    size: int  # column of the log size
    name: str = "local GP+share"
    base_model: None = None
    fewest: int = 3
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the process."""

        def with_share(samples: EncodedQueries) -> EncodedQueries:
            features = samples.features
            share = np.exp(features[:, self.size] - features[:, self.scale])
            return replace(samples, features=np.column_stack([features, share]))

        fitted = LocalProcess().fit(with_share(samples), log_seconds)
        return lambda queries: fitted(with_share(queries))


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
    def base_model(self) -> str | None:
        """The pretrained model of the base."""
        return self.base.base_model

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the base, then its residuals."""
        base = self.base.fit(samples, log_seconds)
        process = LocalProcess().fit(samples, np.asarray(log_seconds - base(samples)))
        return lambda queries: process(queries) + base(queries)


@dataclass(frozen=True, slots=True)
class Forest:
    """Random forest of log seconds on the flat features; `seed` draws its trees."""

    name: str = "local forest"
    base_model: None = None
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
        trees = mean_of_trees([each.tree_ for each in forest.estimators_])
        return Additive(trees=BoostedTrees(columns, trees, -np.inf, np.inf))


class Tree(Protocol):
    """The arrays of a tree of scikit-learn, [nodes] each; below 0 there is no child."""

    children_left: NDArray[np.int64]
    children_right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: Floats
    value: Floats


def mean_of_trees(trees: Sequence[Tree]) -> Trees:
    """Return the mean of scikit-learn's regression trees as a sum of trees."""
    leaf = [each.children_left < 0 for each in trees]
    is_leaf = np.concatenate(leaf)
    inner, outer = (np.cumsum(each.astype(np.int64)) for each in (~is_leaf, is_leaf))
    # The number of each node of all trees among the inner ones, or that of its leaf.
    number = np.where(is_leaf, -outer, inner - 1)
    begins = np.cumsum([0, *(len(each) for each in leaf)])[:-1]
    sides = [
        np.concatenate([side + begin for side, begin in zip(each, begins, strict=True)])
        for each in ([t.children_left for t in trees], [t.children_right for t in trees])
    ]
    children = np.column_stack([number[side[~is_leaf]] for side in sides])
    values = np.concatenate([each.value[:, 0, 0] for each in trees])[is_leaf] / len(trees)
    nothing = np.zeros((len(values), 0))
    return Trees(
        number[begins],
        np.concatenate([each.feature for each in trees])[~is_leaf].astype(np.int64),
        np.concatenate([each.threshold for each in trees])[~is_leaf],
        children.astype(np.int64),
        values,
        nothing.astype(np.int64),
        nothing,
    )


def table_learners(
    layout: TableLayout, *, elsewhere: Scatter = NO_REPEATS, seed: int = 1
) -> tuple[Learner, ...]:
    """Return the learners for tables of that layout, in order of trust; all are local.

    Few errors cannot distinguish many: there are two below ten executions, three below twenty.

    Args:
        layout: of the table.
        elsewhere: repeats of other jobs.
        seed: of the forest.
    """
    scale, size = layout.scale_feature, layout.size_feature
    ernest = Ernest(scale, size)
    return (
        prior_slopes(layout, elsewhere),
        ernest,
        LocalProcess(fewest=10),
        WithShare(scale, size, fewest=20),
        LogRidge(fewest=20, strengths=WEAK_STRENGTHS),
        ResidualProcess(ernest, fewest=20),
        LogRidge("local ridge 2", fewest=MORE_FROM, degree=2, strengths=WEAK_STRENGTHS),
        Boosting("local linear boosting", fewest=MORE_FROM, linear_leaves=True),
        Forest(fewest=MORE_FROM, seed=seed),
    )
