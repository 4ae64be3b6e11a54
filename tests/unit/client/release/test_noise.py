import math
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from fedperf_client.release import noise as noise_module
from fedperf_client.release.noise import SystemNoise
from fedperf_shared.errors import ConfigurationError


def test_uniforms_lie_inside_the_unit_interval_at_the_edges_of_the_keystream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise = SystemNoise()
    words = np.array([0, 2**64 - 1], dtype="<u8")
    monkeypatch.setattr(noise, "_keystream", lambda count: words[:count].copy())
    low, high = noise.uniform(2)
    assert 0 < low < 1e-15
    assert 1 - 1e-15 < high < 1
    assert np.isfinite(noise.gaussian(2)).all()


def test_two_sources_and_two_draws_never_agree() -> None:
    one, other = SystemNoise(), SystemNoise()
    draws = [one.uniform(4), one.uniform(4), other.uniform(4)]
    assert len({value for draw in draws for value in draw.tolist()}) == 12


def test_global_seeds_have_no_say() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)
        torch.manual_seed(0)
        source = SystemNoise()
        draws.append((source.gaussian(3).tolist(), source.discrete_gaussian(8, 1e6).tolist()))
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] != draws[1][1]


def _send_draws(source: SystemNoise, pipe: Connection) -> None:
    pipe.send(source.uniform(4).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks only")
def test_forked_processes_share_no_keystream() -> None:
    source = SystemNoise()
    source.uniform(1)
    context = multiprocessing.get_context("fork")
    draws = []
    for _ in range(2):
        here, there = context.Pipe()
        child = context.Process(target=_send_draws, args=(source, there))
        child.start()
        draws += here.recv()
        child.join()
    draws += source.uniform(4).tolist()
    assert len(set(draws)) == 12


def test_threads_share_a_source_and_no_number() -> None:
    source = SystemNoise()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.uniform(500), range(64)))
    assert len(np.unique(np.concatenate(draws))) == 64 * 500


def test_a_long_keystream_goes_on_under_a_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []
    urandom = os.urandom
    monkeypatch.setattr(noise_module, "_REKEY_AFTER_BYTES", 800)

    def counted(size: int) -> bytes:
        keys.append(size)
        return urandom(size)

    monkeypatch.setattr("fedperf_client.release.noise.os.urandom", counted)
    source = SystemNoise()
    draws = np.concatenate([source.uniform(60) for _ in range(5)])
    assert keys.count(32) == 5
    assert len(np.unique(draws)) == 300


def test_empty_draws_are_empty() -> None:
    source = SystemNoise()
    assert source.uniform(0).shape == source.gaussian(0).shape == (0,)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**60])
def test_a_scale_that_is_no_noise_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="noise scale must be above 0"):
        SystemNoise().discrete_gaussian(1, scale)


def test_discrete_noise_is_whole_and_wide_scales_do_not_saturate() -> None:
    values = SystemNoise().discrete_gaussian(200, 2.0**45)
    assert values.dtype == np.int64
    assert 0.7 < float(np.std(values / 2.0**45)) < 1.4
