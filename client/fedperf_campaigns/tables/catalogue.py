"""The candidates for tables: one list, frozen here, for the product and for experiments.

Chosen from what was published about run times of tabular jobs and by errors inside the
training parts of public scenarios. The process with shares came last, after a look at the
errors that the experiment `profiling_models` prints. All learn log seconds on the features
of a `TableLayout`, whose inverse and log columns are what pays in feature engineering.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedperf_campaigns.tables.roles import prior_slopes
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.learners.local_learners import (
    Boosting,
    Constant,
    Forest,
    LocalProcess,
    LogRidge,
    ResidualProcess,
)
from fedperf_client.prediction.learners.prior_slopes import NO_REPEATS, Scatter
from fedperf_client.prediction.learners.ridge import WEAK_STRENGTHS
from fedperf_client.prediction.learners.scaling_laws import fit_ernest
from fedperf_client.prediction.learners.tables import TableLayout
from fedperf_client.prediction.prediction import Floats
from fedperf_client.prediction.query_encoding import EncodedQueries

MORE_FROM = 30
"""Own executions from which on more than five candidates are told apart."""


@dataclass(frozen=True, slots=True)
class Ernest:
    """Ernest by relative error, on two features that are logs.

    Attributes:
        scale: place of the log scale among the features.
        size: place of the log size.
    """

    scale: int
    size: int
    name: str = "local ernest"
    start: None = None
    fewest: int = 5
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the four parts."""
        if len(log_seconds) == 0:
            return Constant().fit(samples, log_seconds)
        scale, size = self.scale, self.size
        model = fit_ernest(samples.features[:, scale], samples.features[:, size], log_seconds)
        return lambda asked: model(asked.features[:, scale], asked.features[:, size])


@dataclass(frozen=True, slots=True)
class WithShare:
    """A local process that reads one more feature: the share of the input of each machine.

    Attributes:
        scale: place of the log scale among the features.
        size: place of the log size.
    """

    scale: int
    size: int
    name: str = "local process+share"
    start: None = None
    fewest: int = 3
    most: int | None = None

    def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
        """Learn the process."""
        fitted = LocalProcess().fit(self._with_share(samples), log_seconds)
        return lambda asked: fitted(self._with_share(asked))

    def _with_share(self, samples: EncodedQueries) -> EncodedQueries:
        features = samples.features
        share = np.exp(features[:, self.size] - features[:, self.scale])
        return replace(samples, features=np.column_stack([features, share]))


def table_learners(
    layout: TableLayout, *, elsewhere: Scatter = NO_REPEATS, seed: int = 1
) -> tuple[Learner, ...]:
    """The candidates for tables of that layout, in order of trust; all are local-only.

    Few errors cannot tell many apart: two below ten executions, three below twenty.

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
