"""A change of level is found where it is, and nothing is found where there is none."""

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
from tests.unit.client.prediction.changes.observing import observed


def found(executions: int = 300, **of: object) -> list[LevelChange]:
    stream = observed(executions, **of)  # type: ignore[arg-type]
    return level_changes(stream.residuals, stream.jobs)


@pytest.mark.parametrize("shift", [0.4, -0.4])
def test_a_shift_is_found_soon_and_placed_where_it_was(shift: float) -> None:
    [change] = found(shift=shift)
    assert abs(change.start - 150) <= 5
    assert 150 < change.alarm <= 230


def test_without_a_shift_nothing_is_found() -> None:
    assert [found(seed=seed) for seed in range(10)] == [[]] * 10


def test_every_shift_of_several_is_found() -> None:
    stream = observed(600, shift=0.5, at=200)
    residuals = stream.residuals - 0.7 * (np.arange(600) >= 400)
    places = [each.start for each in level_changes(residuals, stream.jobs)]
    np.testing.assert_allclose(places, [200, 400], atol=6)


def test_what_is_found_stays_found_when_the_stream_goes_on() -> None:
    stream = observed(400, shift=0.5, at=100)
    [first] = level_changes(stream.residuals[:200], stream.jobs[:200])
    later = level_changes(stream.residuals, stream.jobs)
    assert later[0] == first


def test_nothing_is_said_within_the_guard_however_loud() -> None:
    residuals = np.r_[np.zeros(GUARD // 2), np.full(200, 2.0)]
    [first] = level_changes(residuals, np.zeros(len(residuals), np.int64))
    assert first.alarm >= GUARD
    assert level_changes(residuals[:GUARD], np.zeros(GUARD, np.int64)) == []


def test_after_an_alarm_the_guard_holds_again() -> None:
    steps = np.repeat([0.0, 2.0, 0.0, 2.0, 0.0, 2.0], 35)
    noticed = [each.alarm for each in level_changes(steps, np.zeros(len(steps), np.int64))]
    assert len(noticed) >= 2
    assert np.diff(noticed).min() >= GUARD


def eager(quiet: int) -> Callable[[float], bool]:
    """A detector that raises an alarm whenever it may."""
    seen = count(1)
    return lambda _: next(seen) > quiet


def test_no_detector_may_speak_within_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "Adwin", eager)
    noticed = [each.alarm for each in found(executions=200)]
    assert noticed[0] == GUARD
    assert set(np.diff(noticed).tolist()) == {GUARD}


def test_other_jobs_are_no_change() -> None:
    """From the middle on a job that takes ten times as long runs most often."""
    rng = np.random.default_rng(0)
    jobs = np.r_[rng.choice(2, 200, p=[0.9, 0.1]), rng.choice(2, 200, p=[0.1, 0.9])]
    residuals = 2.3 * jobs + 0.1 * rng.standard_normal(400)
    assert level_changes(residuals, jobs) == []
    assert level_changes(residuals, np.zeros(400, np.int64)) != []


def test_a_job_counts_from_its_own_first_executions() -> None:
    drifting = np.r_[np.zeros(USUAL_FROM), np.ones(50)]
    np.testing.assert_allclose(residual_deviations(drifting, np.zeros(55, np.int64))[-1], 1.0)
    two = np.array([0, 1, 0, 1, 0, 1])
    residuals = np.array([1.0, 9.0, 3.0, 9.5, 2.0, 9.0])
    np.testing.assert_allclose(residual_deviations(residuals, two), [0, 0, 2, 0.5, 0, -0.25])


def test_jobs_that_mostly_run_once_count_from_the_stream() -> None:
    residuals = np.array([1.0, 3.0, 2.0, 2.5])
    np.testing.assert_allclose(residual_deviations(residuals, np.arange(4)), [0, 2, 0, 0.5])
    once = observed(shift=0.5, jobs=1)
    [change] = level_changes(once.residuals, np.arange(300))
    assert abs(change.start - 150) <= 5


def test_how_much_jobs_differ_hides_nothing() -> None:
    [change] = found(shift=0.4, spread=3.0, seed=1)
    assert abs(change.start - 150) <= 5


def test_one_wild_execution_is_no_change() -> None:
    stream = observed()
    stream.residuals[170] = 50.0
    assert level_changes(stream.residuals, stream.jobs) == []
    assert residual_deviations(stream.residuals, stream.jobs).max() == MAX_RESIDUAL


@pytest.mark.parametrize("count", [0, 1, 5, GUARD])
def test_short_streams_tell_nothing(count: int) -> None:
    assert level_changes(np.arange(float(count)), np.zeros(count, np.int64)) == []
