"""The learners that may be mixed for plans, in order of trust, by what the organization has.

Local-only learners are in the mix from `LOCAL_FROM` own executions on. So a bad shared model cannot
make an organization's predictions worse than its own would be. The shared model stays among them as
it is: it is what the others are shrunken to. Below ten executions there are at most three
candidates: the errors of so few folds are mostly noise, and of many candidates one looks good by
chance.
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
"""Own executions from which on local-only learners take part in a mix with a start model."""


READY = 0.5
"""Of the executions that a learner needs at least, how many more until its weight is whole."""


class NoLearnerError(FedperfError):
    """No learner can be used with so few own executions."""

    def __init__(self, executions: int) -> None:
        super().__init__(
            f"no predictor works with {executions} own executions and without a shared model; "
            "fetch a shared model or ingest executions first"
        )
        self.executions = executions


def joined_learners(
    correction: CellCorrection | None = None, *, is_newer: bool = False
) -> tuple[Learner, ...]:
    """Learners of an organization that joined, on all three starts, and local ones.

    Args:
        correction: the coordinator's, to the reference.
        is_newer: whether the shared model has learnt since it was the reference; then it
            is trusted before the corrected reference.
    """
    nothing = CellCorrection.nothing_known()
    shared, corrected = UncorrectedModel(SHARED), CellCorrectedModel(correction or nothing)
    first: tuple[Learner, ...] = (corrected, shared)
    if is_newer:
        of_others = () if correction is None else (corrected,)
        first = (shared, CellCorrectedModel(nothing, start=SHARED), *of_others)
    return (
        *first,
        *_on(SHARED),
        UncorrectedModel(PUBLIC, fewest=10),
        *local_learners(fewest=LOCAL_FROM),
    )


def public_learners() -> tuple[Learner, ...]:
    """Learners of an organization that did not join: the public start, and local ones."""
    as_is, bias = UncorrectedModel(PUBLIC), ShrunkenBias(PUBLIC)
    return (as_is, bias, *_on(PUBLIC), *local_learners(fewest=LOCAL_FROM))


def local_learners(fewest: int = 0) -> tuple[Learner, ...]:
    """Learners that read no start model; the mix of them alone is "local-only"."""
    few: tuple[Learner, ...] = (Constant(),) if fewest == 0 else ()
    return (
        *few,
        LogRidge(),
        Nearest(),
        LocalProcess(fewest=20, most=300),
        Boosting(),
        Boosting("local linear boosting", fewest=100, linear_leaves=True),
    )


def readiness(learner: Learner, executions: float) -> float:
    """The part of its weight that `learner` has with so many own executions, in (0, 1].

    It comes in, and leaves, little by little, so that one workload more never brings or takes a
    whole learner. Those for few executions have all of it at once.
    """
    if learner.fewest <= LOCAL_FROM:
        return 1.0
    most = math.inf if learner.most is None else learner.most
    left = (most + 1 - executions) / most if learner.most else 1.0
    return min(1.0, (executions + 1 - learner.fewest) / learner.fewest / READY, left / READY)


def own_share(learner: Learner) -> float:
    """How much of a learner's answer own executions tell; of those that mend a start a half."""
    if learner.start is None:
        return 1.0
    is_start = learner.fewest < LOCAL_FROM or learner.name == learner.start
    return 0.0 if is_start else 0.5


def usable(learner: Learner, executions: float, starts: Container[str]) -> bool:
    """Whether `learner` is worth a try with so many own executions and these start models."""
    enough = learner.fewest <= executions
    not_too_many = learner.most is None or executions <= learner.most
    return enough and not_too_many and (learner.start is None or learner.start in starts)


def _on(start: str) -> tuple[Learner, ...]:
    return (ResidualRidge(start), ResidualBoosting(start))
