"""Seeded noise for simulations, so that an experiment can be repeated.

The programs of client and server cannot use it: they import nothing of this package.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedperf_client.release.gate import NoiseOf
from fedperf_shared.releases.release import SlotKey

Floats = NDArray[np.float64]


class SeededNoise:
    """Reproducible noise."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._generator = np.random.default_rng(seed)

    def gaussian(self, size: int) -> Floats:
        """Standard normal numbers."""
        return self._generator.standard_normal(size)

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Rounded normal numbers, which is the same at the report's scales."""
        return np.rint(scale * self.gaussian(size)).astype(np.int64)


def noise_of(seed: Sequence[int], member: int) -> NoiseOf:
    """Return the noise of a member, a function of seed, member and slot alone."""

    def of_slot(key: SlotKey) -> SeededNoise:
        return SeededNoise([*seed, member, int(key.kind), key.window, key.index])

    return of_slot
