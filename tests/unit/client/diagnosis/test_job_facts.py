"""Busy and idle time of jobs in event logs, and treatment of incomplete logs."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fedperf_client.diagnosis.diagnosis import WHOLE, Diagnosis, Ranking
from fedperf_client.diagnosis.job_facts import JobFacts, JobFinding, Symptom, jobs_of
from fedperf_client.sources.spark.event_log import EventLog
from fedperf_shared.execution import Execution, ExecutionWarning
from tests.fakes.measured_logs import FakeTask, MeasuredLog, log_of, named, started
from tests.fakes.spark_logs import APP_START, SQL, node, read_log

MIB = 2**20
SCAN = node("Scan parquet", rows=1)
RDDS = [{"RDD ID": 0, "Name": "MapPartitionsRDD", "Parent IDs": []}]
KILLED = {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"}


def diagnoses(log: MeasuredLog, directory: Path) -> list[Diagnosis]:
    """Return all diagnoses, the application's included."""
    ranking = Ranking(100)
    for found in jobs_of(EventLog((log.write(directory / "log"),))):
        assert not isinstance(found, str)
        ranking.add(found, "log", None)
    return ranking.first


def findings(log: MeasuredLog, directory: Path) -> dict[Symptom, JobFinding]:
    """Return the findings about the jobs."""
    jobs = [each for each in diagnoses(log, directory) if each.label != WHOLE]
    return {found.symptom: found for each in jobs for found in each.findings}


def both(log: MeasuredLog, directory: Path) -> tuple[JobFacts, Execution]:
    """Return job facts and execution of a log with one job."""
    (job,), missing = log.jobs(directory)
    (execution,), skipped = read_log(directory / "log")
    assert (missing, skipped) == ([], [])
    return job, execution


def with_plan(log: MeasuredLog) -> MeasuredLog:
    """Add a plan to the query, so that it is read as an execution."""
    for event in log.events:
        if str(event["Event"]).endswith("SQLExecutionStart"):
            event["sparkPlanInfo"] = SCAN
    return log


def rdds_of(log: MeasuredLog) -> MeasuredLog:
    """Add RDDs to the stages, so that a job without a query is read as an execution."""
    for event in log.events:
        if event["Event"] == "SparkListenerStageCompleted":
            event["Stage Info"] |= {"RDD Info": RDDS}  # type: ignore[operator]
    return log


def even(count: int, begin: int = 1000, end: int = 11_000, **known: object) -> list[FakeTask]:
    return [FakeTask(begin, end, **known) for _ in range(count)]  # type: ignore[arg-type]


# Kill reasons of attempts that were replaced by others.

KILL_REASONS: list[str | Mapping[str, object]] = [
    {"Reason": "TaskKilled", "Kill Reason": "Tasks result size has exceeded maxResultSize"},
    {"Reason": "TaskKilled"},  # Spark 2.2 and earlier
    {"Reason": "TaskCommitDenied", "Job ID": 1, "Partition ID": 2, "Attempt Number": 0},
]


@pytest.mark.parametrize("reason", KILL_REASONS)
@pytest.mark.parametrize("query", [0, None])
def test_killed_tasks_count_as_busy_until_their_end(
    tmp_path: Path, reason: str | Mapping[str, object], query: int | None
) -> None:
    log = started().opened(query=query).stage(even(8, reason=reason), failure="too large")
    log.closed(query=query, error="too large")
    found = findings(log, tmp_path)
    assert found.keys() == {Symptom.FAILURES}
    (job,), _ = log.jobs(tmp_path)
    assert job.quiet == ()
    assert {(each.launched, each.finished) for each in job.lost} == {
        (APP_START + 1000, APP_START + 11_000)
    }
    assert "too large" in [each.message for each in job.query.failures]


def test_lost_attempts_have_executor_duration_and_reason(tmp_path: Path) -> None:
    lost = {"Reason": "ExecutorLostFailure", "Executor ID": "1", "Loss Reason": "gone\n\tat home"}
    raised = {"Reason": "ExceptionFailure", "Class Name": "java.io.IOException"}
    tasks = [
        *even(8),
        FakeTask(1000, 2000, executor="1", reason=lost),
        FakeTask(1000, 2500, executor="0", reason={**raised, "Description": "No space left"}),
    ]
    log = started().opened().stage(tasks)
    gone = {"Executor ID": "1", "Timestamp": APP_START + 2000, "Removed Reason": "spot instance"}
    log.events.append({"Event": "SparkListenerExecutorRemoved", **gone})
    (job,), _ = log.closed().jobs(tmp_path)
    assert [(each.executor, each.duration, each.reason.name) for each in job.lost] == [
        (("1", "host-1"), 1000, "ExecutorLostFailure"),
        (("0", "host-0"), 1500, "IOException"),
    ]
    assert [each.reason.message for each in job.lost] == ["gone\n\tat home", "No space left"]
    assert [(each.executor, each.host, each.reason) for each in job.removals] == [
        ("1", "host-1", "spot instance")
    ]


@pytest.mark.parametrize("query", [0, None])
def test_speculation_loser_is_the_straggler_and_no_failed_task(
    tmp_path: Path, query: int | None
) -> None:
    tasks = [*even(7, end=5000, executor="0"), FakeTask(5500, 9000, executor="0")]
    loser = FakeTask(1000, 9010, executor="1", reason=KILLED)
    log = started(speculation="true").opened(query=query).stage([*tasks, loser], rdds=RDDS)
    with_plan(log.closed(query=query, end=9100))
    found = findings(log, tmp_path)
    assert found.keys() == {Symptom.STRAGGLER}
    assert found[Symptom.STRAGGLER].figures["executor"] == "1"
    assert found[Symptom.STRAGGLER].figures["longest_seconds"] == 8.01
    _, execution = both(log, tmp_path)
    assert execution.origin.remarks == ()


def test_straggler_finding_names_its_executor(tmp_path: Path) -> None:
    tasks = [*even(7, end=3000, executor="0"), FakeTask(1000, 11_000, executor="1")]
    figures = findings(log_of(tasks), tmp_path)[Symptom.STRAGGLER].figures
    assert (figures["executor"], figures["host"]) == ("1", "host-1")


def test_wave_repeating_failed_tasks_is_no_last_wave(tmp_path: Path) -> None:
    lost = {"Reason": "ExecutorLostFailure", "Loss Reason": "preempted"}
    tasks = [*even(6, end=6000), *even(2, end=6000, reason=lost), *even(2, begin=6000)]
    found = findings(log_of(tasks), tmp_path)
    assert found.keys() == {Symptom.FAILURES}


def called_off(error: str | None) -> MeasuredLog:
    """Return a query whose second job was cancelled by adaptive execution."""
    log = started().opened().stage(even(8, end=9000))
    more = {"Job ID": 7, "Submission Time": APP_START + 1000, "Stage IDs": [7]}
    properties = {"spark.sql.execution.id": "0"}
    log.events.append({"Event": "SparkListenerJobStart", **more, "Properties": properties})
    log.stage(even(1, end=9000, reason=KILLED), number=7, failure="Job 7 cancelled")
    result = {"Result": "JobFailed", "Exception": {"Message": "Job 7 cancelled"}}
    log.add("SparkListenerJobEnd", Job_ID=7, Completion_Time=APP_START + 9000, Job_Result=result)
    log.closed()
    log.events[-1] |= {"errorMessage": error}
    return with_plan(log)


@pytest.mark.parametrize(
    ("error", "fails"),
    [("", False), (None, True), ("Job 7 cancelled as part of cancelling all", True)],
)
def test_cancelled_job_fails_its_query_only_if_the_query_reports_an_error(
    tmp_path: Path, error: str | None, *, fails: bool
) -> None:
    log = called_off(error)
    assert (Symptom.FAILURES in findings(log, tmp_path)) is fails
    job, execution = both(log, tmp_path)
    assert execution.is_ok is not fails
    assert job.query.has_failed is fails
    assert ExecutionWarning.FAILED_TASKS not in execution.origin.remarks


# Task slots.

GPU = {"cpus": {"Amount": 1.0}, "gpu": {"Amount": 0.25}}


def of_profile(log: MeasuredLog, number: int, executor: object, task: object) -> None:
    log.add(
        "SparkListenerResourceProfileAdded",
        Resource_Profile_Id=number,
        Executor_Resource_Requests=executor,
        Task_Resource_Requests=task,
    )


def by_profile(log: MeasuredLog) -> int:
    of_profile(log, 0, {"gpu": {"Amount": 1}}, GPU)
    return 0


def by_properties(log: MeasuredLog) -> int:
    log.set(task_resource_gpu_amount=".25", executor_resource_gpu_amount="1")
    return 0


def by_processors(log: MeasuredLog) -> int:
    log.set(task_cpus="4")
    return 0


def by_stage(log: MeasuredLog) -> int:
    """Add a task-only resource profile (Spark 3.4), which uses the existing executors."""
    of_profile(log, 5, {}, {"cpus": {"Amount": 4}})
    return 5


def by_addresses(log: MeasuredLog) -> int:
    of_profile(log, 0, {}, {"fpga": {"Amount": 2}})
    for event in log.events:
        if event["Event"] == "SparkListenerExecutorAdded":
            resources = {"fpga": {"name": "fpga", "addresses": list("01234567")}}
            event["Executor Info"] |= {"Resources": resources}  # type: ignore[operator]
    return 0


@pytest.mark.parametrize(
    "asked", [by_profile, by_properties, by_processors, by_stage, by_addresses]
)
def test_slots_are_limited_by_all_resources_of_a_task(
    tmp_path: Path, asked: Callable[[MeasuredLog], int]
) -> None:
    log = MeasuredLog()
    log.begin(cores=16, executors=1)
    profile = asked(log)
    waves = [each for at in range(1000, 11_000, 2000) for each in even(4, at, at + 2000)]
    log.opened().stage(waves, profile=profile).closed()
    assert findings(log, tmp_path) == {}
    (job,), _ = log.jobs(tmp_path)
    assert [each.slots for each in job.stages] == [4]


# Incomplete logs.


@pytest.mark.parametrize("query", [0, None])
@pytest.mark.parametrize("spaces", [b"", b" "])
def test_missing_task_end_events_are_reported_as_dropped_events(
    tmp_path: Path, query: int | None, spaces: bytes
) -> None:
    tasks = [each for at in (1000, 3000, 5000, 7000, 9000) for each in even(1, at, at + 2000)]
    log = started().opened(query=query)
    with_plan(log.stage(tasks, announced=40, rdds=RDDS).closed(query=query))
    found = findings(log, tmp_path)
    assert found.keys() == {Symptom.DROPPED_EVENTS}
    dropped = found[Symptom.DROPPED_EVENTS]
    assert (dropped.figures["told_tasks"], dropped.figures["tasks"]) == (5, 40)
    (conf,) = dropped.conf
    assert conf.startswith("spark.scheduler.listenerbus.eventqueue.capacity=")
    path = tmp_path / "log"
    path.write_bytes(
        path.read_bytes().replace(b'"Task End Reason":{', b'"Task End Reason":%b{' % spaces)
    )
    (execution,), _ = read_log(path)
    assert execution.origin.remarks == (ExecutionWarning.INCOMPLETE,)
    assert execution.origin.tasks == 40


@pytest.mark.parametrize("announced", [None, 8, 0])
def test_stage_with_all_task_ends_is_complete(tmp_path: Path, announced: int | None) -> None:
    log = with_plan(started().opened().stage(even(8), announced=announced).closed())
    job, execution = both(log, tmp_path)
    assert job.query.dropped is None
    assert execution.origin.remarks == ()


def test_failed_stage_with_missing_task_ends_is_no_dropped_event(tmp_path: Path) -> None:
    log = started().opened().stage(even(1, end=2000), announced=8, failure="fetch failed")
    with_plan(log.stage(even(8, begin=2000), attempt=1, announced=7).closed())
    job, execution = both(log, tmp_path)
    assert job.query.dropped is None
    assert execution.origin.tasks == 8
    assert execution.origin.remarks == (ExecutionWarning.FAILED_TASKS,)


@pytest.mark.parametrize("lost", ["SparkListenerJobEnd", "SparkListenerSQLExecutionEnd"])
def test_query_with_one_missing_end_event_is_successful_and_incomplete(
    tmp_path: Path, lost: str
) -> None:
    log = with_plan(started().opened().stage(even(8)).closed(end=11_100))
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 12_000)
    log.events = [each for each in log.events if not str(each["Event"]).endswith(lost)]
    job, execution = both(log, tmp_path)
    assert execution.is_ok
    assert execution.runtime_seconds == pytest.approx(10.1)
    assert execution.origin.remarks == (ExecutionWarning.INCOMPLETE,)
    assert job.seconds == execution.runtime_seconds


@pytest.mark.parametrize("told", [8, 2])
def test_query_with_missing_stage_end_is_marked_incomplete(tmp_path: Path, told: int) -> None:
    log = started().opened(stages=2).stage(even(told, end=5000), announced=8)
    assert log.events.pop()["Event"] == "SparkListenerStageCompleted"
    with_plan(log.stage(even(8, begin=5000), number=1).closed())
    job, execution = both(log, tmp_path)
    assert execution.is_ok
    assert execution.origin.remarks == (ExecutionWarning.INCOMPLETE,)
    assert (job.query.dropped is not None) is (told < 8)
    assert findings(log, tmp_path).keys() == ({Symptom.DROPPED_EVENTS} if told < 8 else set())


def test_late_stage_end_event_completes_the_stage(tmp_path: Path) -> None:
    log = with_plan(started().opened().stage(even(8)).closed())
    late = next(each for each in log.events if each["Event"] == "SparkListenerStageCompleted")
    log.events.remove(late)
    log.events.append(late)
    _, execution = both(log, tmp_path)
    assert execution.origin.remarks == ()


@pytest.mark.parametrize("query", [0, None])
def test_tasks_of_a_job_without_its_begin_event_are_not_idle_time(
    tmp_path: Path, query: int | None
) -> None:
    log = started().opened(query=query).stage(even(8), rdds=RDDS).closed(query=query)
    log.events = [each for each in log.events if each["Event"] != "SparkListenerJobStart"]
    log.opened(query=1, at=11_100).stage(even(8, begin=11_200, end=21_000))
    with_plan(log.closed(query=1, end=21_000))
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 22_000)
    assert diagnoses(log, tmp_path) == []
    executions, skipped = read_log(tmp_path / "log")
    assert skipped == []
    incomplete = [] if query is None else [(ExecutionWarning.INCOMPLETE,)]
    assert [each.origin.remarks for each in executions] == [*incomplete, ()]
    assert [each.cluster.queries_before for each in executions][-1] == 1


def test_tasks_running_at_application_end_are_not_idle_time(tmp_path: Path) -> None:
    log = started().opened().stage(even(8, end=3000), announced=16)
    assert log.events.pop()["Event"] == "SparkListenerStageCompleted"
    with_plan(log).add("SparkListenerApplicationEnd", Timestamp=APP_START + 12_000)
    assert findings(log, tmp_path).keys() == {Symptom.FAILURES}


def test_job_without_any_executor_has_executor_wait(tmp_path: Path) -> None:
    log = MeasuredLog()
    log.begin(executors=0)
    info = {"Stage ID": 0, "Stage Name": "x", "Submission Time": APP_START + 1000}
    log.opened(query=None).add("SparkListenerStageSubmitted", Stage_Info=info)
    found = findings(log.closed(query=None, error="Job 0 cancelled"), tmp_path)
    assert found.keys() == {Symptom.FAILURES, Symptom.EXECUTOR_WAIT}
    assert found[Symptom.EXECUTOR_WAIT].figures["waited_seconds"] == pytest.approx(10.0)


def test_job_without_end_event_ends_with_its_last_stage(tmp_path: Path) -> None:
    log = started().opened(query=None, stages=2).stage(even(8, end=5000), rdds=RDDS)
    log.stage(even(8, begin=5000), number=1, rdds=RDDS)
    _, execution = both(log, tmp_path)
    assert (execution.is_ok, execution.runtime_seconds) == (True, 10.0)


@pytest.mark.parametrize(
    ("query", "lost"),
    [
        (0, "SparkListenerJobEnd"),
        (0, "SparkListenerSQLExecutionEnd"),
        (None, "SparkListenerJobEnd"),
    ],
)
def test_missing_end_event_does_not_affect_the_next_job(
    tmp_path: Path, query: int | None, lost: str
) -> None:
    log = started().opened(query=query).stage(even(8, end=5000), rdds=RDDS)
    log.closed(query=query, end=5100)
    log.events = [each for each in log.events if not str(each["Event"]).endswith(lost)]
    log.opened(query=1, at=6000).executor("late", APP_START + 7000, host="h")
    with_plan(log.stage(even(1, begin=6000, end=16_000)).closed(query=1, end=16_000))
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 17_000)
    assert Symptom.FEW_TASKS in findings(log, tmp_path)
    executions, skipped = read_log(tmp_path / "log")
    assert skipped == []
    assert [each.measurement and each.measurement.startup_seconds for each in executions] == [0, 1]
    assert [each.cluster.queries_before for each in executions] == [1, 0]
    assert [each.cluster.cores for each in executions] == [12, 8]


@pytest.mark.parametrize("is_stage_told", [True, False])
def test_query_without_end_events_ends_with_its_last_stage_or_is_skipped(
    tmp_path: Path, *, is_stage_told: bool
) -> None:
    log = started().opened().stage(even(8, end=5000))
    if not is_stage_told:
        log.events.pop()
    log.opened(query=1, at=6000).stage(even(8, begin=6000), number=0).closed(query=1)
    with_plan(log).add("SparkListenerApplicationEnd", Timestamp=APP_START + 60_000)
    executions, skipped = read_log(log.write(tmp_path / "log"))
    found = {each.origin.record: each.runtime_seconds for each in executions}
    assert all(each.is_ok for each in executions)
    assert found == {"query 1": 5.0} | ({"query 0": 4.0} if is_stage_told else {})
    assert [each.record for each in skipped] == ([] if is_stage_told else ["query 0"])
    jobs, missing = log.jobs(tmp_path)
    assert {str(each.query) for each in jobs} == found.keys()
    assert len(missing) == len(skipped)


def test_query_resuming_during_another_is_not_considered_finished(tmp_path: Path) -> None:
    log = started().opened(stages=1).stage(even(2, end=5000))
    log.add("SparkListenerJobEnd", Job_ID=0, Job_Result={"Result": "JobSucceeded"})
    log.opened(query=1, at=6000).stage(even(2, begin=6000, end=9000))
    properties = {"spark.sql.execution.id": "0"}
    more = {"Job ID": 5, "Submission Time": APP_START + 7000, "Stage IDs": [5]}
    log.events.append({"Event": "SparkListenerJobStart", **more, "Properties": properties})
    log.stage(even(2, begin=7000, end=10_000), number=5).closed(query=1, end=9100)
    log.add("SparkListenerJobEnd", Job_ID=5, Job_Result={"Result": "JobSucceeded"})
    log.finish(0, at=11_000)
    jobs, _ = log.jobs(tmp_path)
    assert [(str(each.query), each.query.was_alone) for each in jobs] == [
        ("query 1", False),
        ("query 0", False),
    ]


# Time before the first executor.


def test_time_without_executors_does_not_reduce_cluster_cores(tmp_path: Path) -> None:
    log = MeasuredLog()
    log.begin(executors=1, cores=8)
    log.opened(stages=2).stage(even(8, end=5000))
    gone = {"Executor ID": "0", "Timestamp": APP_START + 6000}
    log.events.append({"Event": "SparkListenerExecutorRemoved", **gone})
    log.executor("1", APP_START + 60_000, host="h", cores=8)
    tasks = even(8, begin=60_000, end=64_000)
    job, execution = both(with_plan(log.stage(tasks, number=1).closed(end=64_000)), tmp_path)
    assert execution.cluster.cores == job.cores == job.slots == 8


def late(query: int | None, *, first: int = 54_000, gone: int | None = None) -> MeasuredLog:
    """Return a log with a job from second 1 on, whose only executor starts late."""
    log = MeasuredLog()
    log.begin(executors=0)
    if gone is not None:  # an earlier executor existed
        log.executor("old", APP_START, host="h")
        log.events.append(
            {
                "Event": "SparkListenerExecutorRemoved",
                "Executor ID": "old",
                "Timestamp": APP_START + gone,
            }
        )
    log.opened(query=query)
    log.executor("1", APP_START + first, host="h", cores=8)
    log.stage(even(8, first + 100, first + 6000), at=1010, rdds=RDDS)
    return with_plan(log.closed(query=query, end=first + 6010))


@pytest.mark.parametrize("query", [0, None])
@pytest.mark.parametrize("gone", [None, 500, 3000])
def test_waiting_for_first_executor_counts_as_startup_not_runtime(
    tmp_path: Path, query: int | None, gone: int | None
) -> None:
    log = late(query, gone=gone)
    job, execution = both(log, tmp_path)
    assert execution.cluster.cores == job.cores == 8
    assert execution.runtime_seconds == pytest.approx(5.91)
    assert job.seconds == execution.runtime_seconds
    assert execution.measurement is not None
    assert execution.measurement.startup_seconds == pytest.approx(1.0 + 53.1)
    found = findings(log, tmp_path)
    assert found[Symptom.EXECUTOR_WAIT].seconds == pytest.approx(53.09, abs=0.02)
    assert found[Symptom.EXECUTOR_WAIT].share == 0.0  # no executor existed to be paid


def test_executors_added_while_tasks_run_do_not_change_runtime(tmp_path: Path) -> None:
    log = MeasuredLog()
    log.begin(executors=1, cores=4)
    log.opened()
    log.executor("9", APP_START + 6000, host="h", cores=4)
    log.stage([*even(4, end=6000), *even(8, begin=6000)])
    job, execution = both(with_plan(log.closed()), tmp_path)
    assert execution.runtime_seconds == job.seconds == 10.0
    assert execution.cluster.cores == 6  # four for one half of the time, eight for the other
    assert job.query.waited is None


def test_planning_time_counts_as_runtime(tmp_path: Path) -> None:
    log = MeasuredLog()
    log.begin(executors=0)
    log.opened(at=1000)
    log.events[-1]["Submission Time"] = APP_START + 9000  # planning ended here
    log.executor("9", APP_START + 5000, host="h", cores=4)
    job, execution = both(with_plan(log.stage(even(4, begin=9000)).closed()), tmp_path)
    assert execution.runtime_seconds == job.seconds == 10.0
    assert execution.cluster.cores == 4


@pytest.mark.parametrize(
    ("master", "cores"), [("local[4]", 4), ("local", 1), ("local[3, 2]", 3), ("local[*]", None)]
)
def test_local_mode_takes_cores_from_its_master_setting(
    tmp_path: Path, master: str, cores: int | None
) -> None:
    log = MeasuredLog()
    log.begin(executors=0)
    log.set(master=master)
    manager = {"Executor ID": "driver", "Host": "h"}
    log.add("SparkListenerBlockManagerAdded", Block_Manager_ID=manager, Maximum_Memory=600 * MIB)
    with_plan(log.opened().stage(even(2)).closed())
    found, skipped = read_log(log.write(tmp_path / "log"))
    assert [each.cluster.cores for each in found] == ([] if cores is None else [cores])
    assert [each.cluster.memory_bytes for each in found] == [1000 * MIB] * len(found)
    assert len(skipped) == (cores is None)


# Session settings.


@pytest.mark.parametrize("told", ["query", "job", "environment"])
def test_session_settings_from_query_job_or_environment_are_used(tmp_path: Path, told: str) -> None:
    own = named({"sql_adaptive_enabled": "false", "sql_shuffle_partitions": "3"})
    log = started().opened()
    if told == "query":
        log.events[-2]["modifiedConfigs"] = own
    elif told == "job":
        log.events[-1]["Properties"] |= own  # type: ignore[operator]
    else:
        log.add("SparkListenerEnvironmentUpdate", Spark_Properties=own)
    log.stage([*even(3, fetched=100 * MIB)]).closed()
    found = findings(log, tmp_path)[Symptom.FEW_TASKS]
    assert found.conf == ("spark.sql.shuffle.partitions=8",)


def test_settings_of_one_query_do_not_apply_to_the_next(tmp_path: Path) -> None:
    log = started().opened()
    log.events[-2]["modifiedConfigs"] = {"spark.sql.adaptive.enabled": "false"}
    log.stage(even(8)).closed()
    log.opened(query=1, at=12_000).stage(even(8, 12_000, 13_000), number=1).closed(
        query=1, end=13_000
    )
    first, second = log.jobs(tmp_path)[0]
    assert (first.settings.is_adaptive, second.settings.is_adaptive) == (False, True)


# Python code in tasks.


def small(**known: object) -> list[FakeTask]:
    return [FakeTask(at, at + 50, cpu=1, fetched=9) for at in range(1000, 11_000, 50)] * 8


PYTHON: dict[str, Callable[[], MeasuredLog]] = {
    "an RDD": lambda: started().opened().stage(
        small(), rdds=[{"RDD ID": 1, "Name": "PythonRDD", "Parent IDs": []}]
    ),
    "a scope": lambda: started().opened().stage(
        small(), rdds=[{"RDD ID": 1, "Name": "x", "Scope": '{"id":"3","name":"MapInPandas"}'}]
    ),
    "a plan": lambda: planned(started().opened().stage(small()), node("ArrowEvalPython", SCAN)),
    "a plan of Spark 4": lambda: planned(
        started().opened().stage(small()), node("FlatMapGroupsInArrow", SCAN)
    ),
    "long work in tasks": lambda: started().opened().stage(
        [FakeTask(at, at + 1000, cpu=1, fetched=9) for at in range(1000, 11_000, 1000)] * 8
    ),
}  # fmt: skip


def planned(log: MeasuredLog, plan: dict[str, object]) -> MeasuredLog:
    with_plan(log)
    for event in log.events:
        if "sparkPlanInfo" in event:
            event["sparkPlanInfo"] = plan
    return log


@pytest.mark.parametrize("told", PYTHON)
def test_python_work_in_tasks_is_not_reported_as_tiny_tasks(tmp_path: Path, told: str) -> None:
    assert Symptom.TINY_TASKS not in findings(PYTHON[told]().closed(), tmp_path)


def test_tiny_jvm_tasks_are_reported(tmp_path: Path) -> None:
    log = planned(started().opened().stage(small()), node("ColumnarToRow", SCAN)).closed()
    assert Symptom.TINY_TASKS in findings(log, tmp_path)


# Time outside of jobs.


def with_gaps(name: str = "loop", **settings: str) -> MeasuredLog:
    """Return a log: three jobs of two seconds in a hundred seconds, on eight cores."""
    log = MeasuredLog(app_name=name)
    log.begin()
    log.set(**settings)
    for number in range(3):
        at = 10_000 + 30_000 * number
        log.opened(query=None, at=at)
        log.events[-1] |= {"Job ID": number, "Stage IDs": [number]}
        log.stage(even(8, at, at + 2000), number=number)
        log.add("SparkListenerJobEnd", Job_ID=number, Completion_Time=APP_START + at + 2000)
        log.events[-1]["Job Result"] = {"Result": "JobSucceeded"}
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 100_000)
    return log


def test_time_outside_jobs_is_reported_with_idle_core_seconds(tmp_path: Path) -> None:
    (first,) = diagnoses(with_gaps(), tmp_path)
    assert (first.label, first.seconds, first.cores) == (WHOLE, 100.0, 8)
    (found,) = first.findings
    assert found.symptom is Symptom.OUTSIDE_JOBS
    assert found.seconds == 94.0
    assert found.figures["idle_core_seconds"] == 752.0
    assert found.figures["longest_seconds"] == 28.0
    assert first.at_stake(found) == pytest.approx(752.0)
    assert "spark.dynamicAllocation.enabled=true" in found.conf


def test_idle_interactive_session_is_labelled_and_has_no_setting(tmp_path: Path) -> None:
    (first,) = diagnoses(with_gaps("Spark shell", master="local[8]"), tmp_path)
    assert first.findings[0].place == "idle session"
    assert first.findings[0].conf == ()


def test_removed_executors_add_no_idle_core_seconds(tmp_path: Path) -> None:
    log = with_gaps(dynamicAllocation_enabled="true")
    for number in range(2):
        gone = {"Executor ID": str(number), "Timestamp": APP_START + 72_000}
        log.events.insert(-1, {"Event": "SparkListenerExecutorRemoved", **gone})
    (first,) = diagnoses(log, tmp_path)
    assert first.findings[0].figures["idle_core_seconds"] == 752.0 - 28 * 8
    assert first.findings[0].conf == ("spark.dynamicAllocation.executorIdleTimeout=60s",)


def test_application_with_consecutive_jobs_has_no_time_outside_jobs(tmp_path: Path) -> None:
    log = log_of(even(8))
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 12_000)
    assert diagnoses(log, tmp_path) == []


# Engines and versions of Spark.


@pytest.mark.parametrize(
    ("name", "is_accelerated"),
    [
        ("PhotonProject", True),
        ("GpuFilter", True),
        ("CometScan parquet", True),
        ("ProjectExecTransformer", True),
        ("NativeProject", True),
        ("Project", False),
        ("ColumnarToRow", False),
        ("CartesianProduct", False),
    ],
)
def test_accelerator_operators_mark_the_execution_as_accelerated(
    tmp_path: Path, name: str, *, is_accelerated: bool
) -> None:
    log = planned(started().opened().stage(even(8)).closed(), node(name, SCAN))
    _, execution = both(log, tmp_path)
    assert (ExecutionWarning.ACCELERATED in execution.origin.remarks) is is_accelerated


def test_spark_1_log_without_job_times_uses_stage_times(tmp_path: Path) -> None:
    log = started().opened(query=None, stages=2).stage(even(8, end=5000), rdds=RDDS)
    log.stage(even(8, begin=5000), number=1, rdds=RDDS).closed(query=None)
    for event in log.events:
        if str(event["Event"]) in ("SparkListenerJobStart", "SparkListenerJobEnd"):
            event.pop("Submission Time", None)
            event.pop("Completion Time", None)
    job, execution = both(log, tmp_path)
    assert execution.runtime_seconds == job.seconds == 10.0
    assert job.query.started_at == APP_START + 1000
    assert execution.cluster.cores == 8


def test_query_without_jobs_has_no_stages_and_its_own_duration(tmp_path: Path) -> None:
    log = started()
    log.add(SQL + "SparkListenerSQLExecutionStart", executionId=3, time=APP_START + 500)
    log.finish(3, at=900)
    (job,), _ = log.jobs(tmp_path)
    assert (job.stages, job.lost, job.seconds) == ((), (), 0.4)
