"""Plan enumeration: the platform per operator with the smallest predicted run time.

The K cheapest plans under additive costs are searched exactly, and every single-platform plan is
added. The predictor decides among these complete plans: the smallest predicted median wins, with
the start-up of platforms that are not warm. So the choice is never predicted to be slower than one
platform for everything. A plan that a constraint forbids is never predicted.

The search places operators in a topological order, extends its partial plans by every platform that
may run the next operator, and keeps some of them. An operator is open after a step if it is placed
and one of its children is not. Partial plans that differ in the platforms of open operators are
kept apart, so a narrow order costs less work.

**Exact search.** The cost of the remaining steps depends only on the platforms of the open
operators (transfers) and on the set of platforms started (start-ups). A sweep from the last step to
the first computes for every such state the least remaining cost (`_completions`): the minimum, over
the platforms of the next operator, of its seconds, the transfers from its parents, a start-up where
the set lacks the platform, and the least remaining cost of the state that follows. A second sweep
from the first step keeps the K partial plans with the smallest cost so far plus least remaining
cost. This loses none of the K best. Let P be one of them and p its prefix. If K others were kept in
the place of p, each would have a completion that costs no more than the best one of p, hence no
more than P: K different plans that P does not beat. Work and memory of the first sweep are
operators x k^(width + 1) x 2^(platforms that are not warm). The second is negligible.

**Beam.** Where the frontier is `BEAM_FROM_WIDTH` or more operators wide and the tables would have
more than `MOST_CELLS` cells, a beam keeps, by cost so far, the cheapest partial plans of the
`BEAM_PLANS` best states, and the `BEAM_PLANS` best of the K cheapest of every state. `is_exact` is
False as soon as it has dropped a partial plan that could have mattered.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Prediction
from fedperf_engines.optimizer.costs import (
    AdditiveCosts,
    Constraints,
    Floats,
    Ints,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform

BEAM_FROM_WIDTH = 4  # operators open at once, from which on the exact search must not cost too much
MOST_CELLS = 2**23  # of the tables of a search as wide as that, in all; about a tenth of a second
BEAM_PLANS = 256
# Open operators of a table, far within the number of axes that an array can have.
_DEEPEST_TABLE = 24


_LARGEST_KEY = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class PlacementStep:
    """One operator to be placed."""

    operator: int  # its position
    open_before: tuple[int, ...]  # positions that are open before it, in order of placement
    open_after: tuple[int, ...]  # positions that are open after it
    transfers: dict[int, Floats]  # per parent, each once, the seconds of all edges from it, [k, k]


def placement_steps(costs: AdditiveCosts, order: Sequence[int]) -> tuple[PlacementStep, ...]:
    """Return the placement steps in that topological order."""
    transfers: list[dict[int, Floats]] = [{} for _ in order]
    for (parent, child), seconds in zip(costs.workflow.edges, costs.transfer_seconds, strict=True):
        of_child = transfers[child]
        of_child[parent] = of_child[parent] + seconds if parent in of_child else seconds
    opened = [(), *frontiers(costs.workflow, order)]
    return tuple(
        PlacementStep(operator, opened[number], opened[number + 1], transfers[operator])
        for number, operator in enumerate(order)
    )


def narrow_order(workflow: Workflow, platforms: int) -> tuple[int, ...]:
    """Return a topological order with narrow frontiers, for `platforms` platforms.

    The best of three: branch by branch, the one that needs most first (Sethi and Ullman,
    optimal for trees); next the operator that closes most; as written down by the features. To find
    the best of all is NP-hard.
    """
    levels = topological_order(workflow)
    candidates = (_branch_by_branch(workflow, levels), _closing(workflow), levels)
    base = max(platforms, 2)
    return min(
        candidates,
        key=lambda order: sum(base ** len(each) for each in frontiers(workflow, order)),
    )


def frontiers(workflow: Workflow, order: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the open operators after each step, in order of placement."""
    unread = [len(each) for each in workflow.children]
    opened: list[int] = []
    frontiers = []
    for operator in order:
        for parent in workflow.operators[operator].inputs:
            unread[parent] -= 1
        opened = [each for each in (*opened, operator) if unread[each]]
        frontiers.append(tuple(opened))
    return frontiers


def _branch_by_branch(workflow: Workflow, levels: Sequence[int]) -> tuple[int, ...]:
    """Depth first from the sinks; of several parents the one that needs most room first."""
    room: dict[int, int] = {}
    for operator in levels:
        parents = dict.fromkeys(workflow.operators[operator].inputs)
        needs = sorted((room[each] for each in parents), reverse=True)
        room[operator] = max((need + place for place, need in enumerate(needs)), default=1)
    sinks = [each for each, children in enumerate(workflow.children) if not children]
    order: dict[int, None] = {}
    stack = sorted(sinks, key=lambda each: (room[each], -each))
    while stack:
        operator = stack[-1]
        missing = {each for each in workflow.operators[operator].inputs if each not in order}
        if missing:
            stack.extend(sorted(missing, key=lambda each: (room[each], -each)))
        else:
            order.setdefault(stack.pop())
    return tuple(order)


def _closing(workflow: Workflow) -> tuple[int, ...]:
    """Always what leaves fewest open, and of these what goes on with what was placed last."""
    children = workflow.children
    parents = [set(each.inputs) for each in workflow.operators]
    unread = [len(set(each)) for each in children]
    placed: dict[int, int] = {}

    def cost(operator: int) -> tuple[int, int, int]:
        closed = sum(unread[each] == 1 for each in parents[operator])
        latest = max((placed[each] for each in parents[operator]), default=-1)
        return bool(unread[operator]) - closed, -latest, operator

    ready = {each for each, needed in enumerate(parents) if not needed}
    while ready:
        operator = min(ready, key=cost)
        ready.remove(operator)
        placed[operator] = len(placed)
        for parent in parents[operator]:
            unread[parent] -= 1
        ready |= {each for each in children[operator] if parents[each] <= placed.keys()}
    return tuple(placed)


@dataclass(frozen=True, slots=True, eq=False)
class Startups:
    """The set of started platforms, as bits of a number. Warm platforms have no bit."""

    masks: int  # how many numbers there are, 2^(platforms that are not warm)
    then: Ints  # the number after the use of a platform, int64 [k, masks]
    seconds: Floats  # of that use: the start-up where the bit was not set, [k, masks]

    @classmethod
    def of(cls, startup_seconds: Floats) -> "Startups":
        """Return all sets of the platforms that cost anything to start."""
        cold = startup_seconds > 0
        bits = np.where(cold, 1 << (np.cumsum(cold) - cold), 0)[:, None]
        before = np.arange(1 << int(cold.sum()))
        seconds = np.where(before & bits == 0, startup_seconds[:, None], 0.0)
        return cls(len(before), before | bits, seconds)


@dataclass(frozen=True, slots=True, eq=False)
class PartialPlans:
    """Plans of the operators placed so far."""

    seconds: Floats  # what they cost so far, [plans]
    # Platform of every operator, int8 [plans, operators]; -1 where not placed.
    columns: NDArray[np.int8]
    started: Ints  # number of the set of platforms started, see `Startups`, [plans]

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: Ints) -> "PartialPlans":
        """Return the plans of these rows, in that order."""
        return PartialPlans(self.seconds[rows], self.columns[rows], self.started[rows])

    def key(self, operators: Iterable[int], platforms: int, *, with_started: bool = False) -> Ints:
        """Return a number per plan, equal where all those operators have equal platforms, [plans].

        Args:
            operators: positions.
            platforms: how many there are.
            with_started: the same platforms must be started as well.
        """
        key = self.started if with_started else np.zeros(len(self), np.int64)
        largest = int(key.max(initial=0)) + 1
        for operator in operators:
            if largest > _LARGEST_KEY // platforms:
                key = np.unique(key, return_inverse=True)[1]
                largest = len(key)
            key = key * platforms + self.columns[:, operator]
            largest *= platforms
        return key


# (step just taken, every extension) -> rows of those to go on with
Keep = Callable[[PlacementStep, PartialPlans], Ints]


def search(
    costs: AdditiveCosts, steps: Sequence[PlacementStep], keep: Keep
) -> tuple[PartialPlans, int]:
    """Extend partial plans step by step, and let `keep` choose after each step."""
    startups = Startups.of(costs.startup_seconds)
    nothing = np.full((1, len(steps)), -1, np.int8)
    partial, candidates = PartialPlans(np.zeros(1), nothing, np.zeros(1, np.int64)), 0
    for step in steps:
        extended = _extended(costs, startups, step, partial)
        candidates += len(extended)
        partial = extended.take(keep(step, extended))
    return partial, candidates


def best_per_key(key: Ints, seconds: Floats, count: int) -> Ints:
    """Return rows of the `count` cheapest plans of every key, the cheapest of all first."""
    order = np.lexsort((seconds, key))
    sorted_key = key[order]
    firsts = np.flatnonzero(np.diff(sorted_key, prepend=sorted_key[0] - 1))
    rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    best = order[rank < count]
    return np.asarray(best[np.argsort(seconds[best], kind="stable")])


def _extended(
    costs: AdditiveCosts, startups: Startups, step: PlacementStep, partial: PartialPlans
) -> PartialPlans:
    seconds = partial.seconds[:, None] + costs.operator_seconds[step.operator]
    seconds += startups.seconds.T[partial.started]
    for parent, transfer in step.transfers.items():
        seconds += transfer[partial.columns[:, parent]]
    rows, platforms = np.nonzero(np.isfinite(seconds))
    columns = partial.columns[rows]
    columns[:, step.operator] = platforms
    return PartialPlans(
        seconds[rows, platforms], columns, startups.then[platforms, partial.started[rows]]
    )


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Plans under additive costs."""

    plans: Ints  # rows of columns of the costs, int64 [plans, operators], cheapest first
    seconds: Floats  # of each, [plans]
    is_exact: bool  # no plan is cheaper that is not among them
    candidates: int  # how many prefixes, or cells of tables, were looked at


def cheapest_plans(costs: AdditiveCosts, count: int) -> SearchResult:
    """Return the `count` cheapest plans, exactly unless the workflow is too wide.

    Fewer where there are not so many; those of equal costs stand in the order of their columns.

    Raises:
        InvalidInputError: `count` is less than 1.
    """
    _require_count(count)
    steps = narrow_steps(costs)
    if not _is_narrow(costs, steps):
        return beam(costs, count)
    completions = _completions(costs, steps)

    def keep(step: PlacementStep, extended: PartialPlans) -> Ints:
        opened = extended.columns[:, step.open_after].T.astype(np.int64)
        still = completions[step.operator][*opened, extended.started]
        return np.asarray(np.argsort(extended.seconds + still, kind="stable")[:count])

    partial, looked_at = search(costs, steps, keep)
    candidates = _cells(costs, steps) + looked_at
    return best_complete(costs, partial, count, is_exact=True, candidates=candidates)


def beam(costs: AdditiveCosts, count: int, *, plans: int = BEAM_PLANS) -> SearchResult:
    """Run `cheapest_plans` by a beam of `plans`; it is exact only if it dropped no state."""
    _require_count(count)
    platforms, dropped = len(costs.platforms), False

    def keep(step: PlacementStep, extended: PartialPlans) -> Ints:
        nonlocal dropped
        key = extended.key(step.open_after, platforms, with_started=True)
        states = best_per_key(key, extended.seconds, 1)
        others = best_per_key(key, extended.seconds, count)
        most = max(count, plans)
        dropped |= len(others) > most
        return np.union1d(states[:most], others[:most])

    partial, candidates = search(costs, narrow_steps(costs), keep)
    return best_complete(costs, partial, count, is_exact=not dropped, candidates=candidates)


def narrow_steps(costs: AdditiveCosts) -> tuple[PlacementStep, ...]:
    """Return the placement steps in a narrow order."""
    return placement_steps(costs, narrow_order(costs.workflow, len(costs.platforms)))


def best_complete(
    costs: AdditiveCosts, partial: PartialPlans, count: int, *, is_exact: bool, candidates: int
) -> SearchResult:
    """Return the best `count` complete plans, summed anew in the order of operators."""
    plans = partial.columns.astype(np.int64)
    seconds = costs.totals(plans)
    order = np.lexsort((*plans.T[::-1], seconds))[:count]
    return SearchResult(plans[order], seconds[order], is_exact, candidates)


def _require_count(count: int) -> None:
    if count < 1:
        raise InvalidInputError(f"at least 1 plan must be wanted, got {count}")


def _is_narrow(costs: AdditiveCosts, steps: Sequence[PlacementStep]) -> bool:
    widest = max(len(step.open_after) for step in steps)
    is_cheap = widest <= _DEEPEST_TABLE and _cells(costs, steps) <= MOST_CELLS
    return widest < BEAM_FROM_WIDTH or is_cheap


def _cells(costs: AdditiveCosts, steps: Sequence[PlacementStep]) -> int:
    """Return the number of cells in all tables of the exact search."""
    base = max(len(costs.platforms), 2)
    masks = 1 << int(np.count_nonzero(costs.startup_seconds))
    cells: int = masks * sum(base ** (len(step.open_before) + 1) for step in steps)
    return cells


def _completions(costs: AdditiveCosts, steps: Sequence[PlacementStep]) -> dict[int, Floats]:
    """Per operator, the least still to be paid after its step: [k] * open operators + [masks]."""
    startups, count = Startups.of(costs.startup_seconds), len(costs.platforms)
    follows = np.arange(count)[:, None] * startups.masks + startups.then
    least = np.zeros(startups.masks)
    tables = {}
    for step in reversed(steps):
        tables[step.operator] = least
        if step.operator in step.open_after:
            ahead = least.reshape(-1, count * startups.masks)[:, follows]
        else:
            ahead = least.reshape(-1, startups.masks)[:, startups.then]
        axes = [count if each in step.open_after else 1 for each in step.open_before]
        cells = ahead.reshape(*axes, count, startups.masks) + _paid(costs, startups, step)
        least = cells.min(axis=-2)
    return tables


def _paid(costs: AdditiveCosts, startups: Startups, step: PlacementStep) -> Floats:
    """Return seconds of a step, by the platforms of its parents, its own, and what is started."""
    count = len(costs.platforms)
    paid = costs.operator_seconds[step.operator][:, None] + startups.seconds
    for parent, transfer in step.transfers.items():
        axes = [count if each == parent else 1 for each in step.open_before]
        paid = paid + transfer.reshape(*axes, count, 1)
    return np.asarray(paid)


PLANS = 16  # cheapest plans under additive costs that the predictor sees
ALTERNATIVES = 4

# Questions -> predictions in the same order.
Predict = Callable[[Sequence[PlanOnCluster]], Sequence[Prediction]]

Assignment = tuple[Platform, ...]

# (costs, number of plans) -> the cheapest plans under these costs
Search = Callable[[AdditiveCosts, int], SearchResult]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that was considered, and its prediction."""

    plan: Plan  # it
    prediction: Prediction  # of its run time on platforms that are warm
    startup_seconds: float = 0.0  # of the platforms that are not

    @property
    def seconds(self) -> float:
        """Return the median and the start-up, by which plans are compared."""
        return self.prediction.median_seconds + self.startup_seconds


@dataclass(frozen=True, slots=True)
class Choice(Alternative):
    """The plan with the smallest predicted median and start-up, and the next best plans."""

    alternatives: tuple[Alternative, ...] = ()  # the next best plans, best first
    plans_scored: int = field(kw_only=True)  # how many complete plans the predictor has seen
    # The predictor has seen the plans that are provably cheapest under the additive costs; False
    # where the workflow was too wide for more than a beam.
    is_exact: bool = field(kw_only=True)


def choose(
    workflow: Workflow,
    cluster: ClusterConfig,
    constraints: Constraints,
    predict: Predict,
    *,
    costs: AdditiveCosts,
    count: int = PLANS,
    also: Sequence[Assignment] = (),
    search: Search = cheapest_plans,
) -> Choice:
    """Return the platform per operator with the smallest predicted median run time on `cluster`.

    Deterministic: equal predictions are decided by additive costs, then
    by the order of the candidates.

    Args:
        workflow: what is to run.
        cluster: where.
        constraints: that every plan keeps to.
        predict: predicts plans; called once, with up to `count` plans, one per platform, and
            `also`.
        costs: of this workflow and at least these platforms, for the search.
        count: plans that the search by additive costs hands on.
        also: further plans to predict; a forbidden one is left out.
        search: finds the cheapest plans; another one than the default is a baseline.

    Raises:
        NoPlatformError: an operator may run on no candidate.
        InvalidInputError: see `Constraints`, or the costs are not of this workflow or not of
            all candidates.
    """
    platforms, allowed = constraints.platforms, constraints.allowed(workflow)
    if costs.workflow != workflow:
        raise InvalidInputError("the additive costs are those of another workflow")
    within = costs.within(platforms, allowed)
    result = search(within, count)
    cheapest = (within.assignment(plan) for plan in result.plans)
    single = (
        (platforms[column],) * len(workflow.operators)
        for column in np.flatnonzero(within.allowed.all(axis=0)).tolist()
    )
    others = (each for each in also if within.allows(each))
    startup = dict(zip(platforms, within.startup_seconds.tolist(), strict=True))
    assignments = list(dict.fromkeys((*cheapest, *single, *others)))
    queries = PlanOnCluster.of(workflow, assignments, cluster)
    scored = [
        Alternative(
            query.plan, prediction, math.fsum(startup[each] for each in set(query.plan.platforms))
        )
        for query, prediction in zip(queries, predict(queries), strict=True)
    ]
    best, *alternatives = sorted(scored, key=attrgetter("seconds"))[: 1 + ALTERNATIVES]
    return Choice(
        best.plan,
        best.prediction,
        best.startup_seconds,
        tuple(alternatives),
        plans_scored=len(scored),
        is_exact=result.is_exact,
    )
