"""Lower bounds on epsilon from an attacker's success, with confidence.

A mechanism that is (epsilon, delta)-differentially private keeps every attack below a limit. The
largest epsilon whose limit an attack passed is a lower bound on the true epsilon. It is wrong with
a chance of at most 1 - confidence, whatever the mechanism. A weak attack gives a bound near 0,
which proves nothing.

Invariant: what an attack is tuned on is never what it is judged by; where several attacks are
tried, the chance of error is divided among them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

CONFIDENCE = 0.95

_THRESHOLDS = 200

Floats = NDArray[np.float64]


def epsilon_of_rates(
    hits: int,
    members: int,
    *,
    false_alarms: int,
    others: int,
    delta: float,
    confidence: float = CONFIDENCE,
) -> float:
    """Lower bound on epsilon from how often one event happened on two neighbouring inputs.

    Under (epsilon, delta)-DP, P[event | one] <= e^epsilon P[event | other] + delta. Both
    chances are bounded by Clopper and Pearson, each at half of the error.

    Args:
        hits: releases of the one input with the event.
        members: releases of the one input.
        false_alarms: releases of the other input with the event.
        others: releases of the other input.
        delta: of the claim.
        confidence: of the bound.
    """
    level = (1 - confidence) / 2
    lowest = float(beta.ppf(level, hits, members - hits + 1)) if hits else 0.0
    highest = (
        float(beta.isf(level, false_alarms + 1, others - false_alarms))
        if false_alarms < others
        else 1.0
    )
    if not lowest - delta > highest > 0:
        return 0.0
    return math.log((lowest - delta) / highest)


@dataclass(frozen=True, slots=True)
class _Event:
    """A score beyond a threshold, on one of two sides."""

    threshold: float
    above: bool

    def count(self, scores: Floats) -> int:
        beyond = scores > self.threshold if self.above else scores < self.threshold
        return int(beyond.sum())


def best_threshold(
    without: Floats, with_one: Floats, *, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Lower bound on epsilon from scores of releases of two neighbouring inputs.

    The event that separates best on the first half of the scores is judged on the second.

    Args:
        without: scores of releases without the workload.
        with_one: scores of releases with it, larger in tendency.
        delta: of the claim.
        confidence: of the bound.
    """

    def bound(event: _Event, absent: Floats, present: Floats) -> float:
        # Large scores speak for the workload, small ones against it.
        one, other = (present, absent) if event.above else (absent, present)
        return epsilon_of_rates(
            event.count(one),
            len(one),
            false_alarms=event.count(other),
            others=len(other),
            delta=delta,
            confidence=confidence,
        )

    tuned = without[: len(without) // 2], with_one[: len(with_one) // 2]
    judged = without[len(without) // 2 :], with_one[len(with_one) // 2 :]
    places = np.linspace(0, 1, _THRESHOLDS + 2)[1:-1]
    thresholds = np.unique(np.quantile(np.concatenate(tuned), places))
    events = [_Event(float(t), above) for t in thresholds for above in (True, False)]
    return bound(max(events, key=lambda event: bound(event, *tuned)), *judged)


def best_direction(without: Floats, with_one: Floats) -> Floats:
    """The linear score that separates two samples best (Fisher), float64 [features].

    To be found on other releases than those that it is used on.

    Args:
        without: float64 [releases, features].
        with_one: the same of the neighbouring input.
    """
    spread = np.cov(np.concatenate([without - without.mean(0), with_one - with_one.mean(0)]).T)
    ridge = 1e-9 * float(np.trace(np.atleast_2d(spread))) + 1e-12
    regular = np.atleast_2d(spread) + ridge * np.eye(without.shape[1])
    return np.asarray(np.linalg.solve(regular, with_one.mean(0) - without.mean(0)))
