"""The table predictor, from one measured configuration upwards."""

from collections import Counter

import numpy as np
import pytest

from fedperf_campaigns.tables.layout import InvalidTableError, TableLayout
from fedperf_campaigns.tables.learners import table_learners
from fedperf_campaigns.tables.predictor import (
    FREEDOM,
    MIXED_FROM,
    MeasuredTable,
    TablePredictor,
)
from fedperf_client.prediction.prediction import QueryRegime, StudentT
from tests.unit.client.prediction.tables.published_laws import DrawnJob, drawn_job

JOBS = 60


def known_of(seed: int, count: int) -> tuple[DrawnJob, list[int], list[int]]:
    """Return a job, `count` of its rows at random, and the remaining rows."""
    job = drawn_job(seed)
    order = np.random.default_rng(seed).permutation(len(job.seconds)).tolist()
    return job, order[:count], order[count:]


def columns(rows: list[float], workers: list[float]) -> dict[str, list[float | str]]:
    return {"rows": list(rows), "workers": list(workers)}


def measured(rows: list[float], workers: list[float], seconds: list[float]) -> MeasuredTable:
    grid = columns([1e5, 2e5, 4e5], [1, 2, 4])
    layout = TableLayout.of(grid, scale="workers", size="rows")
    return MeasuredTable(layout, columns(rows, workers), np.array(seconds))


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [1, 2, 3, *(pytest.param(each, marks=pytest.mark.statistical) for each in (5, 10))]
)
def test_table_predictor_intervals_cover_nine_of_ten_executions(count: int) -> None:
    """Two-sided: intervals of half the width fail, and so would much wider ones."""
    covered = {0.5: [], 1.0: [], 2.0: []}  # type: dict[float, list[float]]
    below: list[float] = []
    for seed in range(JOBS):
        job, rows, asked = known_of(seed, count)
        if len(asked) < 3:
            continue
        found = TablePredictor(job.measured(rows)).predict(job.part(asked))
        middle = np.log([each.median_seconds for each in found])
        upper = np.log([each.upper_seconds for each in found])
        truth = np.log(job.seconds[asked])
        for factor, shares in covered.items():
            inside = np.abs(truth - middle) <= factor * (upper - middle)
            shares.append(float(inside.mean()))
        below.append(float(np.mean(truth <= np.log([each.p90_seconds for each in found]))))
    assert 0.85 <= np.mean(covered[1.0]) <= 0.98
    assert np.mean(covered[0.5]) < 0.85
    assert 0.83 <= np.mean(below) <= 0.98


@pytest.mark.slow
def test_table_predictor_with_more_configurations_is_more_accurate_and_certain() -> None:
    errors: dict[int, list[float]] = {1: [], 2: [], 4: []}
    widths: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for seed in range(40):
        for count, of_count in errors.items():
            job, rows, asked = known_of(seed, count)
            if len(asked) < 3:
                continue
            found = TablePredictor(job.measured(rows)).predict(job.part(asked))
            middle = np.log([each.median_seconds for each in found])
            of_count.append(float(np.abs(middle - np.log(job.seconds[asked])).mean()))
            widths[count].append(float(np.mean([each.deviation for each in found])))
    for each in (errors, widths):
        medians = [float(np.median(values)) for values in each.values()]
        assert medians == sorted(medians, reverse=True)
        assert medians[2] < 0.8 * medians[0]


def test_table_predictor_with_one_configuration_uses_prior_slopes_only() -> None:
    predictor = TablePredictor(measured([2e5], [2], [10.0]))
    same, faster, larger = predictor.predict(columns([2e5, 2e5, 4e5], [2, 4, 2]))
    assert predictor.members == {"prior slopes": 1.0}
    assert same.median_seconds == pytest.approx(10.0)
    assert not same.extrapolating
    assert 4.5 < faster.median_seconds < 8
    assert 14 < larger.median_seconds < 20
    assert faster.extrapolating
    assert larger.regime is QueryRegime.BEYOND_SIZES
    assert same.deviation < faster.deviation
    believed = StudentT(1.0, FREEDOM)
    tail = np.log(same.seconds_at(0.999) / same.p90_seconds)
    assert tail / same.deviation == pytest.approx(
        (believed.quantile(0.999) - believed.quantile(0.9)) / believed.quantile(0.8413)
    )


def test_table_predictor_weighs_measured_times_of_same_row_by_run_count() -> None:
    rows, workers = [1e5, 2e5, 4e5] * 2, [1.0] * 3 + [4.0] * 3
    seconds = [10.0, 20, 40, 3, 6, 12]
    odd = [*seconds[:4], 12.0, seconds[5]]  # twice the time that the other rows imply
    often = measured([*rows, *[2e5] * 9], [*workers, *[4.0] * 9], [*odd, *[12.0] * 9])
    for known, least, most in (
        (measured(rows, workers, seconds), 5.5, 6.5),
        (measured(rows, workers, odd), 6.5, 13.0),
        (often, 11.5, 12.5),
    ):
        [found] = TablePredictor(known).predict(columns([2e5], [4.0]))
        assert least < found.median_seconds < most
        assert found.regime is QueryRegime.SEEN


def test_table_predictor_marks_values_outside_measured_range_as_extrapolating() -> None:
    job = next(each for each in map(drawn_job, range(20)) if "machine_type" in each.table)
    predictor = TablePredictor(job.measured(list(range(12))))
    table = {name: list(values) for name, values in job.part([0, 0, 0]).items()}
    table["rows"][1], table["machine_type"][2] = 1e12, "never seen"
    inside, larger, strange = predictor.predict(table)
    outside = [each.extrapolating for each in (inside, larger, strange)]
    assert outside == [False, True, True]


def test_table_predictor_uses_stopped_execution_as_lower_bound() -> None:
    known = measured([1e5, 2e5], [4, 4], [10.0, 20.0])
    stopped = MeasuredTable(
        known.layout, known.table, known.seconds, columns([4e5], [4]), np.array([200.0])
    )
    [without] = TablePredictor(known).predict(columns([4e5], [4]))
    [found] = TablePredictor(stopped).predict(columns([4e5], [4]))
    assert without.median_seconds < 50
    assert found.median_seconds == pytest.approx(200.0)
    early = MeasuredTable(
        known.layout, known.table, known.seconds, columns([4e5], [4]), np.array([1.0])
    )
    [same] = TablePredictor(early).predict(columns([4e5], [4]))
    assert same == without


@pytest.mark.slow
def test_table_predictor_computes_weights_once_per_query_regime() -> None:
    job, rows, asked = known_of(2, 12)
    calls: Counter[int] = Counter()
    predictor = TablePredictor(
        job.measured(rows), on_progress=lambda done, total: calls.update([total])
    )
    first = predictor.predict(job.part(asked))
    assert calls
    before = calls.copy()
    assert predictor.predict(job.part(asked)) == first
    assert calls == before
    assert sum(predictor.members.values()) == pytest.approx(1.0)


def test_table_learners_are_few_while_configurations_are_few() -> None:
    names = {
        count: [e.name for e in table_learners(drawn_job(2).layout) if e.fewest <= count]
        for count in (1, MIXED_FROM, 10)
    }
    assert names[1] == ["prior slopes"]
    assert names[MIXED_FROM] == ["prior slopes", "local ernest"]
    assert len(names[10]) == 3


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
def test_measured_table_with_invalid_run_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidTableError, match="positive and finite"):
        measured([1e5], [1], [seconds])


def test_table_predictor_without_or_with_mismatched_run_times_is_refused() -> None:
    with pytest.raises(InvalidTableError, match="nothing was measured"):
        TablePredictor(measured([], [], []))
    with pytest.raises(InvalidTableError, match="run times"):
        measured([1e5], [1], [1.0, 2.0])
