"""Real event logs of Spark 2 to 4, EMR, Dataproc, Databricks and GPUs are read or refused."""

import hashlib
from collections import Counter, defaultdict
from pathlib import Path

import orjson
import pytest

from fedperf_client.diagnosis.job_facts import JobFacts, jobs_of
from fedperf_client.sources import SkippedRecord, UnknownSourceError, find_sources, open_source
from fedperf_client.sources.spark.event_log import EventLogs, lines
from fedperf_client.sources.spark.query import TOTALS
from fedperf_client.sources.spark.reader import NO_PLAN, ONLY_A_COMMAND
from fedperf_shared.execution import Execution, ExecutionWarning
from fedperf_shared.wire.codec import encode_plan
from fedperf_shared.workflow.vocabulary import OperatorKind
from tests.public_data import public_data

WITHOUT_FAILED_TASKS = (
    "nds_q72_dataproc_2_2.zstd",
    "dsAndDf_eventlog.zstd",
    "join_missing_sql_end",
    "cluster_information/eventlog_4nodes_8cores_dynamic_alloc.zstd",
)
PINNED = Path(__file__).parent / "public_workloads.txt"
"""Digests of every log's results when workloads got their names."""

NO_SOURCES = {"LICENSE", "NOTICE", "README.md", "driverlog"}
GPU = {"gpu_eventlog"}


@pytest.fixture(scope="module")
def logs() -> Path:
    return public_data("spark-eventlogs") / "spark-eventlogs"


@pytest.fixture(scope="module")
def found(logs: Path) -> dict[str, list[Execution | SkippedRecord]]:
    """Return the records of every event log by its path."""
    every: dict[str, list[Execution | SkippedRecord]] = {}
    for path, _ in find_sources([logs], []):
        try:
            source = open_source(path)
        except UnknownSourceError:
            assert path.name in NO_SOURCES
            continue
        if isinstance(source, EventLogs):
            every[str(Path(str(path)).relative_to(logs))] = list(source.read())
    return every


def executions(records: list[Execution | SkippedRecord]) -> list[Execution]:
    return [each for each in records if isinstance(each, Execution)]


def queries(records: list[Execution | SkippedRecord]) -> list[Execution]:
    return [each for each in executions(records) if each.origin.record.startswith("query ")]


def jobs(records: list[Execution | SkippedRecord]) -> list[Execution]:
    return [each for each in executions(records) if each.origin.record.startswith("job ")]


def test_every_public_event_log_is_read_or_skipped_with_a_reason(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    assert len(found) == 47
    assert all(found.values())
    (empty,) = found["qualification/empty_eventlog"]
    assert str(empty) == "the log: no query and no job ran"
    assert sum(bool(executions(records)) for records in found.values()) >= 43


def test_public_logs_have_pinned_workloads_ids_and_plans(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    """A workload with a new name would be counted twice in an organization's contributions."""
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    digests = []
    for name, records in found.items():
        told = sorted(
            f"{each.origin.record} {each.workload} {each.execution_id} "
            f"{encode_plan(each.plan).hex()}"
            for each in executions(records)
        )
        digest = hashlib.sha256("\n".join(told).encode()).hexdigest()
        digests.append(f"{digest[:12]} {name}")
    assert sorted(digests) == sorted(pinned)


@pytest.mark.slow
def test_ingestion_and_diagnosis_agree_on_status_cores_and_times(
    found: dict[str, list[Execution | SkippedRecord]], logs: Path
) -> None:
    skipped = Counter[str]()
    for name, records in found.items():
        source = open_source(logs / name)
        assert isinstance(source, EventLogs)
        (log,) = source.logs
        jobs = {str(each.query): each for each in jobs_of(log) if isinstance(each, JobFacts)}
        kept = {each.origin.record: each for each in executions(records)}
        assert kept.keys() <= jobs.keys()
        for record, execution in kept.items():
            job = jobs[record]
            assert (job.query.has_failed, job.cores) == (
                not execution.is_ok,
                execution.cluster.cores,
            )
            assert job.seconds == execution.runtime_seconds
            assert job.query.end / 1000 == execution.finished_at.timestamp()
        reasons = {each.record: each.reason for each in records if isinstance(each, SkippedRecord)}
        skipped.update(reasons[label] for label in jobs.keys() - kept.keys())
    assert skipped.keys() <= {ONLY_A_COMMAND, "no executor is known for its time", NO_PLAN}


def test_driver_output_is_refused_as_unknown_source(logs: Path) -> None:
    with pytest.raises(UnknownSourceError, match="driverlog: not of a kind"):
        open_source(logs / "qualification" / "driverlog")


def test_public_log_of_nds_q72_gives_one_complete_plan(
    found: dict[str, list[Execution | SkippedRecord]], logs: Path
) -> None:
    (query,) = queries(found["qualification/nds_q72_dataproc_2_2.zstd"])
    assert query.measurement is not None
    assert query.measurement.runtime_seconds == 71.125
    assert (query.cluster.nodes, query.cluster.cores) == (4, 128)
    assert query.origin.rows_known == 1.0
    assert (query.origin.application, query.origin.description) == ("NDS - Power Run", "query72")
    # The final plan has 100 nodes. Six of them are a reused result.
    assert len(query.plan.workflow.operators) == 94
    named = 0
    for plan in last_plans(logs / "qualification" / "nds_q72_dataproc_2_2.zstd"):
        named += operators_named(plan)
    assert named == 124


def test_public_logs_have_known_rows_for_nearly_all_operators(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    counts = Counter[str]()
    for name, records in found.items():
        if Path(name).name in GPU:
            continue
        for each in queries(records):
            operators = each.plan.workflow.operators
            counts["all"] += len(operators)
            counts["known"] += round(each.origin.rows_known * len(operators))
            counts["other"] += sum(one.kind is OperatorKind.OTHER for one in operators)
            counts["commands"] += sum(one.kind is OperatorKind.COMMAND for one in operators)
    assert counts["known"] / counts["all"] >= 0.94
    assert counts["other"] / counts["all"] <= 0.05
    assert counts["commands"] == 0


@pytest.mark.parametrize("name", WITHOUT_FAILED_TASKS)
def test_stage_totals_of_public_logs_equal_the_sums_of_their_tasks(logs: Path, name: str) -> None:
    tasks: dict[int, int] = defaultdict(int)
    stages: dict[int, int] = {}
    seen: set[str] = set()
    for _, line in lines(logs / "qualification" / name):
        event = orjson.loads(line or b"{}")
        if event.get("Event") == "SparkListenerTaskEnd":
            assert event["Task End Reason"]["Reason"] == "Success"
            for each in filter(is_sum, event["Task Info"]["Accumulables"]):
                tasks[each["ID"]] += int(each["Update"])
        elif event.get("Event") == "SparkListenerStageCompleted":
            for each in filter(is_sum, event["Stage Info"]["Accumulables"]):
                stages[each["ID"]] = int(each["Value"])
                seen.add(each["Name"])
    assert len(seen) > 15
    assert seen & TOTALS.keys()
    assert {each: tasks[each] for each in stages} == stages


def test_public_log_with_failed_tasks_has_a_warning(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    flagged = [
        name
        for name, records in found.items()
        for each in executions(records)
        if ExecutionWarning.FAILED_TASKS in each.origin.remarks
    ]
    assert "own-spark-4.3.0/leaky-plain-local.json" in flagged
    assert not any(
        Path(name).name == Path(w).name for w in WITHOUT_FAILED_TASKS for name in flagged
    )


def test_copies_of_public_log_share_execution_ids_and_attempts_differ(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    def ids(name: str) -> set[str]:
        return {each.execution_id for each in executions(found[f"qualification/{name}"])}

    first = ids("eventlog_same_app_id_1.zstd")
    assert first == ids("eventlog_same_app_id_2.zstd")
    attempts = [ids(f"multiple_attempts/attempt_{number}_eventlog.zstd") for number in range(1, 5)]
    assert len(set().union(*attempts)) == sum(map(len, attempts)) == 8


def test_public_log_jobs_outside_queries_become_executions(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    every = [each for records in found.values() for each in jobs(records)]
    assert len(every) == 69
    assert len({each.workload for each in every}) < 40
    trained = {
        each.origin.record: each for each in jobs(found["qualification/xgboost_eventlog.zstd"])
    }
    (moved,) = (
        each
        for each in trained["job 6"].plan.workflow.operators
        if each.kind is OperatorKind.EXCHANGE
    )
    assert (moved.output_rows, moved.partitions) == (9_975_345, 17)
    assert trained["job 6"].origin.rows_known == 1.0


def test_failed_executions_of_public_logs_record_failure_text(
    found: dict[str, list[Execution | SkippedRecord]],
) -> None:
    failed = {
        (Path(name).name, each.origin.record): each.origin.failure
        for name, records in found.items()
        for each in executions(records)
        if not each.is_ok
    }
    assert ("join_missing_sql_end", "query 0") not in failed  # its result stage completed
    assert "Task 0 in stage 17.0 failed 1 times" in failed["complex_dec_eventlog.zstd", "job 17"]
    assert failed["leaky-plain-local.json", "query 4"].startswith("[CAST_INVALID_INPUT]")
    assert len(failed) == 5


def is_sum(counter: dict[str, object]) -> bool:
    """Return False for lists of blocks and for averages."""
    name = counter.get("Name")
    return isinstance(name, str) and "BlockStatuses" not in name and "avg" not in name


def last_plans(path: Path) -> list[dict[str, object]]:
    plans: dict[int, dict[str, object]] = {}
    for _, line in lines(path):
        if line and b"sparkPlanInfo" in line:
            event = orjson.loads(line)
            plans[event["executionId"]] = event["sparkPlanInfo"]
    return list(plans.values())


def operators_named(plan: dict[str, object]) -> int:
    name = str(plan["nodeName"])
    wraps = name in {"InputAdapter", "AdaptiveSparkPlan"} or name.startswith("WholeStageCodegen")
    children = plan["children"]
    assert isinstance(children, list)
    return (not wraps and not name.endswith("QueryStage")) + sum(map(operators_named, children))
