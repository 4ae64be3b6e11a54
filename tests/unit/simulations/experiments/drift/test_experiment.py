"""Tests of the experiment on drift: rows, targets, charts, and a quick run that resumes."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.corpus.organizations import SEGMENTS
from fedperf_simulations.data import tokio
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.drift.continual import MAE, MAPE, Q50
from fedperf_simulations.experiments.drift.experiment import (
    EPSILON,
    EPSILONS,
    EXPERIMENT,
    GROUPS,
    LEAST_FACTOR,
    MOST_TRANSFER,
    MOST_WORSE,
    PART,
    PLOTTED,
    PRIVATE1,
    RANDOM,
    RAW5,
    SPREAD,
    _groups,
    _rows,
    _targets,
    private,
    raw,
)
from fedperf_simulations.experiments.drift.federated_drift import BY_SEGMENT, WAYS
from fedperf_simulations.experiments.drift.federated_drift import SPREAD as GGFN_SPREAD
from fedperf_simulations.experiments.drift.report_detection import conditions
from fedperf_simulations.experiments.drift.sequences import (
    C3O_JOB,
    CORI,
    FLEET_PERF,
    FLEET_WALL,
    SEQUENCES,
    UNIT,
)
from fedperf_simulations.experiments.drift.table import (
    CUMULATIVE,
    FACTOR,
    FINAL,
    NAIVE,
    TRANSFER,
    WORSE,
    DriftTable,
    cell_of,
    plotted,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.public_data import public_data

FIRST, AFTER = 0.1, 0.2


def errors(*finals: float) -> dict[str, np.ndarray]:
    """Return errors of two segments, with one seed per final error of both segments."""
    squares = np.array([[[FIRST, 9.0], [each, each]] for each in finals])
    return {MAE: squares, MAPE: 100 * squares, Q50: 1 + squares}


def table(**finals: float) -> DriftTable:
    names = {
        "naive": NAIVE,
        "cumulative": CUMULATIVE,
        "raw5": RAW5,
        "own": PRIVATE1,
        "random": RANDOM,
    }
    return DriftTable.of(
        [cell_of({names[name]: errors(each - 0.01, each + 0.01) for name, each in finals.items()})]
    )


GOOD = table(naive=0.6, cumulative=0.2, raw5=0.19, own=0.22, random=0.3)
BAD = table(naive=0.6, cumulative=0.2, raw5=0.7, own=0.8, random=0.3)


def row_of(rows: list[Row], part: str, method: str) -> Row:
    return next(row for row in rows if (row["part"], row["method"]) == (part, method))


def test_drift_rows_compare_means_and_mark_runs_as_the_privacy_unit() -> None:
    rows = _rows({FLEET_PERF: GOOD})
    row = row_of(rows, PART, PRIVATE1)
    assert (row["sequence"], row["unit"], row["epsilon"]) == (FLEET_PERF, UNIT, 1.0)
    assert row[FINAL] == pytest.approx(0.22)
    assert row[FACTOR] == pytest.approx(0.6 / 0.22, abs=1e-3)
    assert row[WORSE] == pytest.approx(10.0)
    assert row["averaged"] == pytest.approx((FIRST + 0.22) / 2)
    assert row[TRANSFER] == pytest.approx(0.12)
    assert row["MAPE, %"] == pytest.approx(22.0)
    assert row[Q50] == pytest.approx(1.22)
    assert row_of(rows, PART, NAIVE)["epsilon"] is None
    assert all(row["unit"] == "run: not our promise" for row in rows if row["part"] == PART)


def test_drift_standard_deviations_are_computed_over_paired_seeds() -> None:
    spread = row_of(_rows({FLEET_PERF: GOOD}), SPREAD, PRIVATE1)
    assert spread[FINAL] == pytest.approx(0.01)
    assert spread[FACTOR] == pytest.approx(np.std([0.59 / 0.21, 0.61 / 0.23]), abs=1e-3)
    assert spread[WORSE] == pytest.approx(100 * np.std([0.21 / 0.19, 0.23 / 0.21]), abs=1e-3)


def test_drift_targets_cover_every_promised_value() -> None:
    good, bad = (_targets(_rows(dict.fromkeys(SEQUENCES, each))) for each in (GOOD, BAD))
    assert len(good) == len(LEAST_FACTOR) + len(MOST_WORSE) + len(MOST_TRANSFER) + 1
    assert [each.what for each in good if not each.holds] == [f"{CORI}, {RAW5}: backward transfer"]
    assert not any(each.holds for each in bad)
    found = {each.what: each for each in good}
    assert found[f"{FLEET_PERF}, {RAW5}: times better than naive"].value == pytest.approx(3.158)
    assert found[f"{FLEET_PERF}, {RAW5}: times better than naive"].limit == 2.3
    assert found[f"{C3O_JOB}, {PRIVATE1}: percent worse than cumulative"].value == pytest.approx(10)
    share = found[f"{C3O_JOB}: error of {PRIVATE1} as a share of that of {RANDOM}"]
    assert share.value == pytest.approx(0.22 / 0.3, abs=1e-3)


def test_drift_method_names_match_and_regularized_group_runs_on_one_sequence() -> None:
    assert (raw(0.01), RAW5, raw(0.1)) == ("raw buffer 1 %", "raw buffer 5 %", "raw buffer 10 %")
    assert {private(each) for each in EPSILONS} <= EPSILON.keys()
    assert len(_groups(FLEET_PERF)) == len(_groups(FLEET_WALL)) + 1 == len(GROUPS)


def test_drift_chart_shows_error_over_segments(tmp_path: Path) -> None:
    line = GOOD.line(RAW5, dashed=False)
    assert line.heights == pytest.approx([FIRST, 0.19])
    path = plotted(tmp_path, FLEET_WALL, GOOD, [NAIVE, RAW5], ["mira", "cori"])
    chart = path.read_text(encoding="utf-8")
    for text in (NAIVE, RAW5, "mira", "cori", FLEET_WALL):
        assert text in chart
    assert len(PLOTTED) <= 6


def test_drift_experiment_without_data_names_the_environment_variable(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        EXPERIMENT.run(Settings(seed=0, out=tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_drift_run_has_expected_rows_and_resumes_from_stored_cells(tmp_path: Path) -> None:
    settings = Settings(seed=1, out=tmp_path, data=public_data(tokio.FOLDER), quick=True)
    outcome = EXPERIMENT.run(settings)
    rows = [row for row in outcome.rows if row["part"] == PART]
    assert {row["sequence"] for row in rows} == set(SEQUENCES)
    assert len({(row["sequence"], row["method"]) for row in rows}) == len(rows) == 5 * 15 + 3
    assert {path.name for path in outcome.plots} == {path.name for path in tmp_path.glob("*.svg")}
    assert len(outcome.plots) == len(SEQUENCES) + len(SEGMENTS) + 1
    parts = {row["part"] for row in outcome.rows}
    assert parts == {PART, SPREAD, "ggfn", GGFN_SPREAD, BY_SEGMENT, "reports", "home"}
    lived = {row["method"] for row in outcome.rows if row["part"] == "ggfn"}
    assert lived == set(WAYS)
    assert any("GGFN" in target.what for target in outcome.targets)
    assert any(target.what.startswith("reports") for target in outcome.targets)
    assert any(target.what.startswith("home") for target in outcome.targets)
    kept = sorted(tmp_path.glob("cells/*.json"))
    years, platforms = len(WAYS), 2 * len(tokio.PEAKS)
    assert len(kept) == 5 * 4 + 1 + years + len(conditions(quick=True)) + platforms
    times = [path.stat().st_mtime_ns for path in kept[1:]]
    kept[0].unlink()
    assert list(EXPERIMENT.run(settings).rows) == list(outcome.rows)
    assert [path.stat().st_mtime_ns for path in kept[1:]] == times
