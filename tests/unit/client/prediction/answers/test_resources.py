"""The same work on other resources: what follows from them follows, and cannot be is not asked."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from fedperf_client import cli
from fedperf_client.prediction.answers.resources import moved, sizes_of
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Plan
from tests.fakes.plans import diamond
from tests.unit.shared.console_programs import run

NIGHTLY = Path(__file__).parents[4] / "cases" / "nightly" / "executions.parquet"
ONE = ClusterConfig(nodes=1, cores=8, memory_bytes=1 << 34)
FOUR = ClusterConfig(nodes=4, cores=32, memory_bytes=1 << 36)


def with_partitions(*numbers: int) -> Plan:
    plan = diamond()
    operators = list(plan.workflow.operators)
    for place, number in enumerate(numbers):
        operators[place] = replace(operators[place], partitions=number)
    return replace(plan, workflow=replace(plan.workflow, operators=tuple(operators)))


def partitions(plan: Plan) -> list[int]:
    return [each.partitions for each in plan.workflow.operators]


def test_partitions_that_are_the_cores_or_the_nodes_follow_them() -> None:
    found = moved(with_partitions(32, 4, 0), FOUR, ClusterConfig(2, 16, 1 << 35))
    assert partitions(found.question.plan)[:3] == [16, 2, 0]
    assert found.question.cluster == ClusterConfig(2, 16, 1 << 35)
    assert not found.keeps_partitions


def test_partitions_of_another_reason_stay_and_that_is_said() -> None:
    plan = with_partitions(200, 8)
    found = moved(plan, ONE, replace(ONE, cores=4))
    assert partitions(found.question.plan)[:2] == [200, 4]
    assert found.keeps_partitions
    assert not moved(plan, ONE, ONE).keeps_partitions
    assert moved(plan, ONE, ONE).question.plan == plan


def test_cores_of_whole_nodes_are_nodes_and_bring_their_memory() -> None:
    found = sizes_of(FOUR, [8, 12, 64], None)
    assert [(each.nodes, each.cores) for each in found] == [(1, 8), (4, 12), (8, 64)]
    assert [each.memory_bytes for each in found] == [1 << 34, 1 << 36, 1 << 37]
    (one,) = sizes_of(ONE, [64], None)
    assert (one.nodes, one.memory_bytes) == (1, ONE.memory_bytes)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("homes") / "home"
    assert run(cli.main, "--home", directory, "init").code == 0
    assert run(cli.main, "--home", directory, "ingest", NIGHTLY).code == 0
    return directory


def test_predictions_of_a_campaign_at_other_workers_are_what_was_measured(home: Path) -> None:
    """Asked about a run on one worker, within 15 % of what two and four workers took."""
    measured: dict[tuple[float, int], list[float]] = {}
    for each in executions_of(NIGHTLY):
        assert each.measurement is not None
        size = each.plan.workflow.operators[0].output_rows
        key = (size, each.cluster.cores)
        measured.setdefault(key, []).append(each.measurement.runtime_seconds)
    alone = [each for each in executions_of(NIGHTLY) if each.cluster.cores == 1]
    by_size = groupby(
        sorted(alone, key=lambda each: each.plan.workflow.operators[0].output_rows),
        key=lambda each: each.plan.workflow.operators[0].output_rows,
    )
    asked = {size: next(group).execution_id for size, group in by_size}
    assert len(measured) == 12
    assert len(asked) == 4
    for size, execution in asked.items():
        arguments = ("--execution", execution, "--cores", "1,2,4", "--json")
        found = run(cli.main, "--home", home, "predict", *arguments).json()
        assert isinstance(found, dict)
        assert [each["cores"] for each in found["answers"]] == [1, 2, 4]
        for each in found["answers"]:
            truth = np.mean(measured[size, each["cores"]])
            assert each["p50_seconds"] == pytest.approx(truth, rel=0.15)
            assert not each["keeps_partitions"]
