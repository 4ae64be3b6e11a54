"""Tests of the part on public Spark logs: input, predictors and targets, on synthetic logs."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.ingest import experiment as ingest
from fedperf_simulations.experiments.intervals import spark_logs
from fedperf_simulations.experiments.intervals.figures import (
    GROUP,
    LOWER,
    MEDIAN,
    OURS,
    PREDICTOR,
    SITUATION,
    UPPER,
    PredictionLabel,
    column,
    tables,
    where,
)
from fedperf_simulations.experiments.intervals.spark_logs import (
    ANALYTIC,
    BEFORE,
    CONSTANTS,
    FIRST_TRY,
    FOLDER,
    FROM_FILES,
    LISTED,
    LOCAL,
    NO_FILES,
    NOTHING_OWN,
    ON_BYTES,
    ON_ROWS,
    PART,
    files,
    queries,
)
from fedperf_simulations.harness.experiment import Row, Settings
from tests.unit.simulations.experiments.intervals import synthetic_queries

GROUPS = {"a": ("a_log",), "b": ("b_log",), "c": ("c_log",)}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write placeholder files of three groups with 5, 4 and 3 synthetic queries."""
    found = {
        name: synthetic_queries.queries(5 - seed, seed=seed) for seed, name in enumerate(GROUPS)
    }
    monkeypatch.setattr(spark_logs, "GROUPS", GROUPS)
    monkeypatch.setattr(spark_logs, "queries", lambda _, group: found[group])
    folder = tmp_path / "data" / FOLDER
    folder.mkdir(parents=True)
    for [name] in GROUPS.values():
        (folder / name).write_text(name)
    return tmp_path / "data"


def test_spark_log_list_has_21_groups_and_30_logs() -> None:
    names = [name for each in spark_logs.GROUPS.values() for name in each]
    assert (len(spark_logs.GROUPS), len(names), len(set(names))) == (21, 30, 30)
    assert LISTED == 66


def test_spark_log_queries_are_read_from_plain_and_rolled_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spark_logs, "GROUPS", {"a": ("one", "rolled")})
    monkeypatch.setattr(ingest, "TASKS", 4)
    (tmp_path / FOLDER / "rolled").mkdir(parents=True)
    ingest.write_log(tmp_path / FOLDER / "one", 20_000)
    ingest.write_log(tmp_path / FOLDER / "rolled" / "events_1_app-1", 20_000)
    assert [path.name for path in files(tmp_path)] == ["one", "events_1_app-1"]
    found = queries(tmp_path, "a")
    assert len(found) >= 2
    assert all(each.is_ok for each in found)


def test_spark_logs_missing_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        files(None)
    with pytest.raises(MissingDataError, match="nds_q72"):
        files(tmp_path)


def test_spark_log_part_evaluates_all_predictors_with_both_cardinality_modes(
    made_up: Path, tmp_path: Path
) -> None:
    cases = PART.cases(Settings(seed=0, out=tmp_path, data=made_up, quick=True))
    nothing = where(cases, situation=NOTHING_OWN)
    asked = {
        (name, information): len(where(nothing, predictor=name, information=information))
        for name in (OURS, ANALYTIC, CONSTANTS, ON_ROWS, ON_BYTES)
        for information in (ACTUAL, ESTIMATED)
    }
    both = {
        (OURS, ACTUAL),
        (OURS, ESTIMATED),
        (ANALYTIC, ACTUAL),
        (ANALYTIC, ESTIMATED),
    }
    once = {(CONSTANTS, ACTUAL), (ON_ROWS, ACTUAL), (ON_BYTES, ESTIMATED)}
    assert {key for key, count in asked.items() if count == 12} == both | once
    own = [each for each in cases if each[SITUATION] == "Spark logs, 3 own runs"]
    # Groups of five and four queries have more than three.
    assert len(own) == (2 + 1) * 2 * 2
    assert {each[GROUP] for each in own} == {"a", "b"}
    known = where(own, predictor=LOCAL, information=ACTUAL)
    assert len(known) == 3
    rows = PART.rows(cases)
    published = [
        (row["q50"], row["q90"])
        for name in (BEFORE, FIRST_TRY)
        for row in where(rows, predictor=name)
    ]
    assert published == [(13.5, 114.0), (2.53, 5.4), (2.83, 7.2)]
    counts = [
        where(rows, situation=name, predictor=OURS)[0]["cases"] for name in (FROM_FILES, NO_FILES)
    ]
    assert counts == [7, 5]
    assert where(rows, situation="Spark logs, 3 own runs", predictor=OURS)[0]["times local-only"]
    targets = PART.targets(cases, rows)
    assert len(targets) == 2 * 4 + 1 + 2
    assert all(np.isfinite(each.value) for each in targets)


def test_spark_log_regression_is_trained_without_the_predicted_group(
    made_up: Path, tmp_path: Path
) -> None:
    settings = Settings(seed=0, out=tmp_path, data=made_up, quick=True)
    before = where(PART.cases(settings), predictor=ON_ROWS)
    slow = [synthetic_queries.query(n, rows=1e5, seconds=5000.0) for n in range(5)]
    others = {name: spark_logs.queries(made_up, name) for name in ("b", "c")}
    again = spark_logs._nothing_own(made_up)
    np.testing.assert_array_equal(
        column(where(again, predictor=ON_ROWS), MEDIAN), column(before, MEDIAN)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_logs, "queries", lambda _, group: ({"a": slow} | others)[group])
        changed = where(spark_logs._nothing_own(made_up), predictor=ON_ROWS, group="a")
    assert column(changed, MEDIAN).max() < 15


def test_spark_log_coverage_above_or_below_the_level_misses_its_target() -> None:
    def cases(share: float) -> list[Row]:
        found: list[Row] = []
        for number in range(60):
            wide = number % 20 < round(20 * share)
            told = PredictionLabel(NOTHING_OWN, OURS, str(number % 20), ACTUAL).labelled_row(
                1.0, 2.0
            )
            found.append({**told, LOWER: 0.5 if wide else 1.5, UPPER: 4.0})
        return found

    for share, holds in ((0.9, True), (0.5, False), (1.0, False)):
        [row] = tables(cases(share))
        assert (spark_logs._distance_from_level(row) == 0) is holds
        assert row[PREDICTOR] == OURS
