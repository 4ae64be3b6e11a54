"""Tests of jobs that ran k times: training sets, orders, and the pooled-variance baseline."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.intervals.figures import (
    LOWER,
    MEDIAN,
    OURS,
    PREDICTOR,
    SITUATION,
    UPPER,
    by,
    column,
    cover_row,
    where,
)
from fedperf_simulations.experiments.intervals.repeats import (
    ALONE,
    ANY_ORDER,
    BY_COLUMNS,
    C3O,
    CAMPAIGN,
    IN_A_ROW,
    LATER,
    OTHERS,
    POOLED,
    RUNS,
    TOKIO,
    PooledSpread,
    RepeatedJob,
    jobs_of,
    repeat_cases,
    rows_of,
    situation,
    targets_of,
)
from tests.unit.simulations.public_files import with_c3o, with_tokio


def job(number: int, spread: float, runs: int = 12, *, seed: int = 0) -> RepeatedJob:
    rng = np.random.default_rng([seed, number])
    logs = rng.uniform(0, 5) + spread * rng.standard_normal(runs)
    name = f"job {number}"
    return RepeatedJob(name, f"group {number % 6}", name, b"", logs)


@pytest.mark.slow
def test_local_repeat_sets_are_campaigns_and_plans_run_three_times() -> None:
    campaigns = jobs_of(None, CAMPAIGN)
    assert sorted(len(each.runs) for each in campaigns) == [4] * 12 + [10] * 8
    assert len(jobs_of(None, IN_A_ROW)) > 1000
    assert {len(each.runs) for each in jobs_of(None, IN_A_ROW)} == {3}


def test_public_repeat_sets_are_grouped_by_configuration(tmp_path: Path) -> None:
    data = with_tokio(with_c3o(tmp_path))
    c3o = jobs_of(data, C3O)
    assert len(c3o) == 8 * 24
    assert len({each.kin for each in c3o}) == 8
    tokio = jobs_of(data, TOKIO)
    assert len(tokio) == 6 * 4
    assert {len(each.runs) for each in tokio} == {40}
    assert all(each.kin == each.name for each in tokio)


@pytest.mark.slow
def test_repeat_intervals_are_narrower_with_other_quiet_jobs_and_keep_coverage() -> None:
    jobs = [job(number, 0.03) for number in range(40)]
    cases = list(repeat_cases(jobs, TOKIO, draws=15, seed=0))
    rows = rows_of(cases)
    once = {
        home: where(rows, situation=situation(TOKIO, 1, ANY_ORDER, home=home), predictor=OURS)[0]
        for home in (OTHERS, ALONE)
    }
    assert float(str(once[OTHERS]["upper / lower"])) < 1.25
    assert float(str(once[ALONE]["upper / lower"])) > 1.25
    assert all(float(str(each["covered"])) > 0.8 for each in where(rows, predictor=OURS))
    pooled = where(rows, situation=situation(TOKIO, 5, LATER, home=OTHERS), predictor=POOLED)
    assert 0.8 < float(str(pooled[0]["covered"])) < 0.98
    assert not [
        each for each in cases if ALONE in str(each[SITUATION]) and each[PREDICTOR] == POOLED
    ]


def test_later_repeats_are_predicted_from_earlier_runs() -> None:
    drifting = RepeatedJob("a", "a", "a", b"", np.arange(12.0))
    jobs = [drifting, *(job(number, 0.1) for number in range(5))]
    later = [
        each
        for each in repeat_cases(jobs, TOKIO, draws=8, seed=0)
        if each["job"] == "a" and LATER in str(each[SITUATION]) and each[PREDICTOR] == OURS
    ]
    assert later
    assert all(float(str(each["seconds"])) > float(str(each[MEDIAN])) for each in later)


def test_pooled_spread_excludes_jobs_of_the_same_group() -> None:
    wild = RepeatedJob("wild", "w", "w", b"", np.array([0.0, 5.0, -5.0]))
    quiet = [job(number, 0.01, 3) for number in range(8)]
    spread = PooledSpread.of([wild, *quiet], 1, ANY_ORDER, rng=np.random.default_rng(0))
    prediction = spread.predict(wild, np.array([1.0]))
    assert prediction.upper_seconds / prediction.lower_seconds < 1.2
    other = spread.predict(quiet[0], np.array([1.0]))
    assert other.upper_seconds / other.lower_seconds > 1.2


@pytest.mark.slow
def test_repeat_tables_cover_column_predictions_and_targets_are_finite(tmp_path: Path) -> None:
    data = with_tokio(with_c3o(tmp_path))
    cases = [
        row
        for of in (C3O, TOKIO, CAMPAIGN)
        for row in repeat_cases(jobs_of(data, of), of, draws=2, seed=0)
    ]
    by_columns = where(cases, predictor=BY_COLUMNS)
    assert {each[SITUATION] for each in by_columns} == {
        situation(C3O, runs, ANY_ORDER, home=home) for runs in RUNS[C3O] for home in (OTHERS, ALONE)
    }
    assert (column(by_columns, UPPER) > column(by_columns, LOWER)).all()
    targets = targets_of(cases, rows_of(cases), sets=(C3O, TOKIO, CAMPAIGN))
    assert all(np.isfinite(each.value) for each in targets)
    # C3O has no upper limit of coverage, campaigns no limit of the ratio.
    assert len(targets) == 2 * 3 * 3 + 4 * 2 * 4 + 3 * 2 * 3


@pytest.mark.slow
def test_repeat_intervals_of_half_width_have_lower_coverage_and_worse_score() -> None:
    jobs = [job(number, 0.2, seed=4) for number in range(60)]
    cases = where(list(repeat_cases(jobs, TOKIO, draws=30, seed=1)), predictor=OURS)
    words = situation(TOKIO, 10, ANY_ORDER, home=OTHERS)
    chosen = by(cases, SITUATION)[(words,)]
    halved = [
        {
            **each,
            LOWER: float(np.sqrt(float(str(each[LOWER])) * float(str(each[MEDIAN])))),
            UPPER: float(np.sqrt(float(str(each[UPPER])) * float(str(each[MEDIAN])))),
        }
        for each in chosen
    ]
    whole, half = cover_row(chosen), cover_row(halved)
    assert 0.85 < float(str(whole["covered"])) < 0.96
    assert float(str(half["covered"])) < 0.75
    assert float(str(half["interval score"])) > float(str(whole["interval score"]))


@pytest.mark.parametrize("of", [TOKIO, C3O])
def test_repeat_set_with_missing_data_is_refused(tmp_path: Path, of: str) -> None:
    with pytest.raises(MissingDataError, match="not there"):
        jobs_of(tmp_path, of)
