"""The cheapest number of executors that meets a deadline, with enough memory for the job."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from fedperf_client.advice.executor_sizes import (
    SHARES,
    ApplicationRuntime,
    ExecutorAdvice,
    better_engine,
    executor_advice,
)
from fedperf_client.advice.spark_application import (
    ApplicationRecord,
    SparkApplication,
    newest_of_each,
)
from fedperf_client.commands.advise_logs import advice_facts, size_rows
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.formatting.facts import texts_of
from fedperf_client.prediction.prediction import (
    Evidence,
    EvidenceSource,
    Prediction,
    StudentT,
)
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_engines.platforms.engine import could_run
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    Measurement,
    PlanOnCluster,
)
from fedperf_shared.workflow.vocabulary import RUNS_PYTHON, Complexity, Platform
from tests.fakes.measured_logs import FakeTask, log_of
from tests.unit.client.executions import START, chain_plan, make_execution

GIB = 2**30
SHELLS = ("Spark shell", "PySparkShell", "Databricks Shell", "livy-session-12", "SparkSQL::host")
TODAY = ClusterConfig(nodes=4, cores=32, memory_bytes=64 * GIB)
CLUSTER = {"spark.executor.cores": "8", "spark.executor.memory": "16g", "spark.master": "yarn"}
SPREAD = 0.1


def query(seconds: float = 50.0, number: int = 0) -> Execution:
    return make_execution(
        number,
        workload="nightly",
        plan=chain_plan(platform=Platform.SPARK),
        cluster=TODAY,
        measurement=Measurement(seconds),
    )


def ran(
    *queries: Execution, settings: dict[str, str] = CLUSTER, **changes: object
) -> SparkApplication:
    values: dict[str, object] = {
        "name": "Nightly (app-1)",
        "group": "nightly",
        "queries": queries or (query(), query()),
        "cluster": TODAY,
        "settings": SparkSettings.of("4.0.0", settings),
        "wall_seconds": 110.0,
        "non_query_seconds": 10.0,
        "held_bytes": 3.0 * GIB,
        "spilled_bytes": 0,
    }
    return SparkApplication(**{**values, **changes})  # type: ignore[arg-type]


def by(
    seconds: Callable[[PlanOnCluster], float],
) -> Callable[[Sequence[PlanOnCluster]], list[Prediction]]:
    """Return a predictor with these median seconds and an uncertainty of about ten percent."""

    def estimates(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [Prediction(math.log(seconds(each)), StudentT(SPREAD, 1e6)) for each in questions]

    return estimates


HALVES = by(lambda asked: 1600 / asked.cluster.cores)
"""Time is halved by twice the cores."""

ROOTS = by(lambda asked: 50.0 * (32 / asked.cluster.cores) ** 0.5)
"""Time is halved by four times the cores: 210, 151, 110 and 81 s for 1, 2, 4 and 8 executors."""


def core_seconds(cluster: ClusterConfig, seconds: float) -> float:
    return cluster.cores * seconds


def shown(advice: ExecutorAdvice) -> dict[str | None, str]:
    facts = texts_of(advice_facts(advice, None))
    return {heading: str(text) for heading, text in facts.items()}


def advised(application: SparkApplication | None = None, **asked: object) -> ExecutorAdvice:
    return executor_advice(application or ran(), HALVES, core_seconds, **asked)  # type: ignore[arg-type]


def test_executor_advice_varies_number_and_fixes_cores_and_memory() -> None:
    found = advised()
    assert [each.executors for each in found.runtimes] == [1, 2, 4, 8]
    assert [each.cluster.cores for each in found.runtimes] == [8, 16, 32, 64]
    assert [each.cluster.memory_bytes for each in found.runtimes] == [
        n * GIB for n in (16, 32, 64, 128)
    ]
    assert found.current.cluster == TODAY


def test_application_runtime_adds_fully_correlated_queries_and_non_query_time() -> None:
    time = advised().current
    assert time.median_seconds == pytest.approx(10 + 2 * 50)
    assert time.p90_seconds == pytest.approx(10 + 2 * 50 * math.exp(SPREAD * 1.2816), rel=1e-3)
    assert time.probability_within(time.p90_seconds) == pytest.approx(0.9)
    assert time.probability_within(11.0) == 0.0
    assert time.probability_within(1e6) == 0.99


def test_runtime_prediction_is_at_least_task_seconds_divided_by_slots() -> None:
    """The job has 2,880 task seconds in 90 s on 32 cores, and 20 s without any task."""
    application = ran(task_seconds=2880.0, idle_seconds=20.0)
    optimist = by(lambda _: 50.0)
    found = executor_advice(application, optimist, core_seconds, deadline_seconds=150.0)
    medians = {each.cluster.cores: each.median_seconds for each in found.runtimes}
    assert medians[8] == pytest.approx(20 + 360)
    assert medians[16] == pytest.approx(20 + 180)
    assert [medians[32], medians[64]] == pytest.approx([110, 110])
    for each in found.runtimes:
        least = application.least_seconds(each.cluster.cores)
        assert min(each.seconds) >= least - 1e-9
        assert each.probability_within(least * 0.99) == 0.0
        assert each.p90_seconds > each.median_seconds
    assert found.best.cluster.cores == 32


def test_stages_with_a_slot_per_task_do_not_get_faster_with_more_cores() -> None:
    """One stage of 80 s runs all tasks at once on 32 cores. 20 s have no task."""
    application = ran(task_seconds=2560.0, idle_seconds=20.0, low_parallelism_seconds=80.0)
    assert application.least_seconds(64) == pytest.approx(100.0)
    assert application.least_seconds(16) == pytest.approx(20 + 160)
    found = executor_advice(application, by(lambda _: 50.0), core_seconds, deadline_seconds=105.0)
    today, more = (x for x in found.runtimes if x.cluster.cores in (32, 64))
    assert more.median_seconds >= 100.0
    assert more.probability_within(150.0) >= today.probability_within(150.0)


def test_least_seconds_counts_slots_by_cores_per_task() -> None:
    application = ran(task_seconds=1000.0, settings={**CLUSTER, "spark.task.cpus": "4"})
    assert application.least_seconds(8) == pytest.approx(500.0)


def test_runtime_of_concurrent_queries_is_not_their_sum() -> None:
    at_once = ran(wall_seconds=60.0, non_query_seconds=10.0)
    assert advised(at_once).current.median_seconds == pytest.approx(60.0)


def test_cheapest_executor_number_that_meets_deadline_is_chosen() -> None:
    found = executor_advice(ran(), ROOTS, core_seconds, deadline_seconds=180.0)
    assert (found.best.executors, found.meets_deadline) == (2, True)
    assert found.conf == (
        "--conf spark.executor.instances=2",
        "--conf spark.executor.cores=8",
        "--conf spark.executor.memory=16g",
    )


def test_executor_number_with_probability_below_ninety_percent_misses_deadline() -> None:
    found = advised(deadline_seconds=220.0)  # median with 2 executors: 210 s, about ten percent off
    assert found.best.executors == 4
    assert 0.5 < found.runtimes[1].probability_within(220.0) < 0.9


def test_unmeetable_deadline_gives_most_probable_executor_number() -> None:
    found = advised(deadline_seconds=55.0)
    assert (found.best.executors, found.meets_deadline) == (8, False)


def test_deadline_out_of_reach_for_all_sizes_keeps_current_size() -> None:
    found = advised(deadline_seconds=12.0)
    assert (found.best, found.meets_deadline) == (found.current, False)
    texts = shown(found)
    assert texts["recommended"].startswith("keep 4 executors of 8 cores: ")
    assert texts["meets the deadline"] == "no compared size does"
    beside = advised(deadline_seconds=9.0)
    assert "outside of queries alone is longer" in shown(beside)["meets the deadline"]


def test_executor_advice_without_deadline_takes_fastest_or_cheapest_size() -> None:
    cheapest = executor_advice(ran(), ROOTS, core_seconds, is_cost_first=True)
    assert cheapest.best.executors == 1
    assert advised().best.executors == 8
    flat = executor_advice(ran(), by(lambda _: 50.0), core_seconds)
    assert flat.best.executors == 1  # more executors gain nothing


def spread_by(
    spreads: dict[int, float], exponent: float
) -> Callable[[Sequence[PlanOnCluster]], list[Prediction]]:
    """Return a predictor whose medians follow a power of the cores, with these widths by cores."""

    def estimates(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [
            Prediction(
                math.log(50.0 * (32 / each.cluster.cores) ** exponent),
                StudentT(spreads[each.cluster.cores], 1e6),
            )
            for each in questions
        ]

    return estimates


@pytest.mark.parametrize("deadline", [115.0, 140.0, 180.0, 250.0])
def test_more_executors_with_faster_median_never_lower_deadline_probability(
    deadline: float,
) -> None:
    asked = spread_by({8: 0.01, 16: 0.02, 32: 0.3, 64: 0.9}, 0.1)
    found = executor_advice(ran(), asked, core_seconds)
    chances = [each.probability_within(deadline) for each in found.runtimes]
    assert chances == sorted(chances)
    assert [each.p90_seconds for each in found.runtimes] == sorted(
        (each.p90_seconds for each in found.runtimes), reverse=True
    )
    told = [asked([PlanOnCluster(chain_plan(), TODAY)])[0].seconds_at(share) for share in SHARES]
    assert found.current.seconds == pytest.approx([10.0 + 2 * each for each in told])


def test_more_executors_with_slower_median_lower_deadline_probability() -> None:
    asked = spread_by({8: 0.1, 16: 0.1, 32: 0.1, 64: 0.1}, -0.5)
    chances = [
        each.probability_within(115.0)
        for each in executor_advice(ran(), asked, core_seconds).runtimes
    ]
    assert chances == sorted(chances, reverse=True)
    assert (chances[0] > 0.9, chances[-1] < 0.1) == (True, True)


def whole(error_correlation: float, *, times: float = 1.0) -> ApplicationRuntime:
    """Return a runtime with median 100 s times `times`. P25 and P75 are a fifth off."""
    seconds = tuple(100.0 * times * 1.44 ** (2 * (share - 0.5)) for share in SHARES)
    return ApplicationRuntime(TODAY, 4, seconds, error_correlation, extrapolating=False, cost=times)


def test_comparison_of_two_runtimes_uses_the_smaller_error_correlation() -> None:
    alone, both = whole(0.0, times=0.8), whole(0.9, times=0.8)
    for first, second in ((alone, whole(0.9)), (both, whole(0.0))):
        for chance in (first.probability_faster(second), first.probability_cheaper(second)):
            assert chance == pytest.approx(alone.probability_faster(whole(0.0)))
    assert both.probability_faster(whole(0.9)) > alone.probability_faster(whole(0.0)) + 0.05


def test_indistinguishable_rival_is_named_and_current_size_is_recommended() -> None:
    a_little = by(lambda asked: 50.0 - 0.5 * (asked.cluster.cores == 64) + 60 * _is_small(asked))
    found = executor_advice(ran(), a_little, lambda _, seconds: seconds)
    assert (found.best, found.best.executors) == (found.current, 4)
    assert found.rival is not None
    assert found.rival.executors == 8
    texts = shown(found)
    assert texts["recommended"].startswith("keep 4 executors of 8 cores: ")
    assert texts["not distinguishable"].startswith("8 executors of 8 cores: ")
    assert "cheaper with a probability of only" in texts["not distinguishable"]
    quicker = executor_advice(ran(), a_little, lambda _, seconds: 1.0)
    assert "faster with a probability of only" in shown(quicker)["not distinguishable"]
    told = executor_advice(ran(), HALVES, lambda _, seconds: seconds)
    assert (told.best.executors, told.rival) == (8, None)


def _is_small(asked: PlanOnCluster) -> bool:
    return asked.cluster.cores < TODAY.cores


def test_current_size_that_misses_deadline_is_replaced_without_naming_a_rival() -> None:
    found = executor_advice(ran(), HALVES, core_seconds, deadline_seconds=100.0)  # now: 110 s
    assert (found.best.executors, found.rival) == (8, None)


def test_conf_for_dynamic_allocation_and_local_mode_uses_their_settings() -> None:
    dynamic = {**CLUSTER, "spark.dynamicAllocation.enabled": "true"}
    assert advised(ran(settings=dynamic)).conf[0] == (
        "--conf spark.dynamicAllocation.maxExecutors=8"
    )
    local = {"spark.master": "local[*]", "spark.driver.memory": "30g"}
    one = replace(TODAY, nodes=1, cores=4)
    queries = tuple(replace(query(), cluster=one) for _ in range(2))
    found = advised(ran(*queries, settings=local, cluster=one), deadline_seconds=1000.0)
    assert [each.cluster.cores for each in found.runtimes] == [1, 2, 4, 8]
    assert found.conf == ("--master local[4]", "--conf spark.driver.memory=30g")


def test_conf_on_databricks_is_empty() -> None:
    databricks = {**CLUSTER, "spark.databricks.clusterUsageTags.cloudProvider": "Azure"}
    found = advised(ran(settings=databricks))
    assert found.conf == ()


def test_conf_reproduces_executor_memory_exactly_as_set() -> None:
    odd = {**CLUSTER, "spark.executor.memory": "47016m"}
    assert advised(ran(settings=odd)).conf[-1] == "--conf spark.executor.memory=47016m"


def test_conf_sets_unknown_executor_memory_only_when_requested() -> None:
    untold = {name: value for name, value in CLUSTER.items() if "memory" not in name}
    found = advised(ran(settings=untold, held_bytes=0.0))
    assert not any("memory" in each for each in found.conf)
    asked = advised(ran(settings=untold, held_bytes=0.0), memory_bytes=8 * GIB)
    assert asked.conf[-1] == "--conf spark.executor.memory=8g"


def test_low_parallelism_stages_are_reported_where_more_cores_are_advised() -> None:
    wide, narrow = (advised(ran(low_parallelism_seconds=each)) for each in (0.0, 40.0))
    assert narrow.best.cluster.cores > TODAY.cores
    assert "stages with idle cores" not in shown(wide)
    assert shown(narrow)["stages with idle cores"].startswith("40 s, which more cores shorten")


def test_executor_memory_below_measured_need_is_refused() -> None:
    assert advised(memory_bytes=8 * GIB).conf[-1] == "--conf spark.executor.memory=8g"
    with pytest.raises(InvalidInputError, match="less than the 5420m that its tasks need"):
        advised(memory_bytes=5 * GIB)  # needed: 3 GiB / 0.6 + 300 MiB
    with pytest.raises(InvalidInputError, match="spilled"):
        advised(ran(spilled_bytes=1), memory_bytes=12 * GIB)


def test_held_bytes_are_largest_task_plus_mean_of_concurrent_others(tmp_path: Path) -> None:
    tasks = [FakeTask(1000, 2000, held=held) for held in (4 * GIB, *[GIB // 100] * 99)]
    (job,), _ = log_of(tasks).jobs(tmp_path)
    record = ApplicationRecord()
    record.add_job(job)
    record.add_query(query())
    found = record.finish()
    assert found is not None
    at_once = min(job.settings.executor_cores or job.cores, 100)
    mean = (4 * GIB + 99 * (GIB // 100)) / 100
    assert found.held_bytes == pytest.approx(4 * GIB + (at_once - 1) * mean)


def _moved(job: JobFacts, at: int, took: int) -> JobFacts:
    """Return the job at another time."""
    return replace(job, query=replace(job.query, started_at=at, ended_at=at + took))


def test_time_before_the_first_query_is_counted_once(tmp_path: Path) -> None:
    (job,), _ = log_of([FakeTask(1000, 11_000)]).jobs(tmp_path)  # starts at 1 s of the application
    began = START.timestamp() + 15.0
    counted = replace(
        query(),
        finished_at=START + timedelta(seconds=20),
        measurement=Measurement(5.0, startup_seconds=15.0),
    )
    shift = round(1000 * (began - 14.0)) - job.query.started_at
    record = ApplicationRecord()
    record.add_job(_moved(job, job.query.started_at + shift, 10_000))
    record.add_job(_moved(job, round(1000 * began), 5000))
    record.add_query(counted)
    found = record.finish()
    assert found is not None
    assert found.wall_seconds == pytest.approx(20.0)  # from the submission to the end
    assert found.non_query_seconds == pytest.approx(15.0)
    assert found.low_parallelism_seconds == pytest.approx(5.0)  # at most the query time


def test_application_record_separates_task_seconds_and_idle_seconds(tmp_path: Path) -> None:
    """Two tasks run in parallel from second 1 to 5, one from second 7 to 10."""
    stages = [[FakeTask(1000, 5000), FakeTask(1000, 5000)], [FakeTask(7000, 10_000)]]
    (job,), _ = log_of(*stages).jobs(tmp_path)
    record = ApplicationRecord()
    record.add_job(job)
    ended = datetime.fromtimestamp(job.query.end / 1000, UTC)
    record.add_query(replace(query(10.0), finished_at=ended))
    found = record.finish()
    assert found is not None
    assert found.task_seconds == pytest.approx(11.0)
    assert found.idle_seconds == pytest.approx(found.wall_seconds - 7.0)
    assert found.least_seconds(1) >= 11.0


def test_local_engine_is_compared_with_query_time_only() -> None:
    home = ClusterConfig(nodes=1, cores=2, memory_bytes=8 * GIB)

    def seconds(asked: PlanOnCluster) -> float:
        return {Platform.DUCKDB: 40.0, Platform.POLARS: 45.0}.get(asked.plan.platforms[0], 50.0)

    found = executor_advice(
        ran(non_query_seconds=60.0),
        by(seconds),
        core_seconds,
        local_cluster=home,
        could_run=could_run,
    )
    other = better_engine(found)
    assert other is not None
    engine, time, chance = other
    assert engine is Platform.DUCKDB
    assert time.median_seconds == pytest.approx(40.0)
    assert found.current_queries.median_seconds == pytest.approx(50.0)
    assert 0.75 < chance < 0.99


def test_local_engine_without_enough_memory_is_not_offered() -> None:
    small = ClusterConfig(nodes=1, cores=2, memory_bytes=1000)
    assert better_engine(advised(local_cluster=small, could_run=could_run)) is None
    assert better_engine(advised()) is None


def test_local_engine_is_not_offered_for_queries_with_python_code() -> None:
    home = ClusterConfig(nodes=1, cores=2, memory_bytes=8 * GIB)
    asked = query()
    first, *others = asked.plan.workflow.operators
    code = replace(others[-1], code_steps=RUNS_PYTHON, complexity=Complexity.LINEAR)
    workflow = replace(asked.plan.workflow, operators=(first, *others[:-1], code))
    calls = replace(asked, plan=replace(asked.plan, workflow=workflow))
    assert better_engine(advised(ran(asked), local_cluster=home, could_run=could_run)) is not None
    assert better_engine(advised(ran(calls), local_cluster=home, could_run=could_run)) is None


def test_costs_of_compared_sizes_share_one_unit() -> None:
    found = executor_advice(ran(query(900.0)), by(lambda _: 900.0), core_seconds)
    shown = [str(texts_of(row)["cost"]) for row in size_rows(found, None)]
    assert (
        min(each.cost for each in found.runtimes) < 3600 < max(each.cost for each in found.runtimes)
    )
    assert all(each.endswith(" core-hours") for each in shown)


def test_newest_of_each_takes_last_run_and_orders_by_core_seconds() -> None:
    later = replace(query(), finished_at=START + timedelta(days=1))
    small = ran(group="small", wall_seconds=150.0)
    runs = [ran(later), ran(query()), small]
    found = newest_of_each(runs)
    assert [(each.queries, each.runs) for each in found] == [((later,), 2), (small.queries, 1)]
    assert [each.used_core_seconds for each in found] == [
        each.cluster.cores * sum(one.wall_seconds for one in group)
        for each, group in ((runs[0], runs[:2]), (small, [small]))
    ]
    assert [texts_of(advice_facts(advised(each), None))["runs in the logs"] for each in found] == [
        2,
        1,
    ]


def test_newest_of_each_orders_idle_shells_after_working_applications() -> None:
    idle = ran(group="shell", wall_seconds=9000.0, non_query_seconds=8990.0)
    works = ran(group="nightly", wall_seconds=110.0, non_query_seconds=10.0)
    assert [each.group for each in newest_of_each([idle, works])] == ["nightly", "shell"]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("Nightly 2026-03-01 (app-1)", "nightly"),
        *((f"{each} (app-1)", f"{each} (app-1)") for each in SHELLS),
    ],
)
def test_interactive_applications_are_grouped_by_full_name_with_their_id(
    name: str, group: str, tmp_path: Path
) -> None:
    (job,), _ = log_of([FakeTask(1000, 2000)]).jobs(tmp_path)
    record = ApplicationRecord()
    record.add_job(replace(job, application=name))
    record.add_query(query())
    found = record.finish()
    assert found is not None
    assert found.group == group


def test_queries_with_unknown_rows_are_predicted_on_no_other_engine() -> None:
    unknown = replace(query(), origin=ExecutionMetadata(rows_known=0.0))
    here = ClusterConfig(1, 4, 8 * GIB)
    assert set(advised(ran(query()), local_cluster=here, could_run=could_run).engines) != set()
    assert advised(ran(query(), unknown), local_cluster=here, could_run=could_run).engines == {}


def test_prediction_without_known_rows_meets_no_deadline() -> None:
    def estimates(questions: Sequence[PlanOnCluster]) -> list[Prediction]:
        basis = Evidence(EvidenceSource.UNKNOWN_ROWS)
        around = partial(Prediction, evidence=basis, extrapolating=True)
        return [around(0.0, StudentT(SPREAD, 1e6)) for _ in questions]

    found = executor_advice(ran(), estimates, core_seconds, deadline_seconds=1e5)
    assert found.meets_deadline is False
