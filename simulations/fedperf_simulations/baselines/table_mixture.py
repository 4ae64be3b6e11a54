"""Mixtures of learners for tables of columns, as experiments compare them.

The product mixes local learners (`fedperf_campaigns.tables.learners`). Candidates
that read a downloaded belief about public points are compared here alone.
"""

from collections.abc import Sequence

from fedperf_campaigns.tables.learners import MORE_FROM, Forest, ResidualProcess
from fedperf_client.prediction.ensemble.ensemble import FittedEnsemble, cross_validate
from fedperf_client.prediction.ensemble.learner_catalogue import LOCAL_FROM
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.ensemble.weighting import (
    ScaleAndSize,
    closest_split,
    grouped_split,
    holdout_splits,
)
from fedperf_client.prediction.learners.base_learners import (
    REFERENCE,
    Boosting,
    Constant,
    Learner,
    LocalProcess,
    LogRidge,
    ShrunkenBias,
    UncorrectedModel,
)
from fedperf_client.prediction.learners.ridge import WEAK_STRENGTHS
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_simulations.baselines.download import PretrainedWithPosterior


def mixed_for(
    kind: QueryRegime,
    asked: ScaleAndSize,
    known: TrainingSet,
    learners: Sequence[Learner],
    *,
    seed: int = 0,
) -> FittedEnsemble:
    """Mix `learners` for questions of one kind.

    Args:
        kind: of the questions, see `asks`.
        asked: where the questions lie, [questions].
        known: own executions.
        learners: as for `weigh`.
        seed: of folds that mimic nothing.

    Raises:
        NoLearnerError: none of them can be used.
        PredictorFailedError: a learner gave values that cannot be used.
    """
    splits = holdout_splits(known.places, kind, known.samples.features)
    split = closest_split(splits, known.places, asked) or grouped_split(known.groups, seed)
    by_name = {learner.name: learner for learner in learners}
    return FittedEnsemble.of(
        cross_validate(known, learners, split).weights(),
        lambda name: by_name[name].fit(known.samples, known.log_seconds),
    )


def local_table_learners() -> tuple[Learner, ...]:
    """Candidates that read no start model and need no layout; their mix is "local-only"."""
    return (
        LocalProcess(),
        LogRidge(fewest=3, strengths=WEAK_STRENGTHS),
        Boosting("local linear boosting", linear_leaves=True),
        Forest(),
        Constant(),
    )


def joined_table_learners(covariance: Floats) -> tuple[Learner, ...]:
    """Candidates of an organization that downloaded a belief about public points.

    Three below `LOCAL_FROM` own executions, then five until `MORE_FROM`: few errors cannot
    tell many apart. The start as it is stays among them, as what the others are shrunken to.

    Args:
        covariance: of the error of the start model `REFERENCE`, [points, points].
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
