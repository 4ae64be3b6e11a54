"""Plans of the first operators of an order, many at once, and how a search extends them.

A search starts with the empty plan, extends all that it keeps by every platform that may
run the next operator, and keeps some of these by its own rule (`search`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.optimizer.costs import AdditiveCosts, Floats, Ints
from fedperf_client.optimizer.steps import PlacementStep

_LARGEST_KEY = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Startups:
    """Which platforms have been started, as bits of a number; warm ones have no bit.

    Attributes:
        masks: how many numbers there are, 2^(platforms that are not warm).
        then: the number after the use of a platform, int64 [k, masks].
        seconds: of that use: the start-up where the bit was not set, [k, masks].
    """

    masks: int
    then: Ints
    seconds: Floats

    @classmethod
    def of(cls, startup_seconds: Floats) -> "Startups":
        """All sets of the platforms that cost anything to start."""
        cold = startup_seconds > 0
        bits = np.where(cold, 1 << (np.cumsum(cold) - cold), 0)[:, None]
        before = np.arange(1 << int(cold.sum()))
        seconds = np.where(before & bits == 0, startup_seconds[:, None], 0.0)
        return cls(len(before), before | bits, seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Plans of the operators placed so far.

    Attributes:
        seconds: what they cost so far, [plans].
        columns: platform of every operator, int8 [plans, operators]; -1 where not placed.
        started: number of the set of platforms started, see `Startups`, [plans].
    """

    seconds: Floats
    columns: NDArray[np.int8]
    started: Ints

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: Ints) -> "Prefixes":
        """Those plans, in that order."""
        return Prefixes(self.seconds[chosen], self.columns[chosen], self.started[chosen])

    def key(self, operators: Iterable[int], platforms: int, *, with_started: bool = False) -> Ints:
        """A number per plan, equal where all those operators have equal platforms, [plans].

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


Keep = Callable[[PlacementStep, Prefixes], Ints]
"""(step just taken, every extension) -> rows of those to go on with."""


def search(
    costs: AdditiveCosts, steps: Sequence[PlacementStep], keep: Keep
) -> tuple[Prefixes, int]:
    """What is left of all plans when `keep` has chosen after every step, and among how many."""
    startups = Startups.of(costs.startup_seconds)
    nothing = np.full((1, len(steps)), -1, np.int8)
    kept, candidates = Prefixes(np.zeros(1), nothing, np.zeros(1, np.int64)), 0
    for step in steps:
        extended = _extended(costs, startups, step, kept)
        candidates += len(extended)
        kept = extended.take(keep(step, extended))
    return kept, candidates


def best_per_key(key: Ints, seconds: Floats, count: int) -> Ints:
    """Rows of the `count` cheapest of every key, the cheapest of all first."""
    order = np.lexsort((seconds, key))
    sorted_key = key[order]
    firsts = np.flatnonzero(np.diff(sorted_key, prepend=sorted_key[0] - 1))
    rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    best = order[rank < count]
    return np.asarray(best[np.argsort(seconds[best], kind="stable")])


def _extended(
    costs: AdditiveCosts, startups: Startups, step: PlacementStep, kept: Prefixes
) -> Prefixes:
    seconds = kept.seconds[:, None] + costs.operator_seconds[step.operator]
    seconds += startups.seconds.T[kept.started]
    for parent, transfer in step.transfers.items():
        seconds += transfer[kept.columns[:, parent]]
    rows, platforms = np.nonzero(np.isfinite(seconds))
    columns = kept.columns[rows]
    columns[:, step.operator] = platforms
    return Prefixes(seconds[rows, platforms], columns, startups.then[platforms, kept.started[rows]])
