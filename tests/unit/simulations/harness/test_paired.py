"""Tests of paired comparisons: intervals, outliers, strata and groups."""

import numpy as np
import pytest

from fedperf_memory.paired import interval_by_groups
from fedperf_simulations.harness.experiment import Target
from fedperf_simulations.harness.paired import PairedComparison

THEIRS = np.full(18, 40.0)


def test_paired_comparison_reports_change_of_means_and_median_of_cases() -> None:
    change = PairedComparison.percent([10.0, 30.0, 60.0], [20.0, 40.0, 40.0])
    assert change.mean == pytest.approx(0.0)
    assert change.median == pytest.approx(-25.0)
    assert (change.wins, change.cases) == (2, 3)
    points = PairedComparison.points([10.0, 30.0, 60.0], [20.0, 40.0, 40.0])
    assert (points.mean, points.median) == (0.0, -10.0)


def test_paired_comparison_exposes_a_mean_change_caused_by_one_outlier() -> None:
    theirs = THEIRS.copy()
    theirs[17] = 1000.0
    change = PairedComparison.percent(np.full(18, 42.0), theirs)
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


@pytest.mark.slow
@pytest.mark.statistical
def test_paired_interval_has_nominal_coverage() -> None:
    rng = np.random.default_rng(1)
    worlds = rng.normal(3.0, 5.0, (400, 40))
    intervals = [PairedComparison.points(each).interval or (0.0, 0.0) for each in worlds]
    assert 0.90 < np.mean([low <= 3.0 <= high for low, high in intervals]) < 0.98


def test_paired_comparison_resamples_within_strata_only() -> None:
    errors = [0.0, 0.0, 100.0, 100.0]
    whole, inside = (
        PairedComparison.points(errors),
        PairedComparison.points(errors, strata=["a", "a", "b", "b"]),
    )
    assert inside.interval == (50.0, 50.0)
    assert inside.one_left_out == 100.0
    assert whole.one_left_out == pytest.approx(200 / 3)
    assert PairedComparison.points([0.0, 100.0], strata=["a", "b"]).interval is None
    assert whole.interval is not None
    assert whole.interval[0] < 50 < whole.interval[1]


def test_paired_comparison_of_one_case_has_no_interval() -> None:
    single = PairedComparison.percent([1.0], [2.0])
    assert (single.mean, single.median) == (-50.0, -50.0)
    assert (single.interval, single.median_interval, single.one_left_out) == (None, None, None)
    row = Target("x", 1.0, 1.0, paired=PairedComparison.points([1.0, 2.0])).as_row()
    assert (row["better"], row["of"]) == (None, 2)
    assert Target("x", 1.0, -50.0, paired=single).as_row()["low"] is None


def test_paired_comparison_resamples_groups_as_a_whole() -> None:
    errors = np.array([1.0, 1.0, 1.0, 4.0])
    grouped = PairedComparison.by_groups(errors, np.zeros(4), groups=["a", "a", "a", "b"])
    assert (grouped.mean, grouped.median, grouped.cases, grouped.wins) == (1.75, 1.0, 4, 0)
    assert grouped.interval == (1.0, 4.0)
    assert grouped.median_interval == (1.0, 4.0)
    assert grouped.one_left_out == 4.0
    alone = PairedComparison.by_groups(errors, groups=["a"] * 4)
    assert (alone.interval, alone.one_left_out, alone.wins) == (None, None, None)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("share", [None, 0.5, 0.9])
def test_grouped_interval_has_nominal_coverage(share: float | None) -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(30), 4)
    true = {None: 0.0, 0.5: 0.0, 0.9: 1.2816 * np.sqrt(2)}[share]
    hits = []
    for _ in range(300):
        values = rng.normal(size=30)[labels] + rng.normal(size=120)
        low, high = interval_by_groups(values, labels.tolist(), share=share) or (0.0, 0.0)
        hits.append(low <= true <= high)
    assert 0.88 < np.mean(hits) < 0.985


def test_grouped_interval_is_wider_than_the_ungrouped_one_for_repeated_values() -> None:
    values = np.repeat(np.random.default_rng(3).normal(size=20), 10)
    each, whole = np.arange(200).tolist(), np.repeat(np.arange(20), 10).tolist()
    low, high = interval_by_groups(values, whole) or (0.0, 0.0)
    narrow_low, narrow_high = interval_by_groups(values, each) or (0.0, 0.0)
    assert high - low > 2.5 * (narrow_high - narrow_low)
