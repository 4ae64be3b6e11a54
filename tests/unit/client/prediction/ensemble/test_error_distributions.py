"""Error distributions: quantiles match probabilities, new workloads have the stated coverage."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_client.prediction.prediction import (
    SIGNED_FROM,
    USUAL_HALF_WIDTH,
    Distribution,
    ErrorDistribution,
    Floats,
    InvalidPredictionError,
    Prediction,
    StudentT,
    widest,
)

Draw = Callable[[np.random.Generator, int], Floats]


def normal(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_normal(count)


def heavy(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_t(3, count)


def with_slow_runs(rng: np.random.Generator, count: int) -> Floats:
    return 0.5 * rng.standard_normal(count) + 4 * (rng.random(count) < 0.1)


def skewed(rng: np.random.Generator, count: int) -> Floats:
    return rng.exponential(size=count) - math.log(2)


def spread_of(errors: Floats) -> ErrorDistribution:
    return ErrorDistribution.from_errors(np.asarray(errors, np.float64), np.arange(len(errors)))


SPREADS = st.lists(st.floats(-5, 5), max_size=60).map(lambda each: spread_of(np.array(each)))
STUDENTS = st.builds(StudentT, st.floats(0.01, 3), st.floats(0.5, 50))


@pytest.mark.slow
@settings(deadline=None)
@given(
    base=st.one_of(SPREADS, STUDENTS),
    factor=st.floats(0.5, 4),
    added=st.one_of(st.just(0.0), st.floats(0.01, 3)),
    bound=st.one_of(st.none(), st.floats(0.01, 3)),
    ended=st.integers(0, 20),
)
def test_distribution_quantile_and_cdf_are_monotone_and_inverse_up_to_a_step(
    base: Distribution, factor: float, added: float, bound: float | None, ended: int
) -> None:
    found = base.scaled(factor, added=added)
    if bound is not None:
        prediction = Prediction(0.0, found).with_censored_runs(np.array([bound]), np.zeros(ended))
        found = prediction.distribution
    shares = np.linspace(0.02, 0.98, 49).tolist()
    values = [found.quantile(each) for each in shares]
    chances = [found.cdf(each) for each in values]
    assert values == sorted(values)
    assert chances == sorted(chances)
    for share, value in zip(shares, values, strict=True):
        assert found.cdf(value + 1e-6) >= share - 1e-6
        assert found.cdf(value - 1e-6) <= share + 1e-6


@settings(deadline=None)
@given(base=st.one_of(SPREADS, STUDENTS))
def test_distribution_median_is_zero_and_quantiles_lie_on_either_side(base: Distribution) -> None:
    assert base.quantile(0.5) == pytest.approx(0.0, abs=1e-9)
    assert base.quantile(0.3) <= 0 <= base.quantile(0.7)


def test_error_distribution_quantiles_are_finite_sample_ranks() -> None:
    signed = spread_of(np.arange(1.0, 80.0) - 40)  # -39 to 39: ranks 4 and 76 of 80
    assert (signed.quantile(0.05), signed.quantile(0.95)) == (-36.0, 36.0)
    sizes = spread_of(np.arange(1.0, 10.0))  # nine values: the largest, on both sides
    assert (sizes.quantile(0.05), sizes.quantile(0.95)) == (-9.0, 9.0)
    skew = spread_of(np.arange(1.0, 80.0))  # all above the median
    assert (skew.quantile(0.05), skew.quantile(0.5), skew.quantile(0.95)) == (0.0, 0.0, 76.0)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("draw", [normal, heavy, with_slow_runs, skewed])
@pytest.mark.parametrize("count", [9, 15, 19, 30, 59])
def test_error_distribution_interval_covers_new_workloads_at_stated_level(
    draw: Draw, count: int
) -> None:
    """Ranks may raise coverage by 2 of n + 1 for signed errors, by 1 for absolute ones."""
    rng = np.random.default_rng(count)
    covered = []
    for _ in range(3000):
        errors = draw(rng, count + 1)
        spread = spread_of(errors[:-1])
        covered.append(spread.quantile(0.05) <= errors[-1] <= spread.quantile(0.95))
    most = 0.9 + (2 if count >= SIGNED_FROM else 1) / (count + 1)
    clamped = 0.03 if draw is skewed else 0.0  # an end at the median covers more than one rank
    assert 0.9 - 0.017 < np.mean(covered) < most + 0.017 + clamped


@pytest.mark.statistical
@pytest.mark.parametrize("off", [2 / 3, 3 / 2])
def test_error_distribution_scaled_by_two_thirds_or_three_halves_loses_coverage(off: float) -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(3000):
        errors = rng.standard_normal(60)
        spread = spread_of(errors[:-1]).scaled(off)
        covered.append(spread.quantile(0.05) <= errors[-1] <= spread.quantile(0.95))
    assert not 0.9 - 0.017 < np.mean(covered) < 0.9 + 2 / 60 + 0.017


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [normal, heavy, with_slow_runs])
@pytest.mark.parametrize("count", [1, 3, 5, 8])
def test_error_distribution_of_few_workloads_keeps_coverage(draw: Draw, count: int) -> None:
    """True errors are between a third and one and a half times the claimed size."""
    rng = np.random.default_rng(count)
    covered = []
    for _ in range(2000):
        errors = rng.uniform(0.2, 0.9) * draw(rng, count + 1)
        spread = spread_of(errors[:-1])
        covered.append(spread.quantile(0.05) <= errors[-1] <= spread.quantile(0.95))
    assert 0.86 < np.mean(covered) < 0.99


def test_error_distribution_width_starts_at_default_and_shrinks_with_evidence() -> None:
    assert spread_of(np.zeros(0)).half_width(0.9) == pytest.approx(USUAL_HALF_WIDTH)
    widths = [spread_of(np.full(n, 0.1)).half_width(0.9) for n in range(10)]
    assert widths == sorted(widths, reverse=True)
    assert widths[5] < USUAL_HALF_WIDTH / 1.5
    assert widths[9] == pytest.approx(0.1)
    assert spread_of(np.array([0.1, 5.0])).half_width(0.9) >= 5.0


def test_error_distribution_weights_each_workload_once_whatever_its_run_count() -> None:
    errors = np.concatenate([np.full(1000, 0.01), np.linspace(1, 2, 19)])
    groups = np.concatenate([np.zeros(1000, np.int64), np.arange(1, 20)])
    assert ErrorDistribution.from_errors(errors, groups).quantile(0.95) > 1.8


def test_widest_returns_wider_distribution_in_any_order() -> None:
    narrow, wide = StudentT(0.1, 5.0), StudentT(0.5, 5.0)
    assert widest((narrow, wide), 0.9) is widest((wide, narrow), 0.9) is wide


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_half_width_with_invalid_confidence_level_is_refused(level: float) -> None:
    for spread in (StudentT(1.0, 3.0), spread_of(np.ones(3))):
        with pytest.raises(InvalidPredictionError, match="level"):
            spread.half_width(level)


@pytest.mark.parametrize(("scale", "degrees"), [(0.0, 3.0), (math.inf, 3.0), (1.0, math.nan)])
def test_student_t_with_invalid_scale_or_degrees_is_refused(scale: float, degrees: float) -> None:
    with pytest.raises(InvalidPredictionError, match="positive finite"):
        StudentT(scale, degrees)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_scaled_distribution_adds_independent_error_in_quadrature(factor: float) -> None:
    base = StudentT.within(3.0)
    wider = base.scaled(factor, added=4.0)
    assert wider.half_width(0.9) == pytest.approx(math.hypot(3.0 * factor, 4.0))
    assert base.scaled(factor).half_width(0.9) == pytest.approx(3.0 * factor)
    errorless = spread_of(np.zeros(40))
    assert errorless.half_width(0.9) == 0
    assert errorless.scaled(factor, added=4.0).half_width(0.9) == pytest.approx(4.0)


def test_scaled_distribution_with_independent_error_widens_side_without_errors() -> None:
    above = spread_of(np.linspace(0.1, 0.4, 80))
    assert above.quantile(0.05) == 0.0
    assert above.quantile(0.95) > 0.3
    wider = above.scaled(added=2.0)
    assert wider.quantile(0.05) == pytest.approx(-2.0)
    assert wider.quantile(0.95) == pytest.approx(math.hypot(2.0, above.quantile(0.95)))
