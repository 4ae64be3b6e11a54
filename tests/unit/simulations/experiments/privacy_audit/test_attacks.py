"""The attacker is as strong as the promise says, and the fakes are as wrong as they say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.release import TrainingParameters
from fedperf_simulations.experiments.privacy_audit.attacks import (
    NOMINAL_WORKLOADS,
    CanaryAttack,
    FakeNoise,
    Twice,
    canaries,
)
from tests.unit.client.privacy.seeded_noise import SeededNoise

COUNT = 40


@pytest.fixture(scope="module")
def attack() -> CanaryAttack:
    rng = np.random.default_rng(1)
    return CanaryAttack.on(GGFN(seed=1, dropout=0.0), canaries(COUNT, rng))


def inside(seed: int) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).integers(0, 2, COUNT).astype(bool)


@pytest.mark.parametrize("steps", [1, 3])
def test_without_noise_the_attacker_knows_who_was_in(attack: CanaryAttack, steps: int) -> None:
    parameters = TrainingParameters(1.0, 1.0, steps, 1.0, NOMINAL_WORKLOADS)
    who = inside(steps)
    scores = attack.scores(parameters, FakeNoise(0, factor=0.0), factor=0.0, inside=who)
    assert scores[who].min() > scores[~who].max() + 0.5


@pytest.mark.statistical
def test_with_noise_the_attacker_is_as_good_as_a_gaussian_test_allows(
    attack: CanaryAttack,
) -> None:
    """One canary against noise of sigma C: scores lie at most 1 / sigma apart, and nearly so."""
    parameters = TrainingParameters(1.0, 1.0, 1, 1.0, NOMINAL_WORKLOADS)
    noise, scores, members = SeededNoise(2), [], []
    for seed in range(30):
        members.append(inside(seed))
        scores.append(attack.scores(parameters, noise, factor=1.0, inside=members[-1]))
    values, who = np.concatenate(scores), np.concatenate(members)
    apart = (values[who].mean() - values[~who].mean()) / values[~who].std()
    assert 0.7 < apart < 1.15


def test_canaries_are_clipped_and_are_seen_almost_whole(attack: CanaryAttack) -> None:
    norms = np.sqrt(np.diag(attack.products))
    assert norms.max() <= 1.0
    assert norms.min() > 0.95


@pytest.mark.parametrize("factor", [0.0, 0.25])
def test_fake_noise_has_the_scale_that_it_fakes(factor: float) -> None:
    fake = FakeNoise(3, factor=factor)
    assert fake.gaussian(20_000).std() == pytest.approx(factor, rel=0.03)
    assert fake.discrete_gaussian(20_000, 1000.0).std() == pytest.approx(1000 * factor, rel=0.03)
    assert fake.uniform(20_000).mean() == pytest.approx(0.5, rel=0.03)


def test_a_draw_is_given_to_an_input_and_its_neighbour_and_never_again() -> None:
    twice = Twice(SeededNoise(4))
    one, same, other = (twice.discrete_gaussian(5, 1000.0) for _ in range(3))
    assert np.array_equal(one, same)
    assert not np.array_equal(same, other)
