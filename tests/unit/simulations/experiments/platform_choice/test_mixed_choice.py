"""Tests of the choice of mixed plans: regret is computed from plans rerun side by side."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fedperf_client.prediction.prediction import Floats
from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.optimizer.surrogate_store import shipped_surrogate
from fedperf_shared.execution import PlanOnCluster
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH, ESTIMATED
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.experiments.platform_choice.models import (
    BEST_ALONE_AGAIN,
    CHOICE,
    FASTEST,
    RERUN,
    best_alone,
    beyond,
    choice_row,
    chosen_plan,
    covered_row,
    least_predicted,
    mixed_rows,
    rerun_row,
    robust_plan,
    rules_of_thumb,
    sinks_at_home,
)
from fedperf_simulations.experiments.platform_choice.tables import ModelPredictions
from tests.unit.simulations.comparison_cases import (
    DUCKDB,
    PANDAS,
    POLARS,
    PROGRAM,
    case,
    everywhere,
)

MIXED = (DUCKDB, DUCKDB, POLARS, POLARS)
OTHERS = [
    (a, b, c, c) for a in (DUCKDB, POLARS) for b in (DUCKDB, PANDAS) for c in (DUCKDB, PANDAS)
]


def exhaustive() -> Case:
    seconds: dict[Assignment, float] = {plan: 9.0 - p for p, plan in enumerate(OTHERS)}
    return case("x1", {**seconds, everywhere(POLARS): 2.0, everywhere(PANDAS): 11.0, MIXED: 1.0})


def test_sink_is_placed_on_the_platform_of_its_input() -> None:
    assert sinks_at_home(PROGRAM, (DUCKDB, DUCKDB, POLARS, PANDAS)) == MIXED


def test_best_rule_per_class_is_selected_in_hindsight() -> None:
    rules = rules_of_thumb([exhaustive()])
    assert rules["always pandas"] == {"x1": everywhere(PANDAS)}
    assert rules["best rule per class"] == {"x1": everywhere(POLARS)}


def test_rerun_row_reruns_chosen_and_fastest_logged_plans_once_each() -> None:
    asked: list[Assignment] = []

    def rerun(_: Case, plans: Sequence[Assignment]) -> dict[Assignment, float]:
        asked.extend(plans)
        return {plan: 0.5 if plan == everywhere(POLARS) else 2.0 for plan in plans}

    said = {CHOICE: (*MIXED[:3], PANDAS), "always pandas": everywhere(PANDAS)}
    row = rerun_row(exhaustive(), said, rerun)
    assert asked[0] == MIXED
    fastest = sorted(exhaustive().seconds.items(), key=lambda each: each[1])[:RERUN]
    assert set(asked) == {everywhere(PANDAS), *(plan for plan, _ in fastest)}
    assert len(asked) == len(set(asked))
    assert (row[CHOICE], row["always pandas"], row[FASTEST]) == (2.0, 2.0, 0.5)
    assert row[BEST_ALONE_AGAIN] == 0.5


def test_mixed_plan_regret_is_relative_to_the_fastest_rerun() -> None:
    cells: list[dict[str, float | None]] = [
        {FASTEST: 1.0, CHOICE: 1.0, "rule": 1.05},
        {FASTEST: 2.0, CHOICE: 2.4, "rule": None},  # its runs failed
    ]
    ours, rule = mixed_rows(cells, [CHOICE, "rule"])
    assert ours["mean regret"] == pytest.approx(0.1)
    assert (ours["cases"], ours["within a tenth"]) == (2, 0.5)
    assert rule["mean regret"] == pytest.approx((0.05 + 100) / 2)
    assert (ours["median"], ours["low"], ours["high"]) == pytest.approx((0.1, 0.0, 0.2))
    assert rule["median"] == pytest.approx((0.05 + 100) / 2)


def test_best_alone_returns_the_fastest_single_platform_of_each_case() -> None:
    other = case("x2", {everywhere(POLARS): 2.0, everywhere(PANDAS): 1.5, MIXED: 1.0})
    assert best_alone([exhaustive(), other]) == {"x1": everywhere(POLARS), "x2": everywhere(PANDAS)}


def test_baseline_choice_is_made_among_all_measured_assignments() -> None:
    logs = np.log(list(exhaustive().seconds.values()))
    assert least_predicted(ModelPredictions("true", {"x1": logs}), [exhaustive()]) == {"x1": MIXED}
    assert least_predicted(ModelPredictions("false", {"x1": -logs}), [exhaustive()]) == {
        "x1": everywhere(PANDAS)
    }


def test_failed_plan_keeps_the_regret_comparison_finite() -> None:
    cells: list[dict[str, float | None]] = [
        {FASTEST: 1.0, CHOICE: None, "a": 1.5, "b": None},
        {FASTEST: 1.0, CHOICE: 1.1, "a": 1.5, "b": None},
    ]
    assert beyond(cells, CHOICE, ["b"]).mean == pytest.approx((0 + 0.1 - 100) / 2)
    assert beyond(cells, CHOICE, ["a", "b"]).mean == pytest.approx((99.5 - 0.4) / 2)


@pytest.mark.parametrize(("saved", "expected"), [(0.01, everywhere(POLARS)), (3.0, MIXED)])
def test_robust_plan_ignores_savings_below_the_prediction_error(
    saved: float, expected: Assignment
) -> None:
    """A pretrained model errs by a factor. An error shared by all platforms cancels."""

    def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
        on_polars = [set(each.plan.platforms) == {POLARS} for each in queries]
        mixed = [len(set(each.plan.platforms)) > 1 for each in queries]
        return np.where(mixed, -saved, np.where(on_polars, 0.0, 5.0))

    assert robust_plan(exhaustive(), MIXED, predict_log, information=ACTUAL) == expected


def test_mixed_plan_coverage_uses_the_pretrained_interval_width() -> None:
    about = choice_row(
        exhaustive(), MIXED, lambda asked: np.zeros(len(asked)), name=CHOICE, information=ACTUAL
    )
    width = float(str(about[f"{CHOICE}, half width"]))
    cells = [{**about, CHOICE: math.exp(share * width)} for share in (-0.9, 0.9, 1.1, 2.0)]
    assert covered_row(cells, CHOICE)["covered"] == 0.5


def test_chosen_plan_has_the_lowest_predicted_run_time() -> None:
    def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
        return np.array([float(each.plan.platforms[0] is not PANDAS) for each in queries])

    for information in BOTH:
        found = chosen_plan(exhaustive(), predict_log, shipped_surrogate(), information=information)
        assert found[0] is PANDAS
        assert sinks_at_home(PROGRAM, found) == found


def test_chosen_plan_before_a_run_uses_estimated_cardinalities_only() -> None:
    rows: set[float] = set()

    def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
        rows.update(each.plan.workflow.operators[1].output_rows for each in queries)
        return np.zeros(len(queries))

    chosen_plan(exhaustive(), predict_log, shipped_surrogate(), information=ESTIMATED)
    assert list(rows) == [pytest.approx(1000 / 3)]
