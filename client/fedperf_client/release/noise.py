"""The source of randomness for releases; nothing else in fedperf makes any.

Uniforms and Gaussians come from a ChaCha20 keystream under a key of the operating system, private
to each `SystemNoise`. There is no seed and no global generator, and a forked process starts a
keystream of its own. Gaussians are float64 by inverse distribution function, one uniform each.
Discrete Gaussians come from OpenDP, exact in rationals and with its own operating-system
randomness.
"""

import os
import threading
import weakref

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import SlotKey

__all__ = ["NoiseSource", "SystemNoise"]

_KEY_BYTES = 32
_NONCE_BYTES = 16
_REKEY_AFTER_BYTES = 2**30
"""Far below the 2^38 bytes after which the block counter of ChaCha20 would wrap."""

_BLOCK = 2**13
_ZEROS = bytes(8 * _BLOCK)
"""Encrypted, it is the keystream."""

_UNIFORM_BITS = 52
"""The middle of a cell of width 2^-52 needs 53 bits, just what a float64 holds exactly."""


class SystemNoise:
    """Noise for releases; safe to share between threads and across forks."""

    def __init__(self) -> None:
        self._restart()
        _living.add(self)

    def __reduce__(self) -> "tuple[type[SystemNoise], tuple[()]]":
        """A copy, in this process or another, starts a keystream of its own."""
        return SystemNoise, ()

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Uniform float64 [size], middles of 2^52 equal cells: never 0, never 1."""
        values = np.empty(size)
        for start in range(0, size, _BLOCK):  # a block stays in the processor's cache
            block = values[start : start + _BLOCK]
            words = self._keystream(len(block))
            words >>= np.uint64(64 - _UNIFORM_BITS)
            np.add(words, 0.5, out=block)
            block *= 2.0**-_UNIFORM_BITS
        return values

    def gaussian(self, size: int) -> NDArray[np.float64]:
        """Standard normal float64 [size], within +-8.3."""
        import torch  # its inverse distribution function takes half as long as SciPy's

        values = self.uniform(size)
        torch.special.ndtri(torch.from_numpy(values), out=torch.from_numpy(values))
        return values

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Discrete Gaussian int64 [size] of `scale` integers.

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

    def _keystream(self, count: int) -> NDArray[np.uint64]:
        """`count` words of 64 bits, at most a block of them."""
        with self._lock:
            if self._given + 8 * count > _REKEY_AFTER_BYTES:
                self._rekey()
            self._given += 8 * count
            return np.frombuffer(bytearray(self._cipher.update(_ZEROS[: 8 * count])), "<u8")

    def _rekey(self) -> None:
        algorithm = algorithms.ChaCha20(os.urandom(_KEY_BYTES), os.urandom(_NONCE_BYTES))
        self._cipher: CipherContext = Cipher(algorithm, mode=None).encryptor()
        self._given = 0

    def _restart(self) -> None:
        self._lock = threading.Lock()  # a new one: another thread may have held it at the fork
        self._rekey()


def system_noise(slot: SlotKey) -> SystemNoise:
    """The noise of any slot: a keystream of its own."""
    del slot
    return SystemNoise()


_living: "weakref.WeakSet[SystemNoise]" = weakref.WeakSet()


def _restart_all() -> None:
    for source in list(_living):
        source._restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
