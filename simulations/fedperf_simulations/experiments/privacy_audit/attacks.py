"""Noise for attacks on releases.

The attacker is the strongest that the promise speaks of. It chose the workloads, and knows the
model, the slot's parameters, the public code and everybody else's data. It does not know who is in,
nor the noise. Fake noise is here for controls and stands behind no release.
"""

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_simulations.experiments.privacy_audit.bounds import Floats

NOMINAL_WORKLOADS = 1e7
"""As many as may be declared; the noise does not depend on it."""


class FakeNoise(SeededNoise):
    """Noise of the wrong scale from a seed: a control that an audit has to catch."""

    def __init__(self, seed: int, *, factor: float) -> None:
        super().__init__([seed])
        self._factor = factor

    def gaussian(self, size: int) -> Floats:
        """Normal numbers of standard deviation `factor`."""
        return self._factor * super().gaussian(size)


class PairedNoise:
    """Gives every discrete draw of a source twice in a row, to one input and its neighbour.

    Each of the two samples of releases is still just what the mechanism gives, and a bound
    from two samples needs no independence between them; drawing is what takes the time.
    """

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._kept: NDArray[np.int64] | None = None

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """A new draw, or the one before again."""
        if self._kept is None:
            self._kept = self._noise.discrete_gaussian(size, scale)
            return self._kept.copy()
        again, self._kept = self._kept, None
        return again
