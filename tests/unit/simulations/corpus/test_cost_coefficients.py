"""Tests of the cost-coefficient fit: it recovers known values or keeps priors without data."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.execution import ClusterConfig, MeasuredPlan
from fedperf_shared.workflow.analytic_cost import PARALLEL, PRICES_PATH, UNITS
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.corpus import cost_coefficients
from fedperf_simulations.corpus.cost_coefficients import (
    KIN,
    PRIORS,
    PricedPlans,
    fit_shipped_prices,
    prices_of,
)
from fedperf_simulations.data.datasets import HELD_OUT_SESSIONS, SPARK_SESSIONS
from tests.unit.simulations.experiments.intervals.synthetic_queries import query

K = OperatorKind
TRUE = {"start": 0.02, "row_filter": 2e-8, "row_sort": 5e-9}
SPEEDUP = 0.5


def measured(count: int, platform: Platform, seed: int = 0) -> tuple[list[MeasuredPlan], list[str]]:
    """Return plans whose run times follow from `TRUE` and `SPEEDUP`, each run twice."""
    rng = np.random.default_rng(seed)
    plans, workloads = [], []
    for number in range(count):
        rows, kind = 10 ** rng.uniform(3, 9), rng.choice([K.FILTER, K.SORT])
        cores = int(rng.choice([1, 2, 8]))
        source = Operator(K.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 0.0)
        work = Operator(OperatorKind(kind), OperatorClass.RELATIONAL, (0,), 0.0, 0.0)
        handled = rows * TRUE["row_filter"] if kind == K.FILTER else (
            rows * np.log2(2 + rows) * TRUE["row_sort"]
        )  # fmt: skip
        tasks = max(1.0, np.ceil(rows / 122_880))
        seconds = TRUE["start"] + handled / min(cores, tasks) ** SPEEDUP
        plan = Plan.on_one_platform(Workflow((source, work)), platform)
        cluster = ClusterConfig(1, cores, 10**12)
        for noise in rng.normal(0, 0.02, 2):
            plans.append(MeasuredPlan(plan, cluster, float(np.log(seconds) + noise)))
            workloads.append(f"w{number}")
    return plans, workloads


def test_prior_cost_coefficients_cover_every_unit_and_platform() -> None:
    for prices in PRIORS.values():
        assert prices.keys() == {"speedup", *UNITS}
        assert 0 <= prices["speedup"] <= 1
    assert set(KIN.values()) <= PRIORS.keys()


def test_coefficient_fit_recovers_the_coefficients_that_generated_run_times() -> None:
    plans, workloads = measured(300, Platform.POLARS)
    found = prices_of({Platform.POLARS: PricedPlans.of(plans, workloads, Platform.POLARS)})
    polars = found["polars"]
    for name, price in TRUE.items():
        assert polars[name] == pytest.approx(price, rel=0.35), name
    assert polars["speedup"] == pytest.approx(SPEEDUP, abs=0.05)


def test_coefficient_fit_keeps_prior_for_units_without_measurements() -> None:
    plans, workloads = measured(50, Platform.DUCKDB)
    found = prices_of({Platform.DUCKDB: PricedPlans.of(plans, workloads, Platform.DUCKDB)})
    prior = PRIORS[Platform.DUCKDB]
    assert found["duckdb"]["row_window"] == pytest.approx(prior["row_window"], rel=0.01)
    assert found["spark"] == pytest.approx({n: PRIORS[Platform.SPARK][n] for n in found["spark"]})


def test_coefficient_fit_shares_work_coefficients_with_related_platforms() -> None:
    plans, workloads = measured(100, Platform.DUCKDB)
    found = prices_of({Platform.DUCKDB: PricedPlans.of(plans, workloads, Platform.DUCKDB)})
    for name in UNITS:
        moved = found["duckdb"][name] / PRIORS[Platform.DUCKDB][name]
        expected = moved if name in PARALLEL else 1.0
        assert found["pandas"][name] / PRIORS[Platform.PANDAS][name] == pytest.approx(
            expected, rel=0.01
        ), name


def test_coefficient_fit_counts_a_workload_once_for_any_number_of_runs() -> None:
    plans, workloads = measured(40, Platform.DUCKDB)
    once = PricedPlans.of(plans, workloads, Platform.DUCKDB)
    thrice = PricedPlans.of(plans * 3, workloads * 3, Platform.DUCKDB)
    assert prices_of({Platform.DUCKDB: once})["duckdb"] == pytest.approx(
        prices_of({Platform.DUCKDB: thrice})["duckdb"], rel=1e-2
    )


def test_coefficient_fit_excludes_plan_shapes_of_the_held_out_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = ((OperatorKind.SORT,) * count for count in (1, 2))
    judged = query(0, rows=9.0, seconds=1.0, kinds=one, workload="judged/tpch/q0")
    alike = query(1, rows=1e6, seconds=1.0, kinds=one, workload="drawn/1")
    same_text = query(2, rows=1e6, seconds=1.0, kinds=two, workload="drawn/1")
    kept = query(3, rows=1e6, seconds=1.0, kinds=two, workload="drawn/2")
    there = {HELD_OUT_SESSIONS: [judged], SPARK_SESSIONS: [alike, same_text, kept]}
    monkeypatch.setattr(cost_coefficients, "is_measured", there.__contains__)
    monkeypatch.setattr(cost_coefficients, "measured_executions", lambda of=None: there.get(of, []))
    assert fit_shipped_prices(tmp_path / "prices.json").executions == {"spark": 1}


@pytest.mark.slow
def test_shipped_cost_coefficients_equal_a_fit_of_the_measured_executions(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    report = fit_shipped_prices(path)
    assert report.executions["duckdb"] > 200
    again, shipped = json.loads(path.read_bytes()), json.loads(PRICES_PATH.read_bytes())
    assert again.keys() == shipped.keys()
    changed = [
        platform
        for platform, prices in shipped.items()
        if again[platform] != pytest.approx(prices, rel=0.05)
    ]
    assert not changed, (
        f"the prices of {', '.join(changed)} are not those of what was measured: fit them with "
        "'fedperf-sim fit-coefficients', then train what corrects them "
        "('fedperf-sim train-base --limited', "
        "'fedperf-sim train-base', 'fedperf-sim calibrate-intervals')"
    )
