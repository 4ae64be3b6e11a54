"""Plans on other clusters: properties that follow the cluster, and refused sizes."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.serving.reconfiguration import reconfigure, sizes_of
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.execution import ClusterConfig, Execution, Measurement
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.fakes.plans import diamond
from tests.unit.client.executions import make_execution
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


def test_reconfigure_scales_partitions_equal_to_cores_or_nodes() -> None:
    found = reconfigure(with_partitions(32, 4, 0), FOUR, ClusterConfig(2, 16, 1 << 35))
    assert partitions(found.query.plan)[:3] == [16, 2, 0]
    assert found.query.cluster == ClusterConfig(2, 16, 1 << 35)
    assert not found.keeps_partitions


def test_reconfigure_keeps_other_partitions_and_flags_them() -> None:
    plan = with_partitions(200, 8)
    found = reconfigure(plan, ONE, replace(ONE, cores=4))
    assert partitions(found.query.plan)[:2] == [200, 4]
    assert found.keeps_partitions
    assert not reconfigure(plan, ONE, ONE).keeps_partitions
    assert reconfigure(plan, ONE, ONE).query.plan == plan


@pytest.mark.parametrize("to", [ClusterConfig(2, 16, 1 << 35), replace(ONE, cores=4)])
def test_reconfigure_keeps_single_partition_without_flagging_it(to: ClusterConfig) -> None:
    found = reconfigure(with_partitions(8, 1), ONE, to)
    assert partitions(found.query.plan)[:2] == [to.cores, 1]
    assert not found.keeps_partitions


def test_reconfigure_scales_single_partition_of_single_core() -> None:
    found = reconfigure(with_partitions(1, 1), replace(ONE, cores=1), ClusterConfig(2, 16, 1 << 35))
    assert partitions(found.query.plan)[:2] == [16, 16]
    assert not found.keeps_partitions


def test_sizes_of_whole_node_core_counts_scale_nodes_and_memory() -> None:
    found = sizes_of(FOUR, [8, 12, 64], None)
    assert [(each.nodes, each.cores) for each in found] == [(1, 8), (4, 12), (8, 64)]
    assert [each.memory_bytes for each in found] == [1 << 34, 1 << 36, 1 << 37]
    (one,) = sizes_of(ONE, [64], None)
    assert (one.nodes, one.memory_bytes) == (1, ONE.memory_bytes)


def test_sizes_of_cores_beyond_node_adds_nodes_if_history_has_such_nodes() -> None:
    def asked(*known: tuple[int, int], base: ClusterConfig = ONE) -> list[tuple[int, int]]:
        clusters = [ClusterConfig(nodes, cores, 1 << 34) for nodes, cores in known]
        return [(e.nodes, e.cores) for e in sizes_of(base, [4, 8, 12, 32], None, clusters)]

    alone = [(1, 4), (1, 8), (1, 12), (1, 32)]
    spread = [(1, 4), (1, 8), (1, 12), (4, 32)]
    assert asked() == alone
    assert asked((1, 8), (1, 4)) == alone
    assert asked((2, 16)) == asked((1, 8), (2, 16), (4, 32)) == spread
    assert asked((2, 16), base=replace(ONE, cores=4)) == spread  # a smaller run of the same job
    assert asked((2, 16), (1, 64)) == alone  # larger nodes exist
    assert asked((2, 8)) == alone  # the given node is larger
    (four,) = sizes_of(ONE, [32], None, [replace(ONE, nodes=2, cores=16)])
    assert four.memory_bytes == 4 * ONE.memory_bytes


SECONDS_ON = {1: 500.0, 2: 260.0, 4: 140.0, 8: 80.0}


def on_nodes(nodes: int, share: float, repeat: int) -> Execution:
    """Return a Spark job of 400 million rows times `share` on nodes of 4 cores each."""
    rows, cores = 4e8 * share, 4 * nodes
    kinds = (OperatorKind.FILE_SOURCE, OperatorKind.FILTER, OperatorKind.AGGREGATE)
    operators = tuple(
        Operator(kind, OperatorClass.RELATIONAL, (at - 1,) if at else (), rows, 40.0, partitions=n)
        for at, (kind, n) in enumerate(zip(kinds, (cores, cores, 0), strict=True))
    )
    return make_execution(
        workload="nightly",
        execution_id=f"on-{nodes}-{share}-{repeat}",
        plan=Plan.on_one_platform(Workflow(operators), Platform.SPARK),
        cluster=ClusterConfig(nodes, cores, nodes << 34),
        measurement=Measurement(
            20 * (1 - share) + share * SECONDS_ON[nodes] * (0.98 + 0.02 * repeat), 1e3, 0, 1, 1
        ),
    )


@pytest.fixture(scope="module")
def of_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nodes") / "home"
    assert run(cli.main, "--home", directory, "init").code == 0
    with ExecutionStore.open(Home(directory).store) as store:
        store.add(
            on_nodes(nodes, share, repeat)
            for nodes in SECONDS_ON
            for share in (1.0, 0.5, 0.25)
            for repeat in range(3)
        )
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("base", SECONDS_ON)
def test_predict_from_multi_node_history_scales_nodes_and_matches_measurements(
    base: int, of_nodes: Path
) -> None:
    asked = ("--execution", f"on-{base}-1.0-1", "--cores", "4,8,16,32", "--json")
    found = run(cli.main, "--home", of_nodes, "predict", *asked).json()
    assert isinstance(found, dict)
    assert [each["nodes"] for each in found["predictions"]] == [1, 2, 4, 8]
    for each in found["predictions"]:
        assert each["p50_seconds"] == pytest.approx(SECONDS_ON[each["nodes"]], rel=0.15)
        assert not each["extrapolating"]


def test_predict_with_more_cores_per_node_than_measured_is_extrapolating(of_nodes: Path) -> None:
    asked = ("--execution", "on-1-1.0-1", "--cores", "4,6,16", "--json")
    found = run(cli.main, "--home", of_nodes, "predict", *asked).json()
    assert isinstance(found, dict)
    rows = [(each["nodes"], each["cores"], each["extrapolating"]) for each in found["predictions"]]
    assert rows == [(1, 4, False), (1, 6, True), (4, 16, False)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("homes") / "home"
    assert run(cli.main, "--home", directory, "init").code == 0
    assert run(cli.main, "--home", directory, "ingest", NIGHTLY).code == 0
    return directory


@pytest.mark.slow
def test_predict_at_other_worker_counts_matches_measured_campaign_times(home: Path) -> None:
    """Queries are runs on one worker. Predictions for two and four are within 15 %."""
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
        assert [each["cores"] for each in found["predictions"]] == [1, 2, 4]
        for each in found["predictions"]:
            truth = np.mean(measured[size, each["cores"]])
            assert each["p50_seconds"] == pytest.approx(truth, rel=0.15)
            assert not each["fixed_partitions"]
