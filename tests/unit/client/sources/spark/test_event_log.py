"""Tests of Spark event logs: labels, rows and resources of executions, and skip reasons."""

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from fedperf_client.sources import NothingToReadError, UnknownSourceError, open_source
from fedperf_client.sources.history_file import HistoryFile
from fedperf_client.sources.spark import event_log
from fedperf_client.sources.spark.event_log import TORN, Events, open_event_log
from fedperf_client.sources.spark.reader import USED_EVENTS
from fedperf_shared.execution import Execution, ExecutionStatus, ExecutionWarning
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.fakes.spark_logs import APP_START, SQL, SparkLog, grouped, node, read_log

SCAN = node("Scan parquet secret.table", rows=1)
COUNTERS = {1: 1000, 2: 90, 3: 30, 103: 90, 104: 1800, 105: 8}
K = OperatorKind


def only(log: SparkLog, path: Path) -> Execution:
    (execution,), skipped = read_log(log.write(path / "log"))
    assert skipped == []
    return execution


def reasons(log: SparkLog, path: Path) -> list[str]:
    found, skipped = read_log(log.write(path / "log"))
    assert found == []
    return [each.reason for each in skipped]


def test_event_log_query_becomes_execution_with_wall_time_and_rows(tmp_path: Path) -> None:
    found = only(SparkLog().begin().query(7, grouped(SCAN), COUNTERS), tmp_path)
    operators = found.plan.workflow.operators
    assert [each.kind for each in operators] == [
        K.FILE_SOURCE,
        K.AGGREGATE,
        K.EXCHANGE,
        K.AGGREGATE,
    ]
    assert [each.output_rows for each in operators] == [1000, 90, 90, 30]
    assert [each.inputs for each in operators] == [(), (0,), (1,), (2,)]
    assert operators[2].row_bytes == 20.0
    assert operators[2].partitions == 8
    assert operators[1].key_distinct_ratio == 0.09
    assert set(found.plan.platforms) == {Platform.SPARK}
    assert found.status is ExecutionStatus.OK
    assert found.measurement is not None
    assert found.measurement.runtime_seconds == 2.0
    assert found.finished_at.timestamp() == (APP_START + 3000) / 1000
    assert found.origin.source == "spark 4.3.0"
    assert found.origin.architecture == "amd64"
    assert found.origin.rows_known == 1.0
    assert found.origin.remarks == ()


def test_event_log_executors_determine_cluster(tmp_path: Path) -> None:
    log = SparkLog().begin(cores=4, executors=2, memory="4g").query(7, grouped(SCAN), COUNTERS)
    cluster = only(log, tmp_path).cluster
    assert (cluster.nodes, cluster.cores, cluster.memory_bytes) == (2, 8, 8 * 1024**3)


def test_event_log_stage_totals_are_summed_into_measurement(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN))
    for at in (1100, 1500):
        totals = {
            "executorCpuTime": 2_000_000_000,
            "executorDeserializeCpuTime": 500_000_000,
            "input.bytesRead": 700,
            "output.bytesWritten": 30,
        }
        log.job(7, COUNTERS, at=at, end=at + 100, totals=totals)
    measured = only(log.finish(7), tmp_path).measurement
    assert measured is not None
    assert (measured.cpu_seconds, measured.read_bytes, measured.written_bytes) == (5.0, 1400, 60)


def test_event_log_uses_plan_of_last_update_and_keeps_workload(tmp_path: Path) -> None:
    first = only(SparkLog().begin().query(7, grouped(SCAN), COUNTERS), tmp_path)
    log = SparkLog().begin().start(7, grouped(SCAN))
    changed = grouped(node("AQEShuffleRead", node("Exchange", SCAN, moved=50)))
    log.add(SQL + "SparkListenerSQLAdaptiveExecutionUpdate", executionId=7, sparkPlanInfo=changed)
    second = only(log.job(7, COUNTERS).finish(7), tmp_path)
    assert len(second.plan.workflow.operators) == 5
    assert second.workload == first.workload


def test_event_log_uses_last_of_many_plan_updates_for_each_query(tmp_path: Path) -> None:
    update = SQL + "SparkListenerSQLAdaptiveExecutionUpdate"
    log = SparkLog().begin()
    for query in range(3):
        log.start(query, grouped(SCAN)).job(query, COUNTERS)
    for wide in range(1, 30):
        for query in range(3):
            scans = [node("Scan orc", rows=1000 + each) for each in range(wide + query)]
            log.add(update, executionId=query, sparkPlanInfo=node("Union", *scans))
    for query in range(3):
        log.finish(query)
    found, skipped = read_log(log.write(tmp_path / "log"))
    assert [len(each.plan.workflow.operators) for each in found] == [30, 31, 32]
    assert skipped == []


def test_event_log_holds_at_most_max_held_bytes_of_plan_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_HELD_BYTES", 5000)
    update = SQL + "SparkListenerSQLAdaptiveExecutionUpdate"
    log = SparkLog().begin()
    for query in range(200):
        log.add(update, executionId=query, sparkPlanInfo=grouped(SCAN))
    reading = Events(USED_EVENTS)
    for _ in reading.of(log.write(tmp_path / "log")):
        assert sum(len(line) for _, line in reading._updates.values()) <= 5000


def test_event_log_reused_exchange_is_one_operator(tmp_path: Path) -> None:
    exchange = node("BroadcastExchange", node("Project", SCAN), rows=20, size=99)
    left = node("BroadcastHashJoin", node("Scan orc", rows=21), exchange, rows=22)
    plan = node("SortMergeJoin", left, node("ReusedExchange", exchange), rows=23)
    found = only(
        SparkLog().begin().query(7, plan, {1: 5, 20: 5, 21: 9, 22: 9, 23: 9, 99: 10**9}), tmp_path
    )
    assert max(each.row_bytes for each in found.plan.workflow.operators) < 1000
    kinds = [each.kind for each in found.plan.workflow.operators]
    expected = [K.FILE_SOURCE, K.FILE_SOURCE, K.MAP, K.EXCHANGE, K.JOIN, K.JOIN]
    assert sorted(kinds) == sorted(expected)
    shared = kinds.index(K.EXCHANGE)
    assert sum(shared in each.inputs for each in found.plan.workflow.operators) == 2


def test_event_log_cached_table_plan_counts_only_in_the_query_that_built_it(tmp_path: Path) -> None:
    made = node("Project", node("Filter", SCAN, rows=20))
    plan = grouped(node("InMemoryTableScan", node("WholeStageCodegen (1)", made), rows=21), rows=30)
    grouping = {29: 9, 130: 9, 30: 9}
    log = SparkLog().begin().query(7, plan, {1: 1000, 20: 100, 21: 100, **grouping})
    log.query(8, plan, {21: 100, **grouping}, at=5000)
    (first, second), _ = read_log(log.write(tmp_path / "log"))
    kinds = [each.kind for each in first.plan.workflow.operators]
    assert kinds[:4] == [K.FILE_SOURCE, K.FILTER, K.MAP, K.TABLE_SOURCE]
    kinds = [each.kind for each in second.plan.workflow.operators]
    assert kinds == [K.TABLE_SOURCE, K.AGGREGATE, K.EXCHANGE, K.AGGREGATE]
    assert (first.origin.rows_known, second.origin.rows_known) == (1.0, 1.0)
    assert first.workload == second.workload


def test_event_log_infers_missing_rows_from_neighbours(tmp_path: Path) -> None:
    below = node("Project", node("Filter", node("Project", SCAN)))
    plan = node("Sort", node("Exchange", below, moved=5))
    found = only(SparkLog().begin().query(7, plan, {1: 100, 5: 40}), tmp_path)
    rows = [each.output_rows for each in found.plan.workflow.operators]
    assert rows == [100, 100, 40, 40, 40, 40]
    assert found.origin.rows_known == 1.0
    plan = node("SortMergeJoin", node("Filter", SCAN), node("Scan orc"))
    other = only(SparkLog().begin().query(7, plan, {1: 100}), tmp_path)
    assert [each.output_rows for each in other.plan.workflow.operators] == [100, 0, 100, 100]
    assert other.origin.rows_known == 0.25  # only the scan's: all others are estimates


def test_event_log_infers_rows_of_limits_and_unions(tmp_path: Path) -> None:
    union = node("Union", node("Scan orc", rows=1), node("Scan orc", rows=2))
    plan = node("CollectLimit", union, description="CollectLimit 21")
    found = only(SparkLog().begin().query(7, plan, {1: 100, 2: 50}), tmp_path)
    assert sorted(each.output_rows for each in found.plan.workflow.operators) == [21, 50, 100, 150]
    assert found.origin.rows_known == 1.0


def test_event_log_limit_outputs_at_most_its_input_rows(tmp_path: Path) -> None:
    plan = node("CollectLimit", SCAN, description="CollectLimit 21")
    found = only(SparkLog().begin().query(7, plan, {1: 5}), tmp_path)
    assert [each.output_rows for each in found.plan.workflow.operators] == [5, 5]


@pytest.mark.parametrize(("limit", "rows"), [(21, 21), (500, 100)])
def test_event_log_limit_over_estimated_rows_outputs_at_most_the_estimate(
    tmp_path: Path, limit: int, rows: int
) -> None:
    joined = node("SortMergeJoin", SCAN, node("Scan orc", rows=2))
    plan = node("CollectLimit", joined, description=f"CollectLimit {limit}")
    found = only(SparkLog().begin().query(7, plan, {1: 100, 2: 50}), tmp_path)
    assert found.plan.workflow.operators[-1].output_rows == rows


def test_event_log_join_row_width_is_the_sum_of_both_inputs(tmp_path: Path) -> None:
    left = node("Exchange", SCAN, moved=11, size=12)
    right = node("Exchange", node("Scan orc", rows=2), moved=21, size=22)
    counters = {1: 100, 2: 50, 11: 100, 12: 2000, 21: 50, 22: 1500, 3: 70}
    plan = node("SortMergeJoin", left, right, rows=3)
    operators = only(SparkLog().begin().query(7, plan, counters), tmp_path).plan.workflow.operators
    assert sorted(each.row_bytes for each in operators[:-1]) == [20, 20, 30, 30]
    assert (operators[-1].kind, operators[-1].row_bytes) == (K.JOIN, 20 + 30)


def test_event_log_exchange_and_its_reader_are_one_operator(
    tmp_path: Path,
) -> None:
    moved = node("Exchange", SCAN, moved=11, size=12, partitions=13)
    plan = node("AQEShuffleRead", node("ShuffleQueryStage", moved), partitions=14)
    log = SparkLog().begin().query(7, plan, {1: 100, 11: 100, 12: 800, 13: 200, 14: 3})
    operators = only(log, tmp_path).plan.workflow.operators
    assert [(o.kind, o.partitions) for o in operators] == [(K.FILE_SOURCE, 0), (K.EXCHANGE, 3)]


def test_event_log_broadcast_exchange_has_one_partition(tmp_path: Path) -> None:
    sent = node("BroadcastExchange", node("Scan orc", rows=2), size=9)
    plan = node("BroadcastHashJoin", SCAN, sent, rows=3)
    log = SparkLog().begin().query(7, plan, {1: 100, 2: 50, 3: 70})
    operators = only(log, tmp_path).plan.workflow.operators
    assert [o.partitions for o in operators if o.kind is K.EXCHANGE] == [1]


def test_event_log_query_counts_earlier_queries_that_ran_jobs(tmp_path: Path) -> None:
    log = SparkLog().begin()
    for number in (1, 2, 3):
        log.query(number, SCAN, {1: 5})
    log.start(4, SCAN).finish(4)  # without a job: the engine stays cold
    log.query(5, SCAN, {1: 5})
    found, _ = read_log(log.write(tmp_path / "log"))
    assert [each.cluster.queries_before for each in found] == [0, 1, 2, 3, 3]


def test_event_log_first_query_includes_application_startup_seconds(tmp_path: Path) -> None:
    log = SparkLog().begin().query(1, SCAN, {1: 5}, at=7000).query(2, SCAN, {1: 5}, at=9000)
    found, _ = read_log(log.write(tmp_path / "log"))
    assert [each.measurement and each.measurement.startup_seconds for each in found] == [7.0, 0.0]


def test_event_log_repeated_stage_counts_its_rows_once(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, SCAN).job(7, {1: 60}, at=1100).job(7, {1: 80}, at=1200)
    assert only(log.finish(7), tmp_path).plan.workflow.operators[0].output_rows == 80


def test_event_log_with_failed_tasks_adds_a_warning(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN)).job(7, COUNTERS, failed_tasks=1).finish(7)
    assert only(log, tmp_path).origin.remarks == (ExecutionWarning.FAILED_TASKS,)


def test_event_log_failed_query_is_stored_as_failed(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN)).job(7, COUNTERS)
    found = only(log.finish(7, error="Job aborted: /secret/path"), tmp_path)
    assert found.status is ExecutionStatus.FAILED


@pytest.mark.parametrize("ended_first", [False, True])
@pytest.mark.parametrize(
    ("error", "result", "status"),
    [
        (None, "JobSucceeded", ExecutionStatus.OK),
        (None, "JobFailed", ExecutionStatus.FAILED),  # before Spark 3.4 only jobs record it
        ("", "JobFailed", ExecutionStatus.OK),  # such as a cancelled broadcast
        ("boom", "JobSucceeded", ExecutionStatus.FAILED),
    ],
)
def test_event_log_query_status_follows_its_end_else_its_jobs(
    tmp_path: Path, error: str | None, result: str, status: ExecutionStatus, *, ended_first: bool
) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN)).job(7, COUNTERS, result=result)
    log.finish(7, error=error)
    if ended_first:
        log.events[-2:] = reversed(log.events[-2:])
    assert only(log, tmp_path).status is status


def test_event_log_null_root_execution_and_error_are_ignored(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN))
    log.events[-1]["rootExecutionId"] = None
    log.job(7, COUNTERS).finish(7)
    log.events[-1]["errorMessage"] = None
    assert only(log, tmp_path).status is ExecutionStatus.OK


def test_event_log_successful_task_with_spaced_json_is_not_failed(tmp_path: Path) -> None:
    log = SparkLog().begin().query(7, grouped(SCAN), COUNTERS)
    spaced = log.bytes().replace(b'"Task End Reason":{', b'"Task End Reason": {')
    (tmp_path / "log").write_bytes(spaced)
    (found,), skipped = read_log(tmp_path / "log")
    assert (found.origin.remarks, skipped) == ((), [])


def test_event_log_query_end_before_last_job_end_is_deferred(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, grouped(SCAN)).job(7, COUNTERS)
    end = log.events.pop()
    log.finish(7).events.append(end)
    assert only(log, tmp_path).origin.rows_known == 1.0


def test_event_log_job_started_before_its_query_counts(tmp_path: Path) -> None:
    log = SparkLog().begin().job(7, COUNTERS, at=990).start(7, grouped(SCAN)).finish(7)
    found = only(log, tmp_path)
    assert found.origin.rows_known == 1.0
    assert found.measurement is not None
    assert found.measurement.runtime_seconds == 2.01


def test_event_log_nested_query_is_part_of_its_root_query(tmp_path: Path) -> None:
    write = node("Execute InsertIntoHadoopFsRelationCommand", SCAN)
    log = SparkLog().begin().start(7, write, root=7)
    log.start(8, node("Scan parquet secret.table", rows=40), root=7)
    log.job(8, {40: 320}).finish(8).finish(7)
    (found,), (skipped,) = read_log(log.write(tmp_path / "log"))
    assert (skipped.record, skipped.reason) == ("query 8", "a part of another query")
    assert [each.output_rows for each in found.plan.workflow.operators] == [320, 320]
    assert found.origin.rows_known == 1.0


def test_event_log_workload_ignores_date_in_name_and_join_side(tmp_path: Path) -> None:
    left, right = node("Scan parquet a", rows=1), node("Filter", node("Scan orc b", rows=2), rows=3)
    plans = [node("SortMergeJoin", left, right, rows=4)]
    plans += [node("BroadcastHashJoin", node("Exchange", right, moved=9), left, rows=4)]
    names = ["Nightly report 2026-03-01", "nightly_report 2026-03-02T10:11"]
    found = [
        only(SparkLog(app_name=name).begin().query(7, plan, {1: 1, 2: 1, 3: 1, 4: 1}), tmp_path)
        for name, plan in zip(names, plans, strict=True)
    ]
    assert found[0].workload == found[1].workload.replace("-t", "")
    other = SparkLog(app_name=names[0]).begin().query(7, left, {1: 1})
    assert only(other, tmp_path).workload != found[0].workload


def test_event_log_execution_ids_are_stable_and_differ_by_attempt(tmp_path: Path) -> None:
    def ids(app_id: str = "app-1", attempt: str | None = None) -> str:
        log = SparkLog(app_id=app_id, attempt=attempt).begin().query(7, SCAN, {1: 10})
        return only(log, tmp_path).execution_id

    assert ids() == ids()
    assert len({ids(), ids(attempt="2"), ids(app_id="app-2")}) == 3


def _rdd(number: int, call: str, scope: int, parents: list[int]) -> dict[str, object]:
    return {
        "RDD ID": number,
        "Name": "MapPartitionsRDD",
        "Scope": f'{{"id":"{scope}","name":"{call}"}}',
        "Parent IDs": parents,
    }


COUNTED = [("reduceByKey", 3, 3, [2]), ("map", 2, 2, [1]), ("textFile", 1, 1, [0])]
RDDS = [_rdd(number, call, scope, parents) for call, number, scope, parents in COUNTED]
RDDS.append(_rdd(0, "textFile", 1, []))


def test_event_log_job_without_query_becomes_execution(tmp_path: Path) -> None:
    log = SparkLog().begin().job(None, rdds=RDDS, totals={"input.recordsRead": 500})
    found = only(log, tmp_path)
    operators = found.plan.workflow.operators
    assert [each.kind for each in operators] == [K.FILE_SOURCE, K.MAP, K.AGGREGATE]
    assert [each.output_rows for each in operators] == [500, 500, 500]
    assert found.origin.rows_known == pytest.approx(2 / 3)
    assert found.measurement is not None
    assert found.measurement.runtime_seconds == 1.0


def test_event_log_partially_repeated_stage_keeps_rows_of_whole_stage(tmp_path: Path) -> None:
    log = SparkLog().begin().job(None, rdds=RDDS, totals={"input.recordsRead": 500})
    (place,) = (n for n, e in enumerate(log.events) if e["Event"] == "SparkListenerStageCompleted")
    whole = log.events[place]["Stage Info"]
    assert isinstance(whole, dict)
    whole["Number of Tasks"] = 9
    counted = [{**each, "Value": 20} for each in whole["Accumulables"]]
    again = {**whole, "Number of Tasks": 1, "Accumulables": counted}
    log.events.insert(place + 1, {**log.events[place], "Stage Info": again})
    assert only(log, tmp_path).plan.workflow.operators[0].output_rows == 500


def test_event_log_jobs_outside_queries_become_executions(tmp_path: Path) -> None:
    log = SparkLog().begin().job(None, rdds=RDDS).query(7, SCAN, {1: 10}, at=3000)
    log.job(None, rdds=RDDS, at=7000, end=7500)
    found, skipped = read_log(log.write(tmp_path / "log"))
    assert [each.origin.record for each in found] == ["job 0", "query 7", "job 2"]
    assert [each.cluster.queries_before for each in found] == [0, 1, 2]
    assert found[0].workload == found[2].workload != found[1].workload
    assert skipped == []


def test_event_log_job_workload_is_named_by_call_site(tmp_path: Path) -> None:
    def workload(call_site: str, rdds: list[dict[str, object]] = RDDS) -> str:
        log = SparkLog(app_name="Clean 2026-03-01").begin()
        return only(log.job(None, rdds=rdds, call_site=call_site), tmp_path).workload

    first = workload("count at /home/alice/v2.1/clean.py:13")
    assert first.startswith("clean/count-at-clean-py-")
    assert workload("count at /tmp/spark-3f2a9c1e77/clean.py:18") == first
    assert workload("collect at /home/alice/clean.py:13") != first
    assert workload("count at /home/alice/clean.py:13", RDDS[1:]) != first


def test_event_log_job_without_completed_stage_is_skipped(tmp_path: Path) -> None:
    log = SparkLog().begin().job(None, rdds=RDDS)
    log.events = [e for e in log.events if e["Event"] != "SparkListenerStageCompleted"]
    assert reasons(log, tmp_path) == ["no stage of it came to an end"]


def test_event_log_execution_records_application_record_and_description(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, SCAN, description="payroll of ACME\nsecond line")
    log.job(7, {1: 5}).finish(7).job(None, rdds=RDDS, call_site="count at clean.py:13")
    listing = "Listing leaf files for 261 paths:<br/>file:/a, ..."
    log.job(None, rdds=RDDS, call_site="load at clean.py:9", description=listing, at=5000, end=6000)
    log.start(9, SCAN, at=7000).job(9, {1: 5}, description="from the job").finish(9, at=9000)
    found, _ = read_log(log.write(tmp_path / "log"))
    assert {each.origin.application for each in found} == {"Nightly report 2026-03-01"}
    assert {each.origin.application_id for each in found} == {"app-1"}
    assert {each.origin.record: each.origin.description for each in found} == {
        "query 7": "payroll of ACME",
        "job 1": "count at clean.py:13",
        "job 2": "Listing leaf files for 261 paths:",
        "query 9": "from the job",
    }


def test_event_log_long_description_is_truncated(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, SCAN, description="x" * 100_000).job(7, {1: 5}).finish(7)
    assert len(only(log, tmp_path).origin.description) == 400


def test_event_log_operator_records_seconds_of_its_tasks(tmp_path: Path) -> None:
    def timed(plan: dict[str, object], name: str, counter: int, unit: str) -> dict[str, object]:
        more = [{"name": name, "accumulatorId": counter, "metricType": unit}]
        metrics = plan["metrics"]
        assert isinstance(metrics, list)
        return {**plan, "metrics": metrics + more}

    scan = timed(SCAN, "scan time", 50, "timing")
    below = timed(node("Filter", scan, rows=2), "time in the sun", 53, "timing")
    fused = timed(node("WholeStageCodegen (1)", below), "duration", 51, "timing")
    moved = timed(node("Exchange", fused, moved=3), "shuffle write time", 52, "nsTiming")
    counters = {1: 9, 2: 8, 3: 8, 50: 1200, 51: 3400, 52: 5_600_000_000, 53: 77}
    found = only(SparkLog().begin().query(7, node("Project", moved), counters), tmp_path)
    kinds = [each.kind for each in found.plan.workflow.operators]
    assert kinds == [K.FILE_SOURCE, K.FILTER, K.EXCHANGE, K.MAP]
    assert found.origin.operator_seconds == pytest.approx((1.2, 3.4, 5.6, None))


def test_event_log_failed_execution_records_failure_text(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, SCAN).job(7, {1: 5}, result="JobFailed", error="task 3 lost")
    log.finish(7, error="Job aborted: no bytes left\n\tat java.lang.Thread")
    log.job(None, rdds=RDDS, at=4000, end=5000, result="JobFailed", error="python died")
    log.start(8, SCAN, at=6000).job(8, {1: 5}, result="JobFailed", error="called off").finish(8)
    found, _ = read_log(log.write(tmp_path / "log"))
    failed = ExecutionStatus.FAILED
    assert [(each.status, each.origin.failure) for each in found] == [
        (failed, "Job aborted: no bytes left"),
        (failed, "python died"),
        (ExecutionStatus.OK, ""),
    ]


def test_event_log_query_running_at_application_end_is_failed(tmp_path: Path) -> None:
    log = SparkLog().begin().start(7, SCAN).job(7, {1: 5})
    log.events.pop()
    log.start(8, SCAN)  # either waiting or without a logged end
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 9_000)
    (cut,), (skipped,) = read_log(log.write(tmp_path / "log"))
    assert (cut.status, cut.origin.record) == (ExecutionStatus.FAILED, "query 7")
    assert cut.origin.failure == "its application ended before it"
    assert cut.measurement is not None
    assert cut.measurement.runtime_seconds == 8.0
    assert str(skipped) == "query 8: no end: the log stops before it"


def test_event_log_unusable_records_are_skipped_with_a_reason(tmp_path: Path) -> None:
    view = node("Execute CreateViewCommand")
    assert reasons(SparkLog().begin().start(1, SCAN).job(1), tmp_path) == [
        "no end: the log stops before it"
    ]
    assert reasons(SparkLog().begin().start(1, view).finish(1), tmp_path) == [
        "a command of the catalogue that ran no job"
    ]
    assert reasons(SparkLog().begin().start(1, SCAN, at=0).finish(1, at=0), tmp_path) == [
        "took less than a millisecond"
    ]
    assert reasons(SparkLog().begin(executors=0).query(1, SCAN, {1: 1}), tmp_path) == [
        "no executor is known for its time"
    ]
    large = node("Union", *[node("Scan parquet", rows=n) for n in range(600)])
    assert "512 operators" in reasons(SparkLog().begin().query(1, large, {}), tmp_path)[0]
    larger = node("Union", *[node("Scan parquet", rows=n) for n in range(3000)])
    assert "2048 nodes" in reasons(SparkLog().begin().query(1, larger, {}), tmp_path)[0]


def test_event_log_invalid_lines_are_skipped_and_others_read(tmp_path: Path) -> None:
    lines = SparkLog().begin().query(7, SCAN, {1: 10}).bytes().splitlines(keepends=True)
    bad = b'{"Event":"SparkListenerJobStart"}\n{"Event":"SparkListenerJobEnd", oh\nno json\n\n'
    (tmp_path / "log").write_bytes(b"".join([lines[0], bad, *lines[1:]]) + b'{"Event":"Spark')
    found, skipped = read_log(tmp_path / "log")
    assert len(found) == 1
    assert [str(each) for each in skipped] == [
        "line 2 of log: an event holds no usable 'Job ID'",
        f"line 3 of log: {TORN}",
        "line 4 of log: no event",
        "log: cut off in the middle of a line, read up to there; copy the log again, unless it "
        "is still being written",
    ]


def test_event_log_rolled_files_are_read_as_one_and_gaps_are_flagged(tmp_path: Path) -> None:
    directory = tmp_path / "eventlog_v2_app"
    directory.mkdir()
    log = SparkLog().begin().query(7, grouped(SCAN), COUNTERS)
    half = len(log.events) // 2
    for number, part in ((2, log.events[:half]), (10, log.events[half:])):
        SparkLog(events=part).write(directory / f"events_{number}_app")
    (directory / "appstatus_app").touch()
    (found,), skipped = read_log(directory)
    assert (found.origin.remarks, skipped) == ((ExecutionWarning.INCOMPLETE,), [])
    whole = only(log, tmp_path)
    assert replace(found, origin=replace(found.origin, remarks=())) == whole


def test_event_log_damage_between_files_keeps_earlier_plan_update(tmp_path: Path) -> None:
    update = SQL + "SparkListenerSQLAdaptiveExecutionUpdate"
    log = SparkLog().begin().start(7, SCAN)
    log.add(update, executionId=7, sparkPlanInfo=grouped(SCAN))
    content = log.bytes()
    block = b"LZ4Block" + struct.pack("<Biii", 0x15, len(content), len(content), 0) + content
    (tmp_path / "events_1_app").write_bytes(block + b"oh no, oh no, oh no, oh no")
    log.events.clear()
    log.job(7, COUNTERS).finish(7).write(tmp_path / "events_2_app")
    (found,), (skipped,) = read_log(tmp_path)
    assert len(found.plan.workflow.operators) == 4
    assert "an lz4 block has no header" in skipped.reason


def test_event_log_plan_update_with_late_execution_id_is_applied(tmp_path: Path) -> None:
    update = SQL + "SparkListenerSQLAdaptiveExecutionUpdate"
    log = SparkLog().begin()
    for query in range(2):
        log.start(query, SCAN).job(query, COUNTERS)
    for query in range(2):
        plan = node("Union", *[node("Scan orc", rows=50 + each) for each in range(query + 2)])
        log.add(update, physicalPlanDescription="x" * 300, executionId=query, sparkPlanInfo=plan)
    found, _ = read_log(log.finish(0).finish(1).write(tmp_path / "log"))
    assert [len(each.plan.workflow.operators) for each in found] == [3, 4]


@pytest.mark.timeout(20)
def test_open_event_log_of_named_pipe_returns_none_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert open_event_log(tmp_path / "pipe") is None
    for name in ("events_1_app", "eventlog-2024-01-01"):
        os.mkfifo(tmp_path / name)
    assert open_event_log(tmp_path) is None


def test_event_log_rolled_by_databricks_is_read_as_one(tmp_path: Path) -> None:
    log = SparkLog().begin().query(7, grouped(SCAN), COUNTERS)
    SparkLog(events=log.events[:6]).write(tmp_path / "eventlog-2026-03-01--10-00")
    SparkLog(events=log.events[6:9]).write(tmp_path / "eventlog-2026-03-01--11-00")
    SparkLog(events=log.events[9:]).write(tmp_path / "eventlog")
    (found,), skipped = read_log(tmp_path)
    assert (found.origin.rows_known, skipped) == (1.0, [])


@pytest.mark.parametrize("content", [b"hello\n" * 100, b'{"level": "INFO"}\n', b"\x00" * 99])
def test_open_event_log_of_other_content_returns_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert open_event_log(tmp_path / "file") is None
    with pytest.raises(UnknownSourceError, match="not of a kind that can be read"):
        open_source(tmp_path / "file")


HOLDING_NOTHING = {
    "empty": (b"", "empty"),
    "empty when unpacked": (zstandard.compress(b""), "empty"),
    "cut": (zstandard.compress(SparkLog().begin().bytes())[:60], "compressed, and cut off"),
    "cut in its header": (zstandard.compress(b"")[:5], "compressed, and cut off"),
    "damaged": (gzip.compress(b"")[:10] + b"\x07" * 99, "the compressed log is damaged"),
}


@pytest.mark.parametrize("case", HOLDING_NOTHING)
def test_open_source_of_empty_or_damaged_file_names_the_problem(tmp_path: Path, case: str) -> None:
    content, says = HOLDING_NOTHING[case]
    for name in ("log", "x.parquet"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(NothingToReadError, match=f"log: {says}.*copy it again"):
        open_source(tmp_path / "log")
    assert isinstance(open_source(tmp_path / "x.parquet"), HistoryFile)


def test_event_log_truncated_compressed_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    log = SparkLog().begin()
    for number in range(3000):
        log.query(number, SCAN, {1: 10})
    packed = zstandard.compress(log.bytes())
    (tmp_path / "log").write_bytes(packed[: len(packed) // 2])
    found, skipped = read_log(tmp_path / "log")
    assert 0 < len(found) < 3000
    assert "log: cut off in the middle of compressed bytes, read up to there" in str(skipped[0])
