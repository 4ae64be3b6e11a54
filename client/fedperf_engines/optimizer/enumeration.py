"""The choice of a platform for every operator of a workflow, by predicted run time.

The cheapest plans under additive costs (`costs.AdditiveCosts`) are searched exactly
(`frontier`), and every single-platform plan is put beside them; the predictor
then sees all of these at once, complete, and only it decides: the plan with the smallest
predicted median, plus the start-up of platforms that are not warm, wins. So the choice is
never predicted to be slower than one platform for everything.
An assignment that a constraint refuses is never scored.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from fedperf_client.prediction.prediction import Prediction
from fedperf_engines.optimizer.constraints import Constraints, Supports, supports_everything
from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_engines.optimizer.frontier import SearchResult, cheapest_plans
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform

PLANS = 16
"""Cheapest plans under additive costs that the predictor sees."""

ALTERNATIVES = 4

BATCH = 256
"""Questions per call of the predictor."""

Predict = Callable[[Sequence[PlanOnCluster]], Sequence[Prediction]]
"""Questions -> predictions in the same order."""

Assignment = tuple[Platform, ...]

Search = Callable[[AdditiveCosts, int], SearchResult]
"""(costs, number of plans) -> the cheapest plans under these costs."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that was considered, and its prediction.

    Attributes:
        plan: it.
        prediction: of its run time on platforms that are warm.
        startup_seconds: of the platforms that are not.
    """

    plan: Plan
    prediction: Prediction
    startup_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """What plans are compared by: the median and the start-up."""
        return self.prediction.median_seconds + self.startup_seconds


@dataclass(frozen=True, slots=True)
class Choice(Alternative):
    """The plan with the smallest predicted median and start-up, and what came after it.

    Attributes:
        alternatives: the next best plans, best first.
        plans_scored: how many complete plans the predictor has seen.
        is_exact: the predictor has seen the plans that are provably cheapest under the
            additive costs; False where the workflow was too wide for more than a beam.
    """

    alternatives: tuple[Alternative, ...] = ()
    plans_scored: int = field(kw_only=True)
    is_exact: bool = field(kw_only=True)


def choose(
    workflow: Workflow,
    cluster: ClusterConfig,
    candidates: Sequence[Platform],
    predict: Predict,
    *,
    costs: AdditiveCosts,
    supports: Supports = supports_everything,
    pinned: Mapping[int, Platform] | None = None,
    memory_caps: Mapping[Platform, float] | None = None,
    count: int = PLANS,
    also: Sequence[Assignment] = (),
    search: Search = cheapest_plans,
) -> Choice:
    """The platform per operator with the smallest predicted median run time on `cluster`.

    Deterministic: equal predictions are decided by additive costs, then
    by the order of `candidates`.

    Args:
        workflow: what is to run.
        cluster: where.
        candidates: platforms to choose from.
        predict: who decides; asked once, about up to `count` plans and
            one per platform (more than `BATCH` are asked about in several calls).
        costs: of this workflow and at least these platforms, for the search.
        supports: whether a platform can run an operator.
        pinned: operators, by position, that stay on a platform.
        memory_caps: bytes that an operator may use at once on a platform.
        count: plans that the search by additive costs hands on.
        also: plans that the predictor sees beside these; one that is forbidden is not.
        search: finds the cheapest plans; another one than the default is a baseline.

    Raises:
        NoPlatformError: an operator may run on no candidate.
        InvalidInputError: see `Constraints`, or the costs are not of this workflow or not of
            all candidates.
    """
    constraints = Constraints(tuple(candidates), supports, pinned or {}, memory_caps or {})
    platforms, allowed = constraints.platforms, constraints.allowed(workflow)
    if costs.workflow != workflow:
        raise InvalidInputError("the additive costs are those of another workflow")
    within = costs.within(platforms, allowed)
    found = search(within, count)
    cheapest = (within.assignment(plan) for plan in found.plans)
    beside = (each for each in also if within.allows(each))
    scored = ranked(
        workflow,
        cluster,
        predict,
        (*cheapest, *_on_one_platform(within), *beside),
        startup_seconds=_startups(within),
    )
    best, *others = [
        Alternative(Plan(workflow, assignment), prediction, startup)
        for assignment, prediction, startup in scored[: 1 + ALTERNATIVES]
    ]
    return Choice(
        best.plan,
        best.prediction,
        best.startup_seconds,
        tuple(others),
        plans_scored=len(scored),
        is_exact=found.is_exact,
    )


def ranked(
    workflow: Workflow,
    cluster: ClusterConfig,
    predict: Predict,
    assignments: Iterable[Assignment],
    *,
    startup_seconds: Callable[[Assignment], float],
) -> list[tuple[Assignment, Prediction, float]]:
    """Every plan once, fastest first, with its prediction and start-up seconds.

    Of equally fast ones the one that was named first comes first.

    Args:
        workflow: whose plans.
        cluster: what they are to run on.
        predict: asked in batches of up to `BATCH`.
        assignments: the plans.
        startup_seconds: of a plan, beside what is predicted.
    """
    distinct, scored = iter(dict.fromkeys(assignments)), []
    for batch in iter(lambda: list(islice(distinct, BATCH)), []):
        predictions = predict(PlanOnCluster.of(workflow, batch, cluster))
        scored += [
            (each, prediction, startup_seconds(each))
            for each, prediction in zip(batch, predictions, strict=True)
        ]
    return sorted(scored, key=lambda each: each[1].median_seconds + each[2])


def _on_one_platform(costs: AdditiveCosts) -> Iterator[Assignment]:
    """Every single-platform plan that is allowed."""
    for column in np.flatnonzero(costs.allowed.all(axis=0)).tolist():
        yield (costs.platforms[column],) * len(costs.workflow.operators)


def _startups(costs: AdditiveCosts) -> Callable[[Assignment], float]:
    seconds = dict(zip(costs.platforms, costs.startup_seconds.tolist(), strict=True))
    return lambda assignment: math.fsum(seconds[each] for each in set(assignment))
