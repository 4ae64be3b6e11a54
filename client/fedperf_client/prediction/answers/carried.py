"""Estimates carried to what is like the question but for one thing, known less surely."""

import math
from dataclasses import dataclass

from fedperf_client.prediction.mixture.intervals import Estimate
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.spreads import with_more


def carried(
    estimate: Estimate,
    *,
    by: float = 0.0,
    added: float = 0.0,
    kind: Asks | None = None,
    extrapolating: bool = False,
) -> Estimate:
    """The estimate of what takes longer than another.

    Args:
        estimate: of the other.
        by: log seconds.
        added: half width of the 90 % interval of the error of `by`, log seconds.
        kind: of the question; that of the estimate by default.
        extrapolating: whether it lies outside of what was seen, wherever the other does.
    """
    prediction = estimate.prediction
    return Estimate.around(
        math.log(prediction.median_seconds) + by,
        with_more(_Around(estimate), added),
        kind=kind or estimate.kind,
        level=prediction.level,
        inside=not (extrapolating or prediction.extrapolating),
        basis=estimate.basis,
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """The distribution around the median of an estimate, log seconds."""

    estimate: Estimate

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        median = self.estimate.prediction.median_seconds
        return math.log(self.estimate.seconds_at(share) / median)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        median = self.estimate.prediction.median_seconds
        return self.estimate.chance_within(median * math.exp(log_seconds))
