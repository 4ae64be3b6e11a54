"""Ernest's scaling laws of run time by machines and input size: a sample of them, and a fit.

The sample is drawn once and for all: seconds ~ a + b size^g / machines + c log machines + d
machines, with shares a + b + c + d = 1 at the middle of what is known. A job whose configurations
are worth asking about spends most of its time there on work that machines share (b from 0.6 to 1).
What grows with machines reaches its share d only at four times as many. Sizes count by about their
first power (g of 0.95 +- 0.2).

The fit (`fit_ernest`) is to the least *relative* error with no negative part, so that long
executions do not decide alone. It reads two columns and keeps sense far outside of what was seen:
more work takes longer.

Source: Venkataraman et al., NSDI 2016, section 3.1 (absolute errors there); with b and d alone it
is Amdahl's law with the crosstalk of Gunther's Universal Scalability Law. The ranges of the shares
are reasoning, not a fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedperf_client.prediction.prediction import Floats

LAWS = 64
LEAST_WORK = 0.6
CROSSTALK_FROM = 4.0
"""Times the machines of the middle, at which the share of crosstalk is what was drawn."""

SIZE_POWER, SIZE_POWER_SD = 0.95, 0.2
LEAST_LOG_MACHINES = 0.35
"""For the share of what grows with log machines, where the middle is one machine."""


@dataclass(frozen=True, slots=True)
class ScalingColumns:
    """Places of log machines and of log size among the features."""

    scale: int
    size: int

    def shapes(self, features: Floats, middle: Floats) -> Floats:
        """Log seconds of every law up to a level, [LAWS, rows].

        Args:
            features: [rows, columns].
            middle: of what is known, [columns].
        """
        fixed, work, gathered, crosstalk, powers = _laws()
        machines, size = features[:, self.scale], features[:, self.size] - middle[self.size]
        apart = machines - middle[self.scale]
        log_machines = np.maximum(machines, 0) / max(middle[self.scale], LEAST_LOG_MACHINES)
        return np.asarray(
            np.log(
                fixed[:, None]
                + work[:, None] * np.exp(np.outer(powers, size) - apart)
                + np.outer(gathered, log_machines)
                + np.outer(crosstalk, np.exp(apart) / CROSSTALK_FROM)
            )
        )


@cache
def _laws() -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Shares fixed, of work, gathered, of crosstalk, and powers of the size, [LAWS] each."""
    from scipy.special import ndtri

    spread = _evenly(LAWS, 5)
    work = LEAST_WORK + (1 - LEAST_WORK) * spread[:, 0]
    parts = -np.log(spread[:, 1:4])
    fixed, gathered, crosstalk = (parts / parts.sum(axis=1, keepdims=True) * (1 - work)[:, None]).T
    powers = SIZE_POWER + SIZE_POWER_SD * ndtri(spread[:, 4])
    return fixed, work, gathered, crosstalk, powers


def _evenly(count: int, columns: int) -> Floats:
    """Points spread evenly in the unit cube, [count, columns].

    Source: Roberts 2018, the additive recurrence of the generalized golden ratio.
    """
    ratio = 2.0
    for _ in range(30):
        ratio = (1 + ratio) ** (1 / (columns + 1))
    steps = ratio ** -np.arange(1.0, columns + 1)
    return np.asarray((0.5 + np.outer(np.arange(1, count + 1), steps)) % 1)


_LEAST_SECONDS = 1e-6


def fit_ernest(log_scale: Floats, log_size: Floats, log_seconds: Floats) -> "Answer":
    """(log scale, log size) -> log seconds.

    Args:
        log_scale: log machines or cores, [rows].
        log_size: log of the input size, any unit, [rows].
        log_seconds: [rows], at least one.
    """
    from scipy.optimize import nnls

    middle = float(np.median(log_size))
    terms = _terms(log_scale, log_size - middle)
    weights, _ = nnls(terms / np.exp(log_seconds)[:, None], np.ones(len(log_seconds)))

    def answer(scale: Floats, size: Floats) -> Floats:
        seconds = _terms(scale, size - middle) @ weights
        return np.asarray(np.log(np.maximum(seconds, _LEAST_SECONDS)))

    return answer


Answer = Callable[[Floats, Floats], Floats]


def _terms(log_scale: Floats, log_size: Floats) -> Floats:
    scale = np.exp(log_scale)
    return np.column_stack([np.ones(len(scale)), np.exp(log_size) / scale, log_scale, scale])
