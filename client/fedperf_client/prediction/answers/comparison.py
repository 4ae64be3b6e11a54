"""Comparison of two answers about one job: which is faster, and whether that can be told at all.

What a predictor misjudges of a job it misjudges on all platforms and sizes. That part of the errors
is common to both answers and cancels in their ratio (`Basis.kinship`). An answer that rests on own
runs of the very configuration has nothing in common with another.
"""

import math

from fedperf_client.prediction.mixture.intervals import Estimate
from fedperf_client.prediction.mixture.spreads import USUAL_DEGREES, Student

SURE = 0.75
"""Chance from which on one is said to be faster: three to one. Below, none is said to be."""


def chance_faster(
    one: Estimate,
    other: Estimate,
    *,
    starts: tuple[float, float] = (0.0, 0.0),
    rates: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Chance that `one` takes less time than `other`, both about the same job, in (0, 1).

    Args:
        one: an answer.
        other: of the same predictor.
        starts: seconds that are added to each for sure, such as starting a platform.
        rates: what a second of each costs; the chance is then that `one` costs less.
    """
    seconds = [each.prediction.median_seconds for each in (one, other)]
    whole = [each + start for each, start in zip(seconds, starts, strict=True)]
    first, second = (
        answer.deviation * each / both
        for answer, each, both in zip((one, other), seconds, whole, strict=True)
    )
    common = 2 * min(one.basis.kinship, other.basis.kinship) * first * second
    apart = math.sqrt(first**2 + second**2 - common)
    ratio = math.log(whole[1] * rates[1] / (whole[0] * rates[0]))
    if apart == 0:
        return 0.5 + 0.5 * math.copysign(1.0, ratio) * (ratio != 0)
    return Student(apart, USUAL_DEGREES).cdf(ratio)
