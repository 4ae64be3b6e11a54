"""The choice of a platform for every operator of a workflow, by predicted run time.

With additive costs (`costs.AdditiveCosts`) the cheapest plans under them are searched, by
default exactly (`frontier`), and every single-platform plan is put beside them; the predictor
then sees all of these at once, complete, and only it decides: the plan with the smallest
predicted median, plus the start-up of platforms that are not warm, wins. So the choice is
never predicted to be slower than one platform for everything.

Without them few assignments are all scored by the predictor (`exhaustive`); beyond
`EXHAUSTIVE_LIMIT` a beam searches by its predictions alone (`segments`).
An assignment that a constraint refuses is never scored.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from fedperf_client.optimizer.constraints import Constraints, Supports, supports_everything
from fedperf_client.optimizer.costs import AdditiveCosts, InvalidCostsError, Mask
from fedperf_client.optimizer.frontier import SearchResult, beam, cheapest_plans
from fedperf_client.optimizer.methods import Method
from fedperf_client.optimizer.plan_scores import Assignment, Predict, Scores
from fedperf_client.optimizer.pruned_search import (
    EXHAUSTIVE_LIMIT,
    PruningRule,
    TooManyPlansError,
    pruned_search,
)
from fedperf_client.optimizer.segments import segment_search
from fedperf_client.prediction.prediction import Prediction
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform

PLANS = 16
"""Cheapest plans under additive costs that the predictor sees."""

ALTERNATIVES = 4


class MissingCostsError(InvalidInputError):
    """A method was asked for that searches by additive costs, and there are none."""


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
        method: how plans were enumerated; `BEAM` where a frontier was too wide for more.
        plans_scored: how many complete plans the predictor has seen.
        is_exact: the predictor has seen every plan, or provably those that are cheapest
            under the additive costs.
    """

    alternatives: tuple[Alternative, ...] = ()
    method: Method = field(kw_only=True)
    plans_scored: int = field(kw_only=True)
    is_exact: bool = field(kw_only=True)


def choose(
    workflow: Workflow,
    cluster: ClusterConfig,
    candidates: Sequence[Platform],
    predict: Predict,
    *,
    costs: AdditiveCosts | None = None,
    supports: Supports = supports_everything,
    pinned: Mapping[int, Platform] | None = None,
    memory_caps: Mapping[Platform, float] | None = None,
    method: Method | None = None,
    count: int = PLANS,
    also: Sequence[Assignment] = (),
) -> Choice:
    """The platform per operator with the smallest predicted median run time on `cluster`.

    Deterministic: equal predictions are decided by additive costs where there are any, then
    by the order of `candidates`.

    Args:
        workflow: what is to run.
        cluster: where.
        candidates: platforms to choose from.
        predict: who decides; with additive costs asked once, about up to `count` plans and
            one per platform (more than `plan_scores.BATCH` are asked about in several calls).
        costs: of this workflow and at least these platforms, for the search.
        supports: whether a platform can run an operator.
        pinned: operators, by position, that stay on a platform.
        memory_caps: bytes that an operator may use at once on a platform.
        method: `FRONTIER` by default with costs, else `EXHAUSTIVE` for few assignments and
            `BEAM` for many.
        count: plans that the search by additive costs hands on.
        also: plans that the predictor sees beside these; one that is forbidden is not.

    Raises:
        NoPlatformError: an operator may run on no candidate.
        InvalidConstraintError: see `Constraints`.
        InvalidCostsError: the costs are not of this workflow or not of all candidates.
        MissingCostsError: the method needs costs.
        TooManyPlansError: all are to be scored, and there are more than `EXHAUSTIVE_LIMIT`.
        MissingPredictionsError: the predictor did not answer every question.
    """
    constraints = Constraints(tuple(candidates), supports, pinned or {}, memory_caps or {})
    platforms, allowed = constraints.platforms, constraints.allowed(workflow)
    if costs is None:
        scores = Scores(workflow, cluster, predict)
        return _by_prediction(workflow, platforms, allowed, scores, method=method)
    if costs.workflow != workflow:
        raise InvalidCostsError("the additive costs are those of another workflow")
    within = costs.within(platforms, allowed)
    scores = Scores(workflow, cluster, predict, startup_seconds=_startups(within))
    return _by_costs(within, scores, method or Method.FRONTIER, count=count, also=also)


_SEARCHES: Mapping[Method, Callable[[AdditiveCosts, int], SearchResult]] = {
    Method.FRONTIER: cheapest_plans,
    Method.BEAM: beam,
    Method.DELAYED_GREEDY: lambda costs, count: pruned_search(
        costs, PruningRule.DELAYED_GREEDY, count
    ),
    Method.GREEDY: lambda costs, count: pruned_search(costs, PruningRule.GREEDY, count),
}


def _by_costs(
    costs: AdditiveCosts,
    scores: Scores,
    method: Method,
    *,
    count: int,
    also: Sequence[Assignment],
) -> Choice:
    """The best of what a search under additive costs, and every single platform, come to."""
    if method is Method.EXHAUSTIVE:
        return _by_prediction(costs.workflow, costs.platforms, costs.allowed, scores, method=method)
    found = _SEARCHES[method](costs, count)
    beside = (each for each in also if costs.allows(each))
    cheapest = (costs.assignment(plan) for plan in found.plans)
    scores.add((*cheapest, *_on_one_platform(costs), *beside))
    too_wide = method is Method.FRONTIER and not found.is_exact
    return _best(scores, Method.BEAM if too_wide else method, is_exact=found.is_exact)


def _by_prediction(
    workflow: Workflow,
    platforms: Sequence[Platform],
    allowed: Mask,
    scores: Scores,
    *,
    method: Method | None,
) -> Choice:
    """The choice without a search by additive costs."""
    able = _able(platforms, allowed)
    plans = math.prod(len(each) for each in able)
    if method is None:
        method = Method.EXHAUSTIVE if plans <= EXHAUSTIVE_LIMIT else Method.BEAM
    if method is Method.EXHAUSTIVE:
        if plans > EXHAUSTIVE_LIMIT:
            raise TooManyPlansError(plans)
        scores.add(product(*able))
    elif method is Method.BEAM:
        segment_search(workflow, able, platforms, scores)
    else:
        raise MissingCostsError(f"the method {method} searches by additive costs, give them")
    return _best(scores, method, is_exact=method is Method.EXHAUSTIVE)


def _best(scores: Scores, method: Method, *, is_exact: bool) -> Choice:
    best, *others = [
        Alternative(scores.plan(assignment), prediction, startup)
        for assignment, prediction, startup in scores.best(1 + ALTERNATIVES)
    ]
    return Choice(
        best.plan,
        best.prediction,
        best.startup_seconds,
        tuple(others),
        method=method,
        plans_scored=len(scores),
        is_exact=is_exact,
    )


def _able(platforms: Sequence[Platform], allowed: Mask) -> list[tuple[Platform, ...]]:
    """For every operator the platforms that may run it, in their order."""
    return [
        tuple(platform for platform, may in zip(platforms, row, strict=True) if may)
        for row in allowed
    ]


def _on_one_platform(costs: AdditiveCosts) -> Iterator[Assignment]:
    """Every single-platform plan that is allowed."""
    for column in np.flatnonzero(costs.allowed.all(axis=0)).tolist():
        yield (costs.platforms[column],) * len(costs.workflow.operators)


def _startups(costs: AdditiveCosts) -> Callable[[Assignment], float]:
    seconds = dict(zip(costs.platforms, costs.startup_seconds.tolist(), strict=True))
    return lambda assignment: math.fsum(seconds[each] for each in set(assignment))
