"""Reproducible noise sources, for tests only."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class SeededNoise:
    """Noise from numpy's generator. `factor` makes noise of the wrong scale."""

    def __init__(self, seed: int = 0, *, factor: float = 1.0) -> None:
        self._generator = np.random.default_rng(seed)
        self._factor = factor

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        return np.rint(self._generator.normal(scale=self._factor * scale, size=size)).astype(
            np.int64
        )


def seeded(seed: int = 0) -> Callable[[object], SeededNoise]:
    """Return a function that gives one shared source to all slots, in the order of draws."""
    source = SeededNoise(seed)
    return lambda slot: source


class NoNoise:
    """A noise source that returns zeros."""

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        del scale
        return np.zeros(size, dtype=np.int64)
