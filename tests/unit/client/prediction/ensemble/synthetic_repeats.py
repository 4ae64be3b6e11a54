"""Synthetic repeats of configurations with low, high or mixed run-to-run variance."""

import math
from collections.abc import Callable

import numpy as np

from fedperf_client.prediction.ensemble.repeats import Repeats
from fedperf_client.prediction.prediction import Floats

Draw = Callable[[np.random.Generator, int], Floats]

SPREADS: dict[str, Draw] = {
    "quiet": lambda rng, count: 0.02 * np.exp(0.6 * rng.standard_normal(count)),
    "cloud": lambda rng, count: 0.45 * np.exp(0.35 * rng.standard_normal(count)),
    "wild": lambda rng, count: 0.1 * np.exp(1.2 * rng.standard_normal(count)),
}
"""Standard deviations of log seconds among repeats, one per configuration."""

NOISES: dict[str, Draw] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "heavy": lambda rng, count: rng.standard_t(3, count) / math.sqrt(3),
    "slow runs": lambda rng, count: (
        0.6 * rng.standard_normal(count)
        + np.where(rng.random(count) < 0.1, rng.exponential(3.0, count), 0.0)
    ),
    "skewed": lambda rng, count: rng.exponential(size=count) - 1,
}

NO_MIX = 1e9
"""Mean squared error of an ensemble without any information."""


def runs(rng: np.random.Generator, spread: str, noise: str, count: int) -> Floats:
    """Return log seconds of the runs of one new configuration."""
    level = rng.uniform(-2, 6)
    return np.asarray(level + SPREADS[spread](rng, 1)[0] * NOISES[noise](rng, count))


def home(*configurations: Floats, kinds: tuple[int, ...] | None = None) -> Repeats:
    """Return the repeats of configurations 0, 1 and so on."""
    counts = [len(each) for each in configurations]
    names = np.repeat(np.arange(len(configurations)), counts)
    of = np.zeros(len(configurations), np.int64) if kinds is None else np.array(kinds)
    return Repeats.from_runs(names, of[names], np.concatenate([np.zeros(0), *configurations]))


def interval_score(lower: float, upper: float, measured: float) -> float:
    """Return the interval score of a 90 % interval.

    It is the length plus 20 times the distance of the measured value from the interval.
    """
    return upper - lower + 20 * (max(lower - measured, 0.0) + max(measured - upper, 0.0))
