"""Detection of level changes: changes are found, and constant streams raise no alarm."""

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from fedperf_client.prediction.ensemble import changes
from fedperf_client.prediction.ensemble.changes import (
    GUARD,
    MAX_RESIDUAL,
    USUAL_FROM,
    LevelChange,
    level_changes,
    residual_deviations,
)
from tests.unit.client.prediction.changes.drift_observations import observed


def found(executions: int = 300, **of: object) -> list[LevelChange]:
    stream = observed(executions, **of)  # type: ignore[arg-type]
    return level_changes(stream.residuals, stream.jobs)


@pytest.mark.parametrize("shift", [0.4, -0.4])
def test_level_changes_finds_a_shift_soon_and_near_its_position(shift: float) -> None:
    [change] = found(shift=shift)
    assert abs(change.start - 150) <= 5
    assert 150 < change.alarm <= 230


def test_level_changes_without_shift_is_empty() -> None:
    assert [found(seed=seed) for seed in range(10)] == [[]] * 10


def test_level_changes_finds_each_of_several_shifts() -> None:
    stream = observed(600, shift=0.5, at=200)
    residuals = stream.residuals - 0.7 * (np.arange(600) >= 400)
    places = [each.start for each in level_changes(residuals, stream.jobs)]
    np.testing.assert_allclose(places, [200, 400], atol=6)


def test_level_changes_do_not_change_when_the_stream_continues() -> None:
    stream = observed(400, shift=0.5, at=100)
    [first] = level_changes(stream.residuals[:200], stream.jobs[:200])
    later = level_changes(stream.residuals, stream.jobs)
    assert later[0] == first


def test_level_changes_raise_no_alarm_within_the_guard() -> None:
    residuals = np.r_[np.zeros(GUARD // 2), np.full(200, 2.0)]
    [first] = level_changes(residuals, np.zeros(len(residuals), np.int64))
    assert first.alarm >= GUARD
    assert level_changes(residuals[:GUARD], np.zeros(GUARD, np.int64)) == []


def test_level_change_alarms_are_at_least_a_guard_apart() -> None:
    steps = np.repeat([0.0, 2.0, 0.0, 2.0, 0.0, 2.0], 35)
    noticed = [each.alarm for each in level_changes(steps, np.zeros(len(steps), np.int64))]
    assert len(noticed) >= 2
    assert np.diff(noticed).min() >= GUARD


def eager(quiet: int) -> Callable[[float], bool]:
    """Return a detector that raises an alarm whenever the guard allows it."""
    seen = count(1)
    return lambda _: next(seen) > quiet


def test_guard_delays_alarms_of_any_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "Adwin", eager)
    noticed = [each.alarm for each in found(executions=200)]
    assert noticed[0] == GUARD
    assert set(np.diff(noticed).tolist()) == {GUARD}


def test_level_changes_ignore_a_change_in_job_frequencies() -> None:
    """In the second half, a job of about ten times the duration becomes the most frequent one."""
    rng = np.random.default_rng(0)
    jobs = np.r_[rng.choice(2, 200, p=[0.9, 0.1]), rng.choice(2, 200, p=[0.1, 0.9])]
    residuals = 2.3 * jobs + 0.1 * rng.standard_normal(400)
    assert level_changes(residuals, jobs) == []
    assert level_changes(residuals, np.zeros(400, np.int64)) != []


def test_residual_deviations_are_relative_to_first_executions_of_the_job() -> None:
    drifting = np.r_[np.zeros(USUAL_FROM), np.ones(50)]
    np.testing.assert_allclose(residual_deviations(drifting, np.zeros(55, np.int64))[-1], 1.0)
    two = np.array([0, 1, 0, 1, 0, 1])
    residuals = np.array([1.0, 9.0, 3.0, 9.5, 2.0, 9.0])
    np.testing.assert_allclose(residual_deviations(residuals, two), [0, 0, 2, 0.5, 0, -0.25])


def test_residual_deviations_of_single_run_jobs_are_relative_to_the_stream() -> None:
    residuals = np.array([1.0, 3.0, 2.0, 2.5])
    np.testing.assert_allclose(residual_deviations(residuals, np.arange(4)), [0, 2, 0, 0.5])
    once = observed(shift=0.5, jobs=1)
    [change] = level_changes(once.residuals, np.arange(300))
    assert abs(change.start - 150) <= 5


def test_level_changes_find_a_shift_despite_differences_between_jobs() -> None:
    [change] = found(shift=0.4, spread=3.0, seed=1)
    assert abs(change.start - 150) <= 5


def test_level_changes_ignore_one_outlier() -> None:
    stream = observed()
    stream.residuals[170] = 50.0
    assert level_changes(stream.residuals, stream.jobs) == []
    assert residual_deviations(stream.residuals, stream.jobs).max() == MAX_RESIDUAL


@pytest.mark.parametrize("count", [0, 1, 5, GUARD])
def test_level_changes_of_short_streams_are_empty(count: int) -> None:
    assert level_changes(np.arange(float(count)), np.zeros(count, np.int64)) == []
