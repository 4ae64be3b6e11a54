"""The randomness that mechanisms are given; they never make their own.

`fedperf_client.release.noise.SystemNoise` is the only implementation that may
stand behind a real release; tests bring seeded ones.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NoiseSource(Protocol):
    """Independent random numbers, never the same twice."""

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """`size` integers k with probability proportional to exp(-k^2 / (2 scale^2))."""
        ...
