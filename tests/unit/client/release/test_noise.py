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
"""So wide that two draws which agree share their randomness."""


def test_two_sources_and_two_draws_never_agree() -> None:
    one, other = SystemNoise(), SystemNoise()
    draws = [source.discrete_gaussian(4, WIDE) for source in (one, one, other)]
    assert len(np.unique(draws)) == 12


def test_global_seeds_have_no_say() -> None:
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
def test_forked_processes_share_no_noise() -> None:
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


def test_threads_share_a_source_and_no_number() -> None:
    source = SystemNoise()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.discrete_gaussian(20, WIDE), range(64)))
    assert len(np.unique(draws)) == 64 * 20


def test_empty_draws_are_empty() -> None:
    assert SystemNoise().discrete_gaussian(0, WIDE).shape == (0,)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**60])
def test_a_scale_that_is_no_noise_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="noise scale must be above 0"):
        SystemNoise().discrete_gaussian(1, scale)


def test_discrete_noise_is_whole_and_wide_scales_do_not_saturate() -> None:
    values = SystemNoise().discrete_gaussian(200, WIDE)
    assert values.dtype == np.int64
    assert 0.7 < float(np.std(values / WIDE)) < 1.4
