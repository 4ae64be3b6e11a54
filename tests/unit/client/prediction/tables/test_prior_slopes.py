"""Prior slopes: used from the first configuration on, replaced by evidence."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_campaigns.tables.layout import Table, TableLayout
from fedperf_campaigns.tables.prior_slopes import (
    LAWS,
    LOG_SLOPES,
    NO_REPEATS,
    ColumnRole,
    InvalidSlopesError,
    PriorSlopes,
    ScalingColumns,
    Scatter,
    SlopePrior,
    prior_slopes,
)
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.prediction import Floats

LINE = PriorSlopes((SlopePrior(-0.7, 0.35, 1.0), SlopePrior(0.9, 0.3, 1.5)))
WITH_LAWS = replace(LINE, scaling=ScalingColumns(0, 1))


def at(machines: list[float], rows: list[float]) -> EncodedQueries:
    features = np.log(np.column_stack([machines, rows]))
    return EncodedQueries(features, np.zeros(len(features), np.int64), {})


def world(seed: int, slopes: tuple[float, float], count: int = 40) -> tuple[EncodedQueries, Floats]:
    rng = np.random.default_rng(seed)
    samples = at(list(rng.integers(1, 33, count) * 1.0), list(rng.uniform(1e5, 1e7, count)))
    return samples, samples.features @ slopes + 2.0 + 0.02 * rng.standard_normal(count)


def test_prior_slopes_fitted_on_one_configuration_predict_with_prior_means() -> None:
    fitted = LINE.fit(at([4], [1e6]), np.log([100.0]))
    found = fitted(at([4, 8, 4], [1e6, 1e6, 4e6]))
    np.testing.assert_allclose(found, np.log([100, 100 * 2**-0.7, 100 * 4**0.9]), rtol=1e-6)


@pytest.mark.parametrize("learner", [LINE, WITH_LAWS], ids=["line", "laws"])
def test_prior_slopes_variance_grows_with_distance_from_measured_configuration(
    learner: PriorSlopes,
) -> None:
    fitted = learner.fit(at([4], [1e6]), np.log([100.0]))
    variance = fitted.posterior(at([4, 8, 16, 64], [1e6] * 4)).variance
    assert (np.diff(variance) > 0).all()
    assert np.sqrt(variance[1]) == pytest.approx(0.35 * np.log(2), rel=0.6)


def test_prior_slopes_variance_is_large_where_line_and_laws_disagree() -> None:
    priors = (SlopePrior(3.0, 0.0, 1.0), SlopePrior(0.9, 0.0, 1.5))
    fitted = replace(WITH_LAWS, priors=priors).fit(at([4], [1e6]), np.zeros(1))
    assert fitted.posterior(at([32], [1e6])).variance[0] > 3


@pytest.mark.parametrize("slopes", [(-0.9, 1.0), (-0.2, 0.6), (-1.2, 1.3)])
def test_prior_slopes_fitted_on_many_configurations_recover_true_slopes(
    slopes: tuple[float, float],
) -> None:
    for learner in (LINE, WITH_LAWS):
        fitted = learner.fit(*world(1, slopes))
        found = fitted(at([2, 20, 8, 8], [1e6, 1e6, 2e5, 5e6]))
        per_log = [(found[1] - found[0]) / np.log(10), (found[3] - found[2]) / np.log(25)]
        np.testing.assert_allclose(per_log, slopes, atol=0.05)


def test_prior_slopes_with_laws_extrapolate_ernest_shaped_job_better() -> None:
    def seconds(machines: Floats) -> Floats:
        return np.asarray(20 + 400 / machines + 1.5 * machines)

    known, asked = np.array([1.0, 2, 4, 8]), np.array([16.0, 24])
    samples, beyond = at(list(known), [1e6] * 4), at(list(asked), [1e6] * 2)
    errors = [
        np.abs(learner.fit(samples, np.log(seconds(known)))(beyond) - np.log(seconds(asked))).max()
        for learner in (LINE, WITH_LAWS)
    ]
    assert errors[1] < 0.75 * errors[0]


@pytest.mark.parametrize("count", [1, 2, 6])
def test_prior_slopes_are_invariant_to_units_of_a_column(count: int) -> None:
    samples, log_seconds = world(3, (-0.6, 0.8), count)
    asked, _ = world(4, (-0.6, 0.8), 5)
    thousands = np.array([0.0, np.log(1000.0)])
    one = WITH_LAWS.fit(samples, log_seconds).posterior(asked)
    other = WITH_LAWS.fit(
        replace(samples, features=samples.features + thousands), log_seconds
    ).posterior(replace(asked, features=asked.features + thousands))
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-6)
    np.testing.assert_allclose(other.variance, one.variance, atol=1e-6)


def test_prior_slopes_estimate_run_to_run_variance_from_repeats() -> None:
    rng = np.random.default_rng(5)
    known = at([4.0] * 30, [1e6] * 30)
    for sd in (0.02, 0.15):
        noise = WITH_LAWS.fit(known, 3 + sd * rng.standard_normal(30)).posterior(
            known.take(np.arange(1))
        )
        assert np.sqrt(noise.noise) == pytest.approx(sd, rel=0.35)


def test_prior_slopes_without_repeats_use_scatter_of_other_jobs() -> None:
    one = at([4], [1e6])
    found = [
        replace(WITH_LAWS, elsewhere=each).fit(one, np.zeros(1)).posterior(one).noise
        for each in (Scatter(20 * 0.015**2, 20), NO_REPEATS, Scatter(20 * 0.2**2, 20))
    ]
    assert found == sorted(found)
    assert found[2] > 10 * found[0]


def test_prior_slopes_with_non_finite_or_invalid_input_are_refused() -> None:
    good = at([4, 8], [1e6, 1e6])
    bad = replace(good, features=np.array([[1.0, np.nan], [1.0, 2.0]]))
    with pytest.raises(InvalidSlopesError, match="finite"):
        LINE.fit(bad, np.zeros(2))
    with pytest.raises(InvalidSlopesError, match="finite"):
        LINE.fit(good, np.array([0.0, np.inf]))
    with pytest.raises(InvalidSlopesError, match="finite"):
        LINE.fit(good, np.zeros(2))(bad)
    with pytest.raises(InvalidSlopesError, match="2 priors for 3 features"):
        LINE.fit(replace(good, features=np.zeros((2, 3))), np.zeros(2))
    for wrong in ((np.nan, 1.0, 1.0), (0.0, -1.0, 1.0), (0.0, 1.0, 0.0), (0.0, np.nan, 1.0)):
        with pytest.raises(InvalidSlopesError):
            SlopePrior(*wrong)
    for squares, freedom in ((np.nan, 1.0), (-1.0, 1.0), (1.0, np.inf)):
        with pytest.raises(InvalidSlopesError):
            Scatter(squares, freedom)


def test_scaling_laws_are_near_zero_at_the_middle_and_follow_work_shares() -> None:
    scaling = ScalingColumns(0, 1)
    middle = np.log([8.0, 1e6])
    shapes = scaling.shapes(np.log([[8.0, 1e6], [16.0, 1e6], [8.0, 2e6]]), middle)
    assert shapes.shape == (LAWS, 3)
    assert np.abs(shapes[:, 0]).max() < 0.4  # crosstalk counts for four times the machines
    assert -0.7 < (shapes[:, 1] - shapes[:, 0]).mean() < -0.35
    assert 0.4 < (shapes[:, 2] - shapes[:, 0]).mean() < 0.7


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("workers", ColumnRole.PARALLEL),
        ("instance_count", ColumnRole.PARALLEL),
        ("clusterSize", ColumnRole.PARALLEL),
        ("cores", ColumnRole.PARALLEL),
        ("rows", ColumnRole.SIZE),
        ("data_size_MB", ColumnRole.SIZE),
        ("inputBytes", ColumnRole.SIZE),
        ("memory_gb", ColumnRole.MEMORY),
        ("iterations", ColumnRole.PASSES),
        ("k", ColumnRole.OTHER),
        ("rowsum_threshold", ColumnRole.OTHER),
    ],
)
def test_prior_slopes_assign_column_role_by_name(name: str, role: ColumnRole) -> None:
    table = {"a": [1.0, 2.0], "b": [1.0, 2.0], name: [2.0, 4.0]}
    layout = TableLayout.of(table, scale="a", size="b")
    assert prior_slopes(layout).priors[-1] == LOG_SLOPES[role]


def test_prior_slopes_assign_scale_and_size_roles_whatever_their_names() -> None:
    table: Table = {
        "memory": [1.0, 2.0],
        "machines": [3.0, 5.0],
        "word": ["x", "y"],
        "z": [0.0, 4.0],
    }
    layout = TableLayout.of(table, scale="memory", size="machines")
    scale, _, size, *words, number = prior_slopes(layout).priors
    assert (scale, size) == (LOG_SLOPES[ColumnRole.PARALLEL], LOG_SLOPES[ColumnRole.SIZE])
    assert [each.mean for each in (*words, number)] == [0.0, 0.0, 0.0]
