"""Tests of Wayang's cost model against the loads of its property files."""

import os
from pathlib import Path

import pytest

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from fedperf_simulations.baselines.cost_models import InvalidWayangCostsError, WayangCosts

DATA = os.environ.get("FEDPERF_DATA")
CLUSTER = ClusterConfig(nodes=1, cores=1, memory_bytes=2**30, machine_speed=1.0)
ROWS = 1_000_000.0

needs_data = pytest.mark.skipif(not DATA, reason="FEDPERF_DATA names no folder of public data")


def chain(*kinds: OperatorKind, iterations: int = 0) -> Workflow:
    return Workflow(
        tuple(
            Operator(
                kind,
                OperatorClass.RELATIONAL,
                inputs=(position - 1,) if position else (),
                output_rows=ROWS,
                row_bytes=8,
                iterations=iterations if kind is OperatorKind.ML_TRAIN else 0,
            )
            for position, kind in enumerate(kinds)
        )
    )


@pytest.fixture
def costs() -> WayangCosts:
    return WayangCosts.read(Path(str(DATA)) / "wayang")


@needs_data
def test_wayang_costs_match_the_loads_of_the_property_files(costs: WayangCosts) -> None:
    workflow = chain(OperatorKind.FILE_SOURCE, OperatorKind.FILTER)
    java = (1500 * ROWS + 1_400_000 + 25 * ROWS + 350_000) / 2.7e9
    spark = 4.5 + (700 * ROWS + 56_789 + 500 * ROWS + 56_789) / 2.7e9
    plans = [Plan.on_one_platform(workflow, p) for p in (Platform.DUCKDB, Platform.SPARK)]
    assert [costs.seconds(plan, CLUSTER) for plan in plans] == pytest.approx([java, spark])


@needs_data
def test_wayang_costs_of_platform_switch_are_added(costs: WayangCosts) -> None:
    workflow = chain(OperatorKind.FILE_SOURCE, OperatorKind.FILTER)
    mixed = Plan(workflow, (Platform.SPARK, Platform.POLARS))
    apart = 4.5 + (700 * ROWS + 56_789 + 25 * ROWS + 350_000) / 2.7e9
    switch = (100 * ROWS + 56_789 + 4 * ROWS + 1_000_000) / 2.7e9
    assert costs.seconds(mixed, CLUSTER) == pytest.approx(apart + switch)


@needs_data
def test_wayang_costs_of_training_scale_with_iterations(costs: WayangCosts) -> None:
    one, ten = (
        costs.seconds(
            Plan.on_one_platform(chain(OperatorKind.ML_TRAIN, iterations=rounds), Platform.PANDAS),
            CLUSTER,
        )
        for rounds in (1, 10)
    )
    assert ten == pytest.approx(10 * one)


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "in0 ** 2", "in0 +", "in0 if in1 else 1"]
)
def test_wayang_costs_with_unsupported_expression_are_refused(
    tmp_path: Path, expression: str
) -> None:
    text = f'wayang.java.map.load = {{\\\n  "cpu":"${{{expression}}}"\\\n}}\n'
    for name in ("java", "spark"):
        (tmp_path / f"wayang-{name}-defaults.properties").write_text(text)
    with pytest.raises(InvalidWayangCostsError, match="no sum of products"):
        WayangCosts.read(tmp_path)


def test_wayang_costs_with_missing_loads_are_refused_naming_them(tmp_path: Path) -> None:
    (tmp_path / "wayang-java-defaults.properties").write_text("wayang.java.cpu.mhz = 2700\n")
    with pytest.raises(InvalidWayangCostsError, match="entries: cogroup, distinct"):
        WayangCosts.read(tmp_path)
