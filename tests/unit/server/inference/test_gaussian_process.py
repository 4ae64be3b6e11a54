import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import (
    SCALES,
    GaussianPosterior,
    InvalidPosteriorError,
    Observation,
    likeliest_scale,
    max_norm,
    update,
)
from fedperf_simulations.federation.point_queries import condition
from tests.fakes.influence_bounds import influence_bounds

Floats = NDArray[np.float64]
POINTS = 12


def a_belief(seed: int = 0) -> GaussianPosterior:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((POINTS, POINTS)) / 3
    return GaussianPosterior(rng.standard_normal(POINTS), root @ root.T + 0.01 * np.eye(POINTS))


def a_truth(belief: GaussianPosterior, rng: np.random.Generator, scale: float = 1.0) -> Floats:
    root = np.linalg.cholesky(scale * belief.covariance)
    return belief.mean + root @ rng.standard_normal(POINTS)


def an_observation(
    belief: GaussianPosterior,
    truth: Floats,
    rng: np.random.Generator,
    *,
    noise: float = 0.5,
    values: int = 4,
) -> Observation:
    matrix = rng.standard_normal((values, POINTS))
    seen = matrix @ (truth - belief.mean) + noise * rng.standard_normal(values)
    return Observation(matrix, seen, noise**2 * np.eye(values))


def test_update_without_observations_keeps_the_posterior() -> None:
    belief = a_belief()
    after = update(belief, [])
    assert (after.posterior, after.scale) == (belief, 1.0)


def test_condition_on_measured_points_also_reduces_error_of_related_points() -> None:
    belief = a_belief(1)
    truth = a_truth(belief, np.random.default_rng(1))
    known = np.arange(0, POINTS, 2)
    after = condition(belief, known, truth[known], 1e-8)
    np.testing.assert_allclose(after.mean[known], truth[known], atol=1e-3)
    assert after.variances()[known].max() < 1e-6
    assert np.all(after.variances() <= belief.variances() + 1e-9)
    rest = np.arange(1, POINTS, 2)
    off = np.abs(after.mean - truth)[rest].mean()
    assert off < np.abs(belief.mean - truth)[rest].mean()


def test_condition_equals_gaussian_conditioning_formula() -> None:
    belief = a_belief(2)
    known, values = np.array([1, 5]), np.array([0.3, -2.0])
    noise = 0.2
    system = belief.covariance[np.ix_(known, known)] + noise * np.eye(2)
    gain = belief.covariance[:, known] @ np.linalg.inv(system)
    after = condition(belief, known, values, noise)
    np.testing.assert_allclose(after.mean, belief.mean + gain @ (values - belief.mean[known]))
    np.testing.assert_allclose(
        after.covariance, belief.covariance - gain @ belief.covariance[known], atol=1e-12
    )


def test_update_follows_noiseless_observations_and_ignores_very_noisy_ones() -> None:
    belief, rng = a_belief(3), np.random.default_rng(3)
    truth = a_truth(belief, rng)
    clear = an_observation(belief, truth, rng, noise=1e-4, values=POINTS)
    after = update(belief, [clear], scales=(1.0,)).posterior
    np.testing.assert_allclose(after.mean, truth, atol=0.05)
    drowned = an_observation(belief, truth, rng, noise=1e4)
    after = update(belief, [drowned], scales=(1.0,)).posterior
    np.testing.assert_allclose(after.mean, belief.mean, atol=0.02)
    np.testing.assert_allclose(after.covariance, belief.covariance, atol=1e-3)


@pytest.mark.parametrize("senders", [3, 10])
def test_update_with_many_observations_equals_joint_gaussian_formula(senders: int) -> None:
    """Three organizations send as many values as there are points. Ten send more."""
    belief, rng = a_belief(4), np.random.default_rng(4)
    truth = a_truth(belief, rng)
    seen = [
        an_observation(belief, truth, rng, noise=noise) for noise in np.geomspace(0.01, 3, senders)
    ]
    after = update(belief, seen, scales=(1.0,)).posterior
    matrix = np.concatenate([each.matrix for each in seen])
    noise = np.concatenate([np.diag(each.noise) for each in seen])
    crossed = belief.covariance @ matrix.T
    gain = crossed @ np.linalg.inv(matrix @ crossed + np.diag(noise))
    values = np.concatenate([each.values for each in seen])
    np.testing.assert_allclose(after.mean, belief.mean + gain @ values, atol=1e-8)
    np.testing.assert_allclose(after.covariance, belief.covariance - gain @ crossed.T, atol=1e-8)


def test_update_with_uninformative_observations_keeps_the_posterior() -> None:
    silent = Observation(np.zeros((4, POINTS)), np.zeros(4), np.eye(4))
    after = update(a_belief(), [silent] * 9).posterior
    np.testing.assert_allclose(after.mean, a_belief().mean)
    np.testing.assert_allclose(after.covariance, a_belief().covariance)


def test_posterior_intervals_have_stated_coverage() -> None:
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        belief = a_belief(seed)
        truth = a_truth(belief, rng)
        seen = [an_observation(belief, truth, rng) for _ in range(3)]
        after = update(belief, seen, scales=(1.0,)).posterior
        covered.append(np.abs(after.mean - truth) < 1.645 * np.sqrt(after.variances()))
    assert 0.87 < np.mean(covered) < 0.93


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0])
def test_likeliest_scale_recovers_the_true_prior_scale(scale: float) -> None:
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        belief = a_belief(seed)
        truth = a_truth(belief, rng, scale)
        seen = [an_observation(belief, truth, rng, noise=0.1, values=8) for _ in range(2)]
        found.append(likeliest_scale(belief, seen))
    assert abs(np.log(np.median(found) / scale)) < 0.8
    assert set(found) <= set(SCALES)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1.0, 1e3, 1e9, 1e15]),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_dishonest_participant_moves_posterior_mean_within_influence_bound(
    seed: int, size: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    belief = a_belief(seed)
    truth = a_truth(belief, rng)
    honest = [an_observation(belief, truth, rng) for _ in range(3)]
    mine = honest[1]
    lie = Observation(mine.matrix, size * rng.standard_normal(len(mine.values)), mine.noise)
    before = update(belief, honest, scales=(scale,)).posterior.mean
    after = update(belief, [honest[0], lie, honest[2]], scales=(scale,)).posterior.mean
    bound = influence_bounds(belief, honest, 1, scale=scale)
    assert np.all(np.abs(after - before) <= bound + 1e-12)


def test_influence_bound_is_nearly_attained() -> None:
    """Two opposite lies reach more than two thirds of the bound at some point."""
    belief, rng = a_belief(4), np.random.default_rng(4)
    honest = [an_observation(belief, a_truth(belief, rng), rng) for _ in range(3)]
    bound = influence_bounds(belief, honest, 0, scale=1.0)
    closest = 0.0
    for _ in range(200):
        push = 1e9 * rng.standard_normal(len(honest[0].values))
        means = [
            update(
                belief,
                [Observation(honest[0].matrix, way * push, honest[0].noise), *honest[1:]],
                scales=(1.0,),
            ).posterior.mean
            for way in (1.0, -1.0)
        ]
        closest = max(closest, float(np.max(np.abs(means[0] - means[1]) / bound)))
    assert 2 / 3 < closest <= 1 + 1e-9


def test_influence_bound_falls_with_number_of_others() -> None:
    belief, rng = a_belief(5), np.random.default_rng(5)
    honest = [an_observation(belief, a_truth(belief, rng), rng, values=POINTS) for _ in range(16)]
    few, many = (
        float(influence_bounds(belief, honest[:count], 0, scale=1.0).mean()) for count in (2, 16)
    )
    assert many < few / 2


def test_dishonest_observation_cannot_exceed_bound_by_changing_the_scale() -> None:
    """At any final scale, the mean moves no further than all organizations together can push it."""
    belief, rng = a_belief(6), np.random.default_rng(6)
    honest = [an_observation(belief, a_truth(belief, rng), rng) for _ in range(2)]
    lie = Observation(honest[0].matrix, np.full(4, 1e12), honest[0].noise)
    after = update(belief, [lie, honest[1]])
    seen = [lie, honest[1]]
    reach = sum(influence_bounds(belief, seen, each, scale=after.scale) / 2 for each in range(2))
    assert np.all(np.abs(after.posterior.mean - belief.mean) <= reach + 1e-12)
    assert after.scale == max(SCALES)


def test_max_norm_rarely_shortens_honest_observations() -> None:
    rng = np.random.default_rng(7)
    lengths = np.linalg.norm(rng.standard_normal((20_000, 16)), axis=1)
    assert np.mean(lengths > max_norm(16)) < 3e-4


def test_invalid_posterior_or_observation_is_refused() -> None:
    with pytest.raises(InvalidPosteriorError, match="covariance"):
        GaussianPosterior(np.zeros(2), np.eye(3))
    with pytest.raises(InvalidPosteriorError, match="not finite"):
        GaussianPosterior(np.array([np.nan]), np.eye(1))
    with pytest.raises(InvalidPosteriorError, match="negative"):
        GaussianPosterior(np.zeros(1), -np.eye(1))
    with pytest.raises(InvalidPosteriorError, match="shapes"):
        Observation(np.zeros((2, 3)), np.zeros(2), np.eye(3))
    with pytest.raises(InvalidPosteriorError, match="not finite"):
        Observation(np.zeros((1, 3)), np.array([np.inf]), np.eye(1))
    with pytest.raises(InvalidPosteriorError, match="3 points"):
        update(a_belief(), [Observation(np.zeros((1, 3)), np.zeros(1), np.eye(1))])
