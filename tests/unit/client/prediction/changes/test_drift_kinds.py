"""Two-sided tests of concept drift (same work, longer time) and covariate drift (other work)."""

import numpy as np
import pytest

from fedperf_client.prediction.encoding import Ints
from fedperf_client.prediction.ensemble.changes import (
    SIGNIFICANT_ERRORS,
    ChangeEstimate,
    inputs_changed,
    residual_shift,
)
from fedperf_client.prediction.prediction import Floats

COUNT = 120
AFTER = (np.arange(COUNT) >= COUNT // 2).astype(np.int64)


def noise(seed: int = 0, sd: float = 0.1) -> Floats:
    return sd * np.random.default_rng([1, seed]).standard_normal(COUNT)


def sizes(seed: int = 0) -> Floats:
    return np.random.default_rng([2, seed]).uniform(0, 5, COUNT)


def shift_of(residuals: Floats, *, jobs: Ints | None = None, inputs: Floats) -> ChangeEstimate:
    one = np.zeros(COUNT, np.int64) if jobs is None else jobs
    return residual_shift(residuals, one, inputs.reshape(COUNT, -1), AFTER)


@pytest.mark.parametrize("shift", [-0.4, 0.1, 0.4])
def test_residual_shift_estimates_the_shift_with_calibrated_error(shift: float) -> None:
    inside = []
    for seed in range(60):
        found = shift_of(noise(seed) + shift * AFTER, inputs=sizes(seed))
        assert found.is_significant
        inside.append(abs(found.log_ratio - shift) <= 2 * found.half_width / SIGNIFICANT_ERRORS)
    assert 0.85 <= np.mean(inside) <= 1.0
    assert found.half_width / SIGNIFICANT_ERRORS == pytest.approx(0.1 * 2 / np.sqrt(COUNT), rel=0.3)


def test_residual_shift_without_shift_is_rarely_significant() -> None:
    found = [shift_of(noise(seed), inputs=sizes(seed)).is_significant for seed in range(200)]
    assert np.mean(found) <= 0.02


def test_residual_shift_excludes_effects_of_larger_inputs() -> None:
    larger: Floats = sizes() + 2.0 * AFTER
    residuals = 0.3 * larger + noise()
    assert shift_of(residuals, inputs=np.zeros(COUNT)).is_significant
    assert not shift_of(residuals, inputs=larger).is_significant
    both = shift_of(residuals + 0.4 * AFTER, inputs=larger)
    assert both.log_ratio == pytest.approx(0.4, abs=0.1)


def test_residual_shift_with_disjoint_inputs_is_unknown() -> None:
    found = shift_of(noise() + 0.4 * AFTER, inputs=AFTER.astype(float))
    assert not found.is_known
    assert not found.is_significant


def test_residual_shift_compares_each_job_with_itself() -> None:
    jobs = np.arange(COUNT) % 10
    level = 3.0 * np.random.default_rng(0).standard_normal(10)[jobs]
    inputs = np.zeros(COUNT)
    alone = shift_of(level + noise() + 0.1 * AFTER, inputs=inputs)
    assert not alone.is_significant
    found = shift_of(level + noise() + 0.1 * AFTER, jobs=jobs, inputs=inputs)
    assert found.is_significant
    assert found.log_ratio == pytest.approx(0.1, abs=0.05)


def test_residual_shift_pools_jobs_that_ran_once() -> None:
    found = shift_of(noise() + 0.4 * AFTER, jobs=np.arange(COUNT), inputs=sizes())
    assert found.log_ratio == pytest.approx(0.4, abs=0.1)


def test_residual_shift_is_robust_to_one_outlier() -> None:
    residuals = noise()
    residuals[-1] = 1000.0
    assert abs(shift_of(residuals, inputs=sizes()).log_ratio) < 0.1


def test_inputs_changed_rarely_alarms_without_change_and_detects_one() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((100, 2, 200))
    same = rng.standard_normal((100, 2, 200))
    alarms = [inputs_changed(before[..., each], same[..., each]) for each in range(200)]
    assert np.mean(alarms) <= 0.03
    moved = same + np.array([0.0, 1.0])[None, :, None]
    assert inputs_changed(before[..., 0], moved[..., 0])
