import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.cell_directions import Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.federation.channel import (
    Channel,
    Sender,
    noise_for,
    private_configurations,
    public_configurations,
)
from fedperf_simulations.federation.latent_points import PublicBox

Floats = NDArray[np.float64]

WORKLOADS, TARGETS = np.arange(60), np.arange(60, 100)
PARTS = (WORKLOADS[:20], WORKLOADS[20:40], WORKLOADS[40:])


def a_world(seed: int) -> tuple[GaussianPosterior, Floats, Floats]:
    """Return a prior over 100 points, their features, and a truth drawn from the prior."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (100, 2))
    near = np.exp(-0.5 * np.sum((features[:, None] - features) ** 2, axis=2))
    covariance = 0.3 + 0.3 * features @ features.T + 0.1 * near + 1e-9 * np.eye(100)
    truth = np.linalg.cholesky(covariance) @ rng.standard_normal(100)
    return GaussianPosterior(np.zeros(100), covariance), features, truth


def senders(truth: Floats) -> list[Sender]:
    return [Sender(part, truth[part]) for part in PARTS]


def error(belief: GaussianPosterior, truth: Floats) -> float:
    return float(np.abs(belief.mean - truth)[TARGETS].mean())


def public_error(seed: int, channel: Channel, *, spoiled: float = 0.0) -> tuple[float, float]:
    """Return the errors before and after the releases."""
    start, _, truth = a_world(seed)
    truth = truth + spoiled
    noise = SeededNoise([seed])
    after = public_configurations(start, senders(truth), TARGETS, channel=channel, noise=noise)
    return error(start, truth), error(after, truth)


def test_report_channel_error_decreases_with_less_noise() -> None:
    errors = []
    for noise in (0.05, 3.0, 1000.0):
        pairs = [public_error(seed, Channel(noise)) for seed in range(6)]
        errors.append(np.mean([after / before for before, after in pairs]))
    assert errors[0] < 0.2 < errors[1] < 0.9
    assert errors[2] == pytest.approx(1.0, abs=0.1)


def test_report_channel_with_wide_first_stage_corrects_a_distant_prior() -> None:
    """Clips of one standard deviation saturate where the prior is off by three."""
    tight = Channel(1.0, stages=(Stage(1.0, 1.0),))
    staged, once = (
        np.mean([public_error(seed, channel, spoiled=3.0)[1] for seed in range(6)])
        for channel in (Channel(1.0), tight)
    )
    assert staged < 0.5 * once


def test_private_configurations_reduce_the_prior_error() -> None:
    ratios = []
    for seed in range(6):
        start, features, truth = a_world(seed)
        after = private_configurations(
            start,
            senders(truth),
            PublicBox(TARGETS, features[TARGETS]),
            features=[features[part] for part in PARTS],
            declared=[25, 25, 25],
            offset_share=0.1,
            channel=Channel(1.0),
            noise=SeededNoise([seed]),
        )
        ratios.append(error(after, truth) / error(start, truth))
    assert np.mean(ratios) < 0.75


def test_report_channel_malicious_organization_has_bounded_influence() -> None:
    moved = []
    for seed in range(6):
        start, _, truth = a_world(seed)
        honest = senders(truth)
        lied = [honest[0], honest[1], Sender(PARTS[2], truth[PARTS[2]], lies=1e9)]
        beliefs = [
            public_configurations(
                start, who, TARGETS, channel=Channel(0.3), noise=SeededNoise([seed])
            )
            for who in (honest, lied)
        ]
        moved.append(np.abs(beliefs[1].mean - beliefs[0].mean)[TARGETS].mean())
    assert max(moved) < 3 * np.sqrt(0.7)


def test_report_channel_is_deterministic_for_a_seed() -> None:
    start, _, truth = a_world(1)
    first, again = (
        public_configurations(
            start, senders(truth), TARGETS, channel=Channel(2.0), noise=SeededNoise([4])
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.mean, again.mean)


@pytest.mark.slow
@pytest.mark.parametrize("promised", [1.0, 3.0])
def test_report_channel_stages_spend_the_promised_epsilon_in_total(promised: float) -> None:
    add, _ = Channel(noise_for(promised)).spent()
    assert promised - 0.01 < add <= promised + 2e-3
    _, replaced = Channel(noise_for(promised, replace_one=True)).spent()
    assert promised - 0.01 < replaced <= promised + 2e-3
    one_tight, _ = Channel(noise_for(promised), stages=(Stage(1.0, 1.0),)).spent()
    assert one_tight == pytest.approx(add, abs=5e-3)


@pytest.mark.slow
def test_report_channel_replace_one_privacy_doubles_the_noise() -> None:
    assert noise_for(1.0, replace_one=True) == 2 * noise_for(1.0)
