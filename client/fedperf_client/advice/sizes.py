"""Sizes of a cluster that were looked at, and which one is the right one.

With a deadline the right size keeps it at the fewest core-seconds
(cores x run time, what a cloud bills); without one it is the fastest, or a cheaper one that
is at most `WORTH` slower. The size that a job has does as well, where it does what is asked and
there is no telling that the right one beats it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedperf_client.optimizer.enumeration import Choice
from fedperf_client.prediction.answers.what_if import HOLDS
from fedperf_client.prediction.ensemble.intervals import SURE, Estimate, chance_faster
from fedperf_shared.execution import ClusterConfig

WORTH = 0.10
"""Slower by so much is no reason to pay for more."""


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The best plan on one size of cluster.

    Attributes:
        cluster: the size.
        choice: what runs where there.
        estimate: how long, on platforms that are warm.
        deadline_seconds: that is to be kept; None without one.
    """

    cluster: ClusterConfig
    choice: Choice
    estimate: Estimate
    deadline_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Median and start-up."""
        return self.choice.seconds

    @property
    def core_seconds(self) -> float:
        """What it costs: all cores for all the time."""
        return self.cluster.cores * self.seconds

    @property
    def chance(self) -> float | None:
        """To be done within the deadline, start-up included; None without one."""
        if self.deadline_seconds is None:
            return None
        left = self.deadline_seconds - self.choice.startup_seconds
        return self.estimate.chance_within(left) if left > 0 else 0.0

    @property
    def holds(self) -> bool | None:
        """Whether the deadline is kept with a chance of 90 %; None without one."""
        return None if self.chance is None else self.chance >= HOLDS


def best_size(sizes: Sequence[ClusterChoice]) -> ClusterChoice | None:
    """The right one, see the module; None where none keeps the deadline."""
    if all(each.holds is None for each in sizes):
        fastest = min(each.seconds for each in sizes)
        able = [each for each in sizes if each.seconds <= (1 + WORTH) * fastest]
    else:
        able = [each for each in sizes if each.holds]
    return min(able, key=lambda each: (each.core_seconds, each.seconds), default=None)


def beats(right: ClusterChoice, had: ClusterChoice) -> bool:
    """Whether it can be told that the right size beats the one that a job has.

    It costs less; or it takes less time, where a deadline does not say how much is enough; or
    the other one does not keep the deadline.
    """
    if had.holds is False:
        return True
    starts = right.choice.startup_seconds, had.choice.startup_seconds
    cores = float(right.cluster.cores), float(had.cluster.cores)
    chances = [chance_faster(right.estimate, had.estimate, starts=starts, rates=cores)]
    if had.holds is None:
        chances.append(chance_faster(right.estimate, had.estimate, starts=starts))
    return max(chances) >= SURE
