"""Tests of the accuracy and choice tables: which cases and plans they count."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedperf_shared.model import pretrained
from fedperf_shared.model.pretrained import PretrainedWidth
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, ESTIMATED
from fedperf_simulations.experiments.platform_choice.tables import (
    ModelPredictions,
    accuracy_rows,
    case_rows,
    chosen_row,
    comparable,
    fastest_rows,
    one_platform_row,
    paired_rows,
)
from tests.unit.simulations.comparison_cases import DUCKDB, POLARS, alone, case, everywhere

FIRST = alone("a", duckdb=1.0, polars=2.0, pandas=4.0)
SECOND = alone("b", duckdb=1.05, polars=1.0, pandas=math.inf)


def said(factor: float = 1.0) -> ModelPredictions:
    """Return true run times times `factor`, with infinity predicted as 9 seconds."""
    logs = {
        each.name: np.log([min(seconds, 9.0) * factor for seconds in each.seconds.values()])
        for each in (FIRST, SECOND)
    }
    return ModelPredictions("model", logs)


def test_accuracy_rows_include_only_plans_that_succeeded() -> None:
    everything, of_family = accuracy_rows(said(1.5), [[FIRST], [SECOND]])
    assert everything["relative error"] == pytest.approx(0.5)
    assert everything["sd"] == pytest.approx(0.0)
    assert everything["q50"] == pytest.approx(1.5)
    assert everything["absolute error s"] == pytest.approx((3.5 / 3 + 2.05 / 4) / 2)
    assert of_family["family"] == "relational"
    assert of_family["absolute error s"] == pytest.approx((3.5 + 2.05 / 2) / 5)


def test_fastest_rows_count_the_fastest_platform_per_family_and_size() -> None:
    [row] = fastest_rows([FIRST, SECOND])
    assert row == {
        "part": "fastest", "family": "relational", "rows": 1000, "cases": 2,
        "duckdb": 1, "polars": 1, "pandas": 0,
    }  # fmt: skip


def test_one_platform_row_counts_best_and_near_best_choices_separately() -> None:
    row = one_platform_row("always duckdb", lambda _: DUCKDB, [FIRST, SECOND])
    assert (row["cases"], row["best"], row["within a tenth"]) == (2, 0.5, 1.0)
    assert row["mean regret"] == pytest.approx(0.025)
    perfect = said()
    assert one_platform_row("model", perfect.cheapest_platform, [FIRST, SECOND])["best"] == 1.0
    polars = one_platform_row("always polars", lambda _: POLARS, [FIRST, SECOND])
    assert (polars["best"], polars["within a tenth"]) == (0.5, 0.5)


def test_one_platform_row_counts_failed_choice_as_neither_best_nor_near_best() -> None:
    row = one_platform_row("none", lambda _: None, [FIRST])
    assert (row["best"], row["within a tenth"], row["failed"]) == (0.0, 0.0, 1)


def test_comparable_excludes_cases_with_a_single_run_time() -> None:
    single = case("c", {everywhere(DUCKDB): 1.0, everywhere(POLARS): math.inf})
    assert comparable([single, FIRST]) == [FIRST]


def test_paired_rows_compare_models_case_by_case() -> None:
    rows = [*case_rows(said(1.1), [FIRST, SECOND]), *case_rows(rival(), [FIRST, SECOND])]
    assert [row["relative error"] for row in rows] == pytest.approx([0.1, 0.1, 0.5, 0.05])
    assert [row["times the fastest"] for row in rows[:2]] == [1.0, 1.0]
    row, chosen = paired_rows(rows, "model")
    assert (row["rival"], row["less"], row["cases"]) == ("rival", "relative error", 2)
    assert row["better"] == 1
    assert row["mean"] == row["median"] == pytest.approx((-0.4 + 0.05) / 2)
    assert (row["low"], row["high"]) == pytest.approx((-0.4, 0.05))
    assert (chosen["less"], chosen["mean"]) == ("times the fastest", 0.0)


def test_paired_rows_compare_models_with_the_same_cardinality_mode() -> None:
    before = [replace(each, information=ESTIMATED) for each in (said(1.2), rival())]
    predictions = [said(1.1), rival(), *before]
    rows = [row for each in predictions for row in case_rows(each, [FIRST, SECOND])]
    found = [row for row in paired_rows(rows, "model") if row["less"] == "relative error"]
    assert [row["information"] for row in found] == [ACTUAL, ESTIMATED]
    assert found[1]["mean"] == pytest.approx((-0.3 + 0.15) / 2)


def test_paired_rows_resample_sizes_of_one_workload_together() -> None:
    rows = [*case_rows(said(1.1), [FIRST, SECOND]), *case_rows(rival(), [FIRST, SECOND])]
    [row, _] = paired_rows([{**each, "workload": "one"} for each in rows], "model")
    assert (row["cases"], row["low"], row["high"]) == (2, None, None)


def test_case_rows_assign_the_regret_cap_to_a_failed_choice() -> None:
    logs = {"b": np.log([1.05, 1.0, 0.5])}
    [row] = case_rows(ModelPredictions("model", logs), [SECOND])
    assert row["times the fastest"] == 101.0


def test_chosen_row_reports_coverage_of_chosen_and_of_all_platforms() -> None:
    assert chosen_row(said(1.5), [FIRST, SECOND])["covered"] == 1.0
    logs = {name: values.copy() for name, values in said().log_seconds.items()}
    logs["a"][2] = np.log(4.0 / 100)  # pandas is predicted fastest, and far underestimated
    row = chosen_row(ModelPredictions("model", logs), [FIRST, SECOND])
    assert (row["cases"], row["covered"]) == (2, 0.5)
    assert row["covered, all platforms"] == pytest.approx(4 / 5)
    assert (row["low"], row["high"]) == (0.0, 1.0)


def test_chosen_row_coverage_includes_the_width_of_estimates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = dict.fromkeys(Platform, PretrainedWidth(0.1, of_estimates=3.0, of_other_estimates=3.0))
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: widths)
    off = said(5.0).log_seconds
    covered = [
        chosen_row(ModelPredictions("model", off, each), [FIRST, SECOND])["covered"]
        for each in (ACTUAL, ESTIMATED)
    ]
    assert covered == [0.0, 1.0]


def rival() -> ModelPredictions:
    """Return predictions far off in the first case and nearly exact in the second."""
    logs = {
        name: values + np.log(factor)
        for (name, values), factor in zip(said().log_seconds.items(), (1.5, 1.05), strict=True)
    }
    return ModelPredictions("rival", logs)
