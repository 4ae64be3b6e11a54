"""The source of randomness for releases; nothing else in fedperf samples any.

Discrete Gaussians come from OpenDP, exact in rationals and with the operating system's randomness.
There is no seed and no generator of this process, so neither threads, forks nor copies share state.
"""

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import SlotKey


class SystemNoise:
    """Noise for releases; safe to share between threads and across forks."""

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Sample discrete Gaussians, int64 [size], of `scale` integers.

        Raises:
            ConfigurationError: scale is not positive and finite, or beyond 2^55.
        """
        if not 0 < scale <= 2.0**55:
            raise ConfigurationError(f"noise scale must be above 0 and at most 2^55, got {scale!r}")
        import opendp.prelude as dp

        dp.enable_features("contrib")
        integers = dp.vector_domain(dp.atom_domain(T="i64"))
        measurement = dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=float(scale))
        return np.array(measurement([0] * size), dtype=np.int64)


def system_noise(slot: SlotKey) -> SystemNoise:
    """Return the noise of any slot."""
    del slot
    return SystemNoise()
