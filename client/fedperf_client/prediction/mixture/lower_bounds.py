"""What a job takes at least, and an answer heeds: failed and stopped runs, and processor time.

Of a configuration whose runs were cut above its predicted median, the chance to end by then is
at most what Laplace's rule makes of its runs: (those that did + 1) / (all + 2). What is taken
away lies above the bound, as far as errors usually go: nobody knows by how much a run
would have passed its limit. Bounds below the median say nothing new.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedperf_client.prediction.mixture.spreads import MIDDLE, Distribution, Student
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import SizedPlan


@dataclass(frozen=True, slots=True)
class BoundedDistribution:
    """A distribution of which no more than `most` lies below `bound`.

    Attributes:
        base: what is said without the bound; more than `most` of it lies below.
        bound: log seconds from the predicted median.
        most: chance, in (0, 1).
        beyond: how far above the bound the rest lies.
    """

    base: Distribution
    bound: float
    most: float
    beyond: Student

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        if share <= self.most:
            return self.base.quantile(share)
        passed = (share - self.most) / (1 - self.most)
        above = self.bound + self.beyond.quantile(MIDDLE + MIDDLE * passed)
        return max(self.base.quantile(share), above)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        of_base = self.base.cdf(log_seconds)
        if log_seconds <= self.bound:
            return min(of_base, self.most)
        passed = (self.beyond.cdf(log_seconds - self.bound) - MIDDLE) / MIDDLE
        return min(of_base, self.most + (1 - self.most) * passed)


@dataclass(frozen=True, slots=True, eq=False)
class LowerBounds:
    """Own runs that did not end well, log seconds of each by configuration."""

    log_seconds: Mapping[int, Floats]

    @classmethod
    def of(cls, configurations: Sequence[int], log_seconds: Floats) -> Self:
        """Of runs that were cut, `log_seconds` [runs] until then."""
        found: dict[int, list[float]] = defaultdict(list)
        for key, each in zip(configurations, log_seconds.tolist(), strict=True):
            found[key].append(each)
        return cls({key: np.array(each) for key, each in found.items()})

    def of_configuration(self, configuration: int) -> Floats:
        """Log seconds of its runs that were cut."""
        return self.log_seconds.get(configuration, np.zeros(0))


def least_log_seconds(question: SizedPlan) -> float:
    """What the processor time of its job needs on all cores at once; -inf where it is unknown."""
    job, cores = question.job, question.cluster.cores
    return math.log(job.cpu_seconds / cores) if job and job.cpu_seconds > 0 else -math.inf


def heeded(log_seconds: float, spread: Distribution, *, cut: Floats, ended: Floats) -> Distribution:
    """The spread of an answer with what is known of runs that were cut.

    Args:
        log_seconds: predicted median.
        spread: around it.
        cut: log seconds of the runs of what is asked about that were cut.
        ended: of those that ended well.
    """
    cut = cut[cut > log_seconds]
    if len(cut) == 0:
        return spread
    bound = float(cut.min())
    most = (np.count_nonzero(ended <= bound) + 1) / (len(ended) + len(cut) + 2)
    if spread.cdf(bound - log_seconds) <= most:
        return spread
    return BoundedDistribution(spread, bound - log_seconds, float(most), Student.within())
