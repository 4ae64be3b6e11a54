"""The exact search for the K cheapest plans under additive costs, and a beam where it is wide.

**Exact.** What a plan still costs after some steps depends only on the platforms of the open
operators (transfers) and on the set of platforms started (start-ups). The rest of what was placed
does not matter. So one sweep from the last step to the first computes, for every such state, the
least that is still to be paid (`_completions`). It is the least over the platforms that may run
the next operator, of a sum: the operator's seconds, the transfers from its parents (all are
open), a start-up where the set lacks the platform, and the least from the state that follows. A
second sweep, from
the first step on, then keeps the K prefixes whose seconds so far plus least still to be paid
are smallest. That loses none of the K best: let the plan P be one of them and p its prefix. Were
K others kept in the place of p, each would have a completion that costs no more than p's best
one, hence no more than P: K different plans that P does not beat. Work and memory of the
first sweep: operators x k^(width + 1) x 2^(platforms that are not warm); the second one
costs next to nothing.

**Beam.** Where the frontier is `BEAM_FROM_WIDTH` or more operators wide and the tables would
have more than `MOST_CELLS` cells in all, the least still to be paid is not computed. A beam
then keeps, by seconds so far, the cheapest prefixes of the `BEAM_PLANS` best states, and of the
K cheapest of every state the `BEAM_PLANS` best: states for the best plan, others for what comes
after it. `is_exact` is False as soon as it has dropped a prefix that could have mattered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedperf_client.optimizer.costs import AdditiveCosts, Floats, Ints
from fedperf_client.optimizer.plan_prefixes import Prefixes, Startups, best_per_key, search
from fedperf_client.optimizer.steps import PlacementStep, narrow_order, steps_of
from fedperf_shared.errors import InvalidInputError

BEAM_FROM_WIDTH = 4
"""Operators open at once, from which on the exact search must not cost too much."""

MOST_CELLS = 2**23
"""Of the tables of a search as wide as that, in all; about a tenth of a second."""

BEAM_PLANS = 256
_DEEPEST_TABLE = 24
"""Open operators of a table, far within the number of axes that an array can have."""


class InvalidCountError(InvalidInputError):
    """Not even one plan is wanted."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Plans under additive costs.

    Attributes:
        plans: rows of columns of the costs, int64 [plans, operators], cheapest first.
        seconds: of each, [plans].
        is_exact: no plan is cheaper that is not among them.
        candidates: how many prefixes, or cells of tables, were looked at.
    """

    plans: Ints
    seconds: Floats
    is_exact: bool
    candidates: int


def cheapest_plans(costs: AdditiveCosts, count: int) -> SearchResult:
    """The `count` cheapest plans, exactly unless the workflow is too wide.

    Fewer where there are not so many; those of equal costs stand in the order of their columns.

    Raises:
        InvalidCountError: `count` is less than 1.
    """
    _require_count(count)
    steps = narrow_steps(costs)
    if not _is_narrow(costs, steps):
        return _beam(costs, steps, count, plans=BEAM_PLANS)
    completions = _completions(costs, steps)

    def keep(step: PlacementStep, extended: Prefixes) -> Ints:
        opened = extended.columns[:, step.open_after].T.astype(np.int64)
        still = completions[step.operator][*opened, extended.started]
        return _smallest(extended.seconds + still, count)

    kept, looked_at = search(costs, steps, keep)
    candidates = _cells(costs, steps) + looked_at
    return found(costs, kept, count, is_exact=True, candidates=candidates)


def beam(costs: AdditiveCosts, count: int, *, plans: int = BEAM_PLANS) -> SearchResult:
    """As `cheapest_plans`, always by a beam of `plans`; exact only where it dropped no state."""
    _require_count(count)
    return _beam(costs, narrow_steps(costs), count, plans=plans)


def narrow_steps(costs: AdditiveCosts) -> tuple[PlacementStep, ...]:
    """The steps in the order that every search here goes by."""
    return steps_of(costs, narrow_order(costs.workflow, len(costs.platforms)))


def found(
    costs: AdditiveCosts, kept: Prefixes, count: int, *, is_exact: bool, candidates: int
) -> SearchResult:
    """The best `count` of complete plans; summed anew, so that the order of steps is no matter."""
    plans = kept.columns.astype(np.int64)
    seconds = costs.totals(plans)
    order = np.lexsort((*plans.T[::-1], seconds))[:count]
    return SearchResult(plans[order], seconds[order], is_exact, candidates)


def _require_count(count: int) -> None:
    if count < 1:
        raise InvalidCountError(f"at least 1 plan must be wanted, got {count}")


def _smallest(values: Floats, count: int) -> Ints:
    return np.asarray(np.argsort(values, kind="stable")[:count])


def _is_narrow(costs: AdditiveCosts, steps: Sequence[PlacementStep]) -> bool:
    widest = max(len(step.open_after) for step in steps)
    is_cheap = widest <= _DEEPEST_TABLE and _cells(costs, steps) <= MOST_CELLS
    return widest < BEAM_FROM_WIDTH or is_cheap


def _cells(costs: AdditiveCosts, steps: Sequence[PlacementStep]) -> int:
    """Of the tables of the exact search, in all."""
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
    """Seconds of a step, by the platforms of its parents, its own, and what is started."""
    count = len(costs.platforms)
    paid = costs.operator_seconds[step.operator][:, None] + startups.seconds
    for parent, transfer in step.transfers.items():
        axes = [count if each == parent else 1 for each in step.open_before]
        paid = paid + transfer.reshape(*axes, count, 1)
    return np.asarray(paid)


def _beam(
    costs: AdditiveCosts, steps: Sequence[PlacementStep], count: int, *, plans: int
) -> SearchResult:
    platforms, dropped = len(costs.platforms), False

    def keep(step: PlacementStep, extended: Prefixes) -> Ints:
        nonlocal dropped
        key = extended.key(step.open_after, platforms, with_started=True)
        states = best_per_key(key, extended.seconds, 1)
        others = best_per_key(key, extended.seconds, count)
        most = max(count, plans)
        dropped |= len(others) > most
        return np.union1d(states[:most], others[:most])

    kept, candidates = search(costs, steps, keep)
    return found(costs, kept, count, is_exact=not dropped, candidates=candidates)
