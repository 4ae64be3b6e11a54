import math
import multiprocessing
import os
import random
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from fedperf_client.release.noise import SystemNoise
from fedperf_shared.errors import ConfigurationError

WIDE = 2.0**45
"""Scale at which two equal draws imply shared randomness."""


def test_system_noise_never_repeats_across_sources_or_draws() -> None:
    one, other = SystemNoise(), SystemNoise()
    draws = [source.discrete_gaussian(4, WIDE) for source in (one, one, other)]
    assert len(np.unique(draws)) == 12


def test_system_noise_ignores_global_seeds() -> None:
    draws = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        draws.append(SystemNoise().discrete_gaussian(4, WIDE))
    assert len(np.unique(draws)) == 8


def _send_draws(source: SystemNoise, pipe: Connection) -> None:
    pipe.send(source.discrete_gaussian(4, WIDE).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks only")
def test_system_noise_differs_between_forked_processes() -> None:
    source = SystemNoise()
    source.discrete_gaussian(1, WIDE)
    context = multiprocessing.get_context("fork")
    draws = []
    for _ in range(2):
        here, there = context.Pipe()
        child = context.Process(target=_send_draws, args=(source, there))
        child.start()
        draws += here.recv()
        child.join()
    draws += source.discrete_gaussian(4, WIDE).tolist()
    assert len(set(draws)) == 12


def test_system_noise_never_repeats_across_threads() -> None:
    source = SystemNoise()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.discrete_gaussian(20, WIDE), range(64)))
    assert len(np.unique(draws)) == 64 * 20


def test_system_noise_of_zero_values_is_empty() -> None:
    assert SystemNoise().discrete_gaussian(0, WIDE).shape == (0,)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**60])
def test_system_noise_with_invalid_scale_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="noise scale must be above 0"):
        SystemNoise().discrete_gaussian(1, scale)


def test_system_noise_is_integer_and_wide_scales_do_not_saturate() -> None:
    values = SystemNoise().discrete_gaussian(200, WIDE)
    assert values.dtype == np.int64
    assert 0.7 < float(np.std(values / WIDE)) < 1.4
