"""The learners that an ensemble may have, in order of precedence.

Local-only learners take part from `LOCAL_FROM` executions on. So a bad shared model cannot make an
organization's predictions worse than its own would be. The shared model stays among the members as
it is: the others are shrunken towards it. Below ten executions there are at most three candidates.
The errors of so few folds are mostly noise, and of many candidates one looks good by chance.
"""

import math
from collections.abc import Container

from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    SHARED,
    Boosting,
    CellCorrectedModel,
    CellCorrection,
    Constant,
    Learner,
    LocalProcess,
    LogRidge,
    Nearest,
    ResidualBoosting,
    ResidualRidge,
    ShrunkenBias,
    UncorrectedModel,
)
from fedperf_shared.errors import FedperfError

LOCAL_FROM = 5
"""Local executions from which on local-only learners take part beside a pretrained model."""

READY = 0.5
"""Executions beyond its minimum at which a learner has its full weight, as a share of it."""


class NoLearnerError(FedperfError):
    """Raised when no learner can be used with so few local executions."""

    def __init__(self, executions: int) -> None:
        super().__init__(
            f"no predictor works with {executions} own executions and without a shared model; "
            "fetch a shared model or ingest executions first"
        )
        self.executions = executions


def joined_learners(
    correction: CellCorrection | None = None, *, is_newer: bool = False
) -> tuple[Learner, ...]:
    """Return the learners of an organization that joined: on all pretrained models, and local.

    Args:
        correction: the coordinator's, of the reference model.
        is_newer: whether the shared model has learnt since it was the reference. Then it takes
            precedence over the corrected reference.
    """
    nothing = CellCorrection.nothing_known()
    shared, corrected = UncorrectedModel(SHARED), CellCorrectedModel(correction or nothing)
    first: tuple[Learner, ...] = (corrected, shared)
    if is_newer:
        of_others = () if correction is None else (corrected,)
        first = (shared, CellCorrectedModel(nothing, start=SHARED), *of_others)
    return (
        *first,
        ResidualRidge(SHARED),
        ResidualBoosting(SHARED),
        UncorrectedModel(PUBLIC, fewest=10),
        *local_learners(fewest=LOCAL_FROM),
    )


def public_learners() -> tuple[Learner, ...]:
    """Return the learners of an organization that did not join: on the public model, and local."""
    return (
        UncorrectedModel(PUBLIC),
        ShrunkenBias(PUBLIC),
        ResidualRidge(PUBLIC),
        ResidualBoosting(PUBLIC),
        *local_learners(fewest=LOCAL_FROM),
    )


def local_learners(fewest: int = 0) -> tuple[Learner, ...]:
    """Return the learners that read no pretrained model; their ensemble is "local-only"."""
    few: tuple[Learner, ...] = (Constant(),) if fewest == 0 else ()
    return (
        *few,
        LogRidge(),
        Nearest(),
        LocalProcess(fewest=20, most=300),
        Boosting(),
        Boosting("local linear boosting", fewest=100, linear_leaves=True),
    )


def is_usable(learner: Learner, executions: float, starts: Container[str]) -> bool:
    """Return whether a learner can be used with so many executions and these pretrained models."""
    most = math.inf if learner.most is None else learner.most
    return learner.fewest <= executions <= most and (
        learner.start is None or learner.start in starts
    )


def local_share(learner: Learner) -> float:
    """Return how much of a prediction local executions determine; a half for corrected models."""
    if learner.start is None:
        return 1.0
    is_pretrained = learner.fewest < LOCAL_FROM or learner.name == learner.start
    return 0.0 if is_pretrained else 0.5


def readiness(learner: Learner, executions: float) -> float:
    """Return the share of its weight that a learner has with so many executions, in (0, 1].

    It grows and falls gradually, so that one workload more never adds or removes a whole learner.
    Learners for few executions have all of it at once.
    """
    if learner.fewest <= LOCAL_FROM:
        return 1.0
    left = (learner.most + 1 - executions) / learner.most if learner.most else 1.0
    return min(1.0, (executions + 1 - learner.fewest) / learner.fewest / READY, left / READY)
