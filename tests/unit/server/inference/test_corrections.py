from dataclasses import astuple, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_server.inference.corrections import (
    DEFAULT_KERNEL,
    SCALES,
    Kernel,
    NoisySums,
    ReceivedReport,
    cell_means,
    correct_sums,
    estimate_counts,
    pool_reports,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import ALL_CELLS, CELLS
from fedperf_shared.releases.release import (
    DECLARABLE,
    MAX_RESIDUAL_CLIP,
    InvalidReleaseError,
    ReportParameters,
)
from tests.fakes.corrections import correct
from tests.fakes.influence_bounds import influence_bound
from tests.unit.server.controllers.simulated_reports import CLIP, received, simulated_report

USED = 20


def draw_truth(rng: np.random.Generator) -> NDArray[np.float64]:
    root = np.linalg.cholesky(DEFAULT_KERNEL.matrix())
    return np.asarray(root @ rng.standard_normal(CELLS))


def test_correction_without_reports_is_the_prior() -> None:
    correction = correct([], reference_version=4)
    np.testing.assert_array_equal(correction.mean, 0.0)
    np.testing.assert_allclose(correction.covariance, DEFAULT_KERNEL.matrix(), atol=1e-9)
    assert (correction.reference_version, correction.organizations) == (4, 0)


def test_correction_of_many_low_noise_reports_recovers_the_truth() -> None:
    rng = np.random.default_rng(1)
    truth = draw_truth(rng)
    reports = [
        simulated_report(rng, truth, organization=str(n), noise_multiplier=1e-3) for n in range(12)
    ]
    correction = correct(reports, reference_version=1)
    assert np.abs(correction.mean - truth)[:USED].max() < 0.2
    assert np.sqrt(np.mean((correction.mean - truth)[:USED] ** 2)) < 0.07


def test_correction_of_noise_dominated_reports_is_the_prior() -> None:
    rng = np.random.default_rng(2)
    truth = draw_truth(rng)
    reports = [
        simulated_report(rng, truth, organization=str(n), noise_multiplier=1e5) for n in range(3)
    ]
    correction = correct(reports, reference_version=1)
    assert np.abs(correction.mean).max() < 0.05
    shrunken = np.diag(correction.covariance) / (
        correction.scale * np.diag(DEFAULT_KERNEL.matrix())
    )
    assert shrunken.min() > 0.98


def test_correction_of_empty_cells_follows_their_platform() -> None:
    rng = np.random.default_rng(3)
    truth = np.zeros(CELLS)
    first = [n for n, cell in enumerate(ALL_CELLS) if cell.platform is ALL_CELLS[0].platform]
    truth[first] = 1.0
    reports = [simulated_report(rng, truth, organization=str(n), cells=12) for n in range(5)]
    correction = correct(reports, reference_version=1)
    empty_here = first[12:]
    elsewhere = [n for n in range(CELLS) if n not in first]
    assert correction.mean[empty_here].mean() > 0.6
    assert correction.mean[elsewhere].mean() < correction.mean[empty_here].mean() - 0.2


@pytest.mark.statistical
@pytest.mark.parametrize("noise_multiplier", [0.01, 1.4])
def test_correction_intervals_have_about_stated_coverage(noise_multiplier: float) -> None:
    covered = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        truth = draw_truth(rng)
        reports = [
            simulated_report(rng, truth, organization=str(n), noise_multiplier=noise_multiplier)
            for n in range(4)
        ]
        correction = correct(reports, reference_version=1)
        error = np.abs(correction.mean - truth) / np.sqrt(np.diag(correction.covariance))
        covered.append(np.mean(error < 1.645))
    assert 0.8 < np.mean(covered) < 0.97


@pytest.mark.slow
def test_correction_error_grows_with_noise() -> None:
    errors = []
    for noise_multiplier in (0.01, 4.0, 40.0):
        squares = []
        for seed in range(6):
            rng = np.random.default_rng(seed)
            truth = draw_truth(rng)
            reports = [
                simulated_report(rng, truth, organization=str(n), noise_multiplier=noise_multiplier)
                for n in range(4)
            ]
            correction = correct(reports, reference_version=1)
            squares.append(np.mean((correction.mean - truth)[:USED] ** 2))
        errors.append(float(np.mean(squares)))
    assert errors[0] < errors[1] < errors[2]


@pytest.mark.slow
def test_dishonest_organization_moves_correction_within_influence_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedperf_server.inference.corrections.SCALES", (1.0,))
    others = 6
    rng = np.random.default_rng(5)
    truth = np.clip(draw_truth(rng), -CLIP, CLIP)
    honest = [
        simulated_report(
            rng, truth, organization=str(n), cells=CELLS, workloads=9600, noise_multiplier=0.01
        )
        for n in range(others)
    ]
    without = correct(honest, reference_version=1).mean
    bound = influence_bound(CLIP, others=others - 1)  # honest reports have nearly full weight
    for lie in lies(rng):
        moved = correct([*honest, lie], reference_version=1).mean - without
        assert np.sqrt(np.mean(moved**2)) <= bound
        assert np.abs(moved).max() <= 2 * CLIP


def lies(rng: np.random.Generator) -> list[ReceivedReport]:
    ones, signs = np.ones(CELLS), rng.choice([-1.0, 1.0], CELLS)
    contents = [
        np.concatenate([size * ones, factor * size * direction])
        for size in (1.0, 1e4, 1e12)
        for factor in (1.0, 1e3)
        for direction in (ones, -ones, signs)
    ]
    contents.append(np.concatenate([-1e6 * ones, 1e12 * ones]))
    return [received(each, "liar", noise_multiplier=0.01) for each in contents]


def test_influence_bound_is_twice_the_clip_alone_and_falls_with_others() -> None:
    assert influence_bound(1.0, others=0) == 2.0
    assert influence_bound(1.0, others=10) == pytest.approx(0.26)


def test_correction_caps_undeclarable_clip_at_the_maximum() -> None:
    rng = np.random.default_rng(9)
    honest = [simulated_report(rng, np.zeros(CELLS), organization=str(n)) for n in range(9)]
    lie = received(np.full(2 * CELLS, 1e4), "liar", noise_multiplier=0.01)
    lies = [
        replace(lie, parameters=replace(lie.parameters, residual_clip=clip))
        for clip in (MAX_RESIDUAL_CLIP, 1e6)
    ]
    widest, made_up = (correct([*honest, each], reference_version=1).mean for each in lies)
    np.testing.assert_array_equal(made_up, widest)
    assert np.abs(widest).max() <= MAX_RESIDUAL_CLIP


@pytest.mark.parametrize("noise", astuple(DECLARABLE["noise_multiplier"]))
@pytest.mark.parametrize("clip", astuple(DECLARABLE["residual_clip"]))
def test_correction_is_finite_for_all_declarable_parameters(noise: float, clip: float) -> None:
    rng = np.random.default_rng(10)
    honest = simulated_report(rng, np.zeros(CELLS))
    other = received(np.full(2 * CELLS, 1e6), "other", noise_multiplier=noise)
    other = replace(other, parameters=ReportParameters(noise, clip))
    correction = correct([honest, other], reference_version=1)
    assert np.isfinite(correction.mean).all()
    assert np.linalg.eigvalsh(correction.covariance).min() > -1e-9


def test_correction_bounds_weight_of_an_organization_with_any_claimed_counts() -> None:
    sums = NoisySums(np.full(CELLS, 1e9), np.full(CELLS, 1e12), 0.01, 0.01, CLIP)
    means, weights = cell_means(sums, np.ones(CELLS))
    assert weights.max() <= 1 / DEFAULT_KERNEL.organization_sd**2
    assert means.max() <= CLIP + 2 * DEFAULT_KERNEL.organization_sd * 1.01
    rng = np.random.default_rng(6)
    once = [simulated_report(rng, np.ones(CELLS), slot=0)]
    again = [*once, simulated_report(rng, np.ones(CELLS), slot=1)]
    fewer, more = pool_reports(once, reference_version=1), pool_reports(again, reference_version=1)
    assert more.sum_sd == pytest.approx(fewer.sum_sd / np.sqrt(2))
    assert more.counts.sum() == pytest.approx(fewer.counts.sum(), rel=0.3)


def test_pooled_reports_are_in_workloads_and_log_seconds() -> None:
    rng = np.random.default_rng(8)
    truth = np.full(CELLS, -0.7)
    report = simulated_report(rng, truth, workloads=400, noise_multiplier=0.02)
    sums = pool_reports([report], reference_version=1)
    assert sums.counts.sum() == pytest.approx(400, abs=2.0)
    assert sums.sums.sum() / 400 == pytest.approx(-0.7, abs=0.1)
    assert sums.count_sd == pytest.approx(0.02 * np.sqrt(2))
    assert sums.sum_sd == pytest.approx(CLIP * sums.count_sd)


def test_estimate_counts_is_non_negative_and_shrinks_noisy_counts() -> None:
    noisy = np.array([-20.0, 0.0, 10.0, 300.0, 1e9])
    mean, variance = estimate_counts(noisy, noise_sd=5.0)
    assert (mean >= 0).all()
    assert (variance >= 0).all()
    assert mean[0] < 0.5
    assert mean[1] < 1.0
    assert mean[2] < 10.0
    assert mean[3] == pytest.approx(300.0, rel=0.05)
    assert mean[4] <= 10_000
    exact, spread = estimate_counts(np.array([0.0, 7.0]), noise_sd=1e-3)
    np.testing.assert_allclose(exact, [0.0, 7.0], rtol=0.02, atol=0.01)
    assert spread.max() < 0.1


def test_cell_means_add_count_uncertainty_to_their_variance() -> None:
    """A noiseless sum over 5 +- 5 workloads is less informative than one over exactly 5."""
    drowned = NoisySums(np.full(CELLS, 5.0), np.zeros(CELLS), 5.0, 0.0, CLIP)
    count, uncertainty = estimate_counts(drowned.counts, drowned.count_sd)
    _, weights = cell_means(drowned, np.full(CELLS, 0.7))
    spread = DEFAULT_KERNEL.organization_sd**2 + DEFAULT_KERNEL.execution_sd**2 / count
    np.testing.assert_allclose(1 / weights - spread, 0.7 * uncertainty / count**2)
    _, certain = cell_means(replace(drowned, count_sd=1e-3), np.full(CELLS, 0.7))
    assert certain.min() > 5 * weights.max()


def test_correction_covariance_is_symmetric_positive_and_below_the_prior() -> None:
    rng = np.random.default_rng(7)
    correction = correct([simulated_report(rng, draw_truth(rng))], reference_version=1)
    np.testing.assert_array_equal(correction.covariance, correction.covariance.T)
    prior = correction.scale * DEFAULT_KERNEL.matrix()
    assert np.linalg.eigvalsh(correction.covariance)[0] > 0
    assert np.linalg.eigvalsh(prior - correction.covariance)[0] > -1e-8
    assert correction.scale in SCALES


def test_correction_equals_closed_form_gaussian_posterior() -> None:
    """The textbook formula is the reference: precisions add, and cell means are weighted."""
    rng = np.random.default_rng(11)
    sums = NoisySums(rng.uniform(0, 50, CELLS), rng.normal(0, 9, CELLS), 1.0, 2.0, CLIP)
    correction = correct_sums({"one": sums}, reference_version=1)
    prior = DEFAULT_KERNEL.matrix()
    means, weights = cell_means(sums, np.diag(prior))
    covariance = np.linalg.inv(np.linalg.inv(correction.scale * prior) + np.diag(weights))
    np.testing.assert_allclose(correction.covariance, covariance, atol=1e-9)
    np.testing.assert_allclose(correction.mean, covariance @ (weights * means), atol=1e-9)


def test_correction_with_report_of_another_reference_version_is_refused() -> None:
    report = received(np.zeros(2 * CELLS), "one", noise_multiplier=1.0, reference_version=2)
    with pytest.raises(InvalidReleaseError, match="reference version"):
        correct([report], reference_version=1)


def test_kernel_with_zero_or_nan_variance_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="organization_sd"):
        Kernel(organization_sd=0.0)
    with pytest.raises(ConfigurationError, match="level"):
        Kernel(level=float("nan"))
