"""No single case carries a verdict."""

import numpy as np
import pytest

from fedperf_simulations.harness.experiment import Target
from fedperf_simulations.harness.paired import Paired

THEIRS = np.full(18, 40.0)


def test_the_change_is_of_means_and_the_median_is_of_cases() -> None:
    change = Paired.percent([10.0, 30.0, 60.0], [20.0, 40.0, 40.0])
    assert change.mean == pytest.approx(0.0)
    assert change.median == pytest.approx(-25.0)
    assert (change.wins, change.cases) == (2, 3)
    points = Paired.points([10.0, 30.0, 60.0], [20.0, 40.0, 40.0])
    assert (points.mean, points.median) == (0.0, -10.0)


def test_one_exploded_opponent_is_told_from_a_gain() -> None:
    theirs = THEIRS.copy()
    theirs[17] = 1000.0
    change = Paired.percent(np.full(18, 42.0), theirs)
    assert change.mean == pytest.approx(100 * (42 * 18 / theirs.sum() - 1))
    assert change.mean < -50
    assert change.median == pytest.approx(5.0)
    assert change.one_left_out == pytest.approx(5.0)
    assert change.interval is not None
    low, high = change.interval
    assert low < change.mean < high
    assert high == pytest.approx(5.0)
    row = Target("gain", -30, change.mean, paired=change).as_row()
    assert (row["holds"], row["median holds"], row["better"], row["of"]) == (True, False, 1, 18)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    worlds = rng.normal(3.0, 5.0, (400, 40))
    intervals = [Paired.points(each).interval or (0.0, 0.0) for each in worlds]
    assert 0.90 < np.mean([low <= 3.0 <= high for low, high in intervals]) < 0.98


def test_strata_are_resampled_inside_only() -> None:
    errors = [0.0, 0.0, 100.0, 100.0]
    whole, inside = Paired.points(errors), Paired.points(errors, strata=["a", "a", "b", "b"])
    assert inside.interval == (50.0, 50.0)
    assert inside.one_left_out == 100.0
    assert whole.one_left_out == pytest.approx(200 / 3)
    assert Paired.points([0.0, 100.0], strata=["a", "b"]).interval is None
    assert whole.interval is not None
    assert whole.interval[0] < 50 < whole.interval[1]


def test_a_single_case_has_no_interval_and_nothing_is_compared_without_a_rival() -> None:
    single = Paired.percent([1.0], [2.0])
    assert (single.mean, single.median) == (-50.0, -50.0)
    assert (single.interval, single.median_interval, single.one_left_out) == (None, None, None)
    row = Target("x", 1.0, 1.0, paired=Paired.points([1.0, 2.0])).as_row()
    assert (row["better"], row["of"]) == (None, 2)
    assert Target("x", 1.0, -50.0, paired=single).as_row()["low"] is None
