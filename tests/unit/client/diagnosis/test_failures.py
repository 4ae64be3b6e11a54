"""Findings of `fedperf diagnose` about failures: cause, setting and common properties."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedperf_client import cli
from fedperf_shared.execution import ExecutionStatus
from tests.fakes.failing_logs import FailingLog, Reason, killed, lost, missed, raised
from tests.fakes.spark_logs import read_log
from tests.unit.shared.console_programs import run

PHYSICAL = (
    "Container killed by YARN for exceeding physical memory limits. 4.4 GB of 4.4 GB physical "
    "memory used. Consider boosting spark.executor.memoryOverhead."
)
BAD_NODE = (
    "Container from a bad node: container_1_01_000003 on host: host2. Exit status: {0}. "
    "Diagnostics: Container killed on request. Exit code is {0}\n"
    "Container exited with a non-zero exit code {0}. \nKilled by external signal\n."
)
RESULTS = (
    "Job aborted due to stage failure: Total size of serialized results of 1 tasks (12.3 MiB) is "
    "bigger than spark.driver.maxResultSize (1024.0 KiB)"
)
OFFERS = [
    "spark.decommission.enabled=true",
    "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
]
YARN = {"spark.master": "yarn", "spark.executor.memory": "4g"}
POD = {"spark.master": "k8s://https://h:6443", "spark.executor.memory": "4g"}
ALONE = {"spark.master": "spark://h:7077", "spark.executor.memory": "4g"}
MESOS = {"spark.master": "mesos://h:5050", "spark.executor.memory": "4g"}


def failures_of(log: FailingLog, path: Path) -> list[dict[str, Any]]:
    """Return the JSON findings about failures."""
    ended = run(cli.main, "diagnose", log.write(path / "log"), "--json")
    assert ended.code == 0
    found = ended.json()
    assert isinstance(found, dict)
    return [
        finding
        for job in found["diagnoses"]
        for finding in job["findings"]
        if finding["symptom"] == "failures"
    ]


def replaced(
    reason: Reason,
    *,
    version: str = "3.3.2",
    properties: Mapping[str, str] = YARN,
    removal: str = "",
    query: bool = False,
) -> FailingLog:
    """Return a log: four tasks of executor 2 fail after 14 s and run again on executor 3."""
    log = FailingLog(version=version, properties=properties, in_query=query).opened()
    log.submitted(0).tasks(4, 1050, 21_050)
    log.tasks(4, 1050, 15_050, executor="2", reason=reason)
    if removal:
        log.removed("2", removal, at=15_060)
    log.executor("3", 1_750_000_018_000, host="host3")
    return log.tasks(4, 18_100, 38_100, executor="3").completed(0, at=38_110).closed(38_120)


@pytest.mark.parametrize(
    ("reason", "given", "kind", "conf"),
    [
        (lost(PHYSICAL), {}, "container memory", ["spark.executor.memoryOverhead=1g"]),
        (
            lost(
                "Container killed by YARN for exceeding memory limits. 8.9 GB of 8.8 GB physical "
                "memory used. Consider boosting spark.yarn.executor.memoryOverhead."
            ),
            {"version": "2.4.8", "properties": {**YARN, "spark.executor.memory": "8g"}},
            "container memory",
            ["spark.executor.memoryOverhead=2g"],
        ),
        (
            lost("Remote RPC client disassociated. Likely due to containers exceeding thresholds"),
            {"removal": PHYSICAL, "query": True},
            "container memory",
            ["spark.executor.memoryOverhead=1g"],
        ),
        (
            lost(BAD_NODE.format(137)),
            {},
            "container memory",
            ["spark.executor.memoryOverhead=1g"],
        ),
        (
            lost(
                "The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM)."
                "\nThe API gave the following brief reason: N/A"
            ),
            {"version": "4.0.0", "properties": POD},
            "container memory",
            ["spark.executor.memoryOverhead=1g"],
        ),
        (
            lost("Command exited with code 137"),
            {"version": "3.1.3", "properties": ALONE, "query": True},
            "container memory",
            [],
        ),
        (
            lost("Executor finished with state FAILED"),
            {"properties": MESOS, "removal": "Memory limit exceeded: Requested: 1G"},
            "container memory",
            ["spark.mesos.executor.memoryOverhead=1024"],
        ),
        (
            raised("java.lang.OutOfMemoryError", "Java heap space"),
            {},
            "executor memory",
            ["spark.executor.memory=8g"],
        ),
        (
            raised(
                "org.apache.spark.memory.SparkOutOfMemoryError",
                "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0.",
            ),
            {"version": "3.5.3", "properties": POD},
            "executor memory",
            ["spark.executor.memory=8g"],
        ),
        (
            raised("java.util.concurrent.ExecutionException", "x", "x\nCaused by: java.lang."
                   "OutOfMemoryError: GC overhead limit exceeded\n\tat a.B"),
            {"version": "2.4.8", "properties": {"spark.master": "local[8]"}},
            "executor memory",
            ["spark.driver.memory=2g"],
        ),
        (lost(BAD_NODE.format(143)), {}, "terminated", OFFERS),
        (lost("Container released on a *lost* node"), {}, "node lost", OFFERS),
        (
            lost("worker lost: 10.0.0.2:7 got disassociated", by_job=False),
            {"version": "3.5.3", "properties": ALONE},
            "node lost",
            OFFERS,
        ),
        (
            lost("Mesos slave lost: 7", by_job=False),
            {"version": "2.4.8", "properties": MESOS, "query": True},
            "node lost",
            ["spark.shuffle.service.enabled=true"],
        ),
        (
            lost("Container container_1 on host: host2 was preempted.", by_job=False),
            {},
            "preempted",
            OFFERS,
        ),
        (
            raised("java.io.IOException", "No space left on device"),
            {},
            "disk full",
            [],
        ),
        (
            raised(
                "org.apache.spark.SparkArithmeticException",
                '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to '
                '"false" to bypass this error.',
            ),
            {"version": "4.0.0"},
            "named setting",
            ["spark.sql.ansi.enabled=false"],
        ),
        (
            raised("org.apache.spark.SparkException", "Kryo serialization failed: Buffer overflow."
                   " Available: 0, required: 99. To avoid this, increase"
                   " spark.kryoserializer.buffer.max value."),
            {"version": "2.4.8"},
            "kryo buffer",
            ["spark.kryoserializer.buffer.max=128m"],
        ),
    ],
)  # fmt: skip
def test_failed_tasks_are_reported_with_cause_setting_executor_and_stage(
    reason: Reason, given: dict[str, Any], kind: str, conf: list[str], tmp_path: Path
) -> None:
    (found,) = failures_of(replaced(reason, **given), tmp_path)
    facts = found["figures"]
    assert (facts["reason"], found["conf"]) == (kind, conf)
    assert (facts["executor"], facts["host"], facts["stage"]) == ("2", "host2", 0)
    assert facts["after_seconds"] == pytest.approx(14.05)
    assert found["seconds_at_most"] == pytest.approx(14.0)
    assert found["figures"]["failed_tasks"] == 4
    assert facts["message"]
    assert "\n" not in facts["message"]
    assert facts["settings"]


def test_failure_outside_the_job_is_distinguished_from_out_of_memory(tmp_path: Path) -> None:
    (taken,) = failures_of(replaced(lost("Container released on a *lost* node")), tmp_path)
    assert (taken["figures"]["is_outside"], taken["figures"]["is_out_of_memory"]) == (True, False)
    (full,) = failures_of(replaced(lost(PHYSICAL)), tmp_path)
    assert (full["figures"]["is_outside"], full["figures"]["is_out_of_memory"]) == (False, True)


def fetched_again(
    removal: str, *, version: str = "3.5.3", properties: Mapping[str, str] = YARN
) -> FailingLog:
    """Return a log: executor 2 is lost with its shuffle files, so stage 0 repeats for 20 s."""
    failed = "org.apache.spark.shuffle.FetchFailedException: Connection refused"
    log = FailingLog(version=version, properties=properties, in_query=True).opened(stages=2)
    log.submitted(0, at=1010).tasks(4, 1050, 21_050).tasks(4, 1050, 21_050, executor="2")
    log.completed(0, at=21_060).submitted(1, at=21_070)
    if removal:
        log.removed("2", removal, at=22_000)
    log.tasks(8, 21_100, 22_500, stage=1, reason=missed("Connection refused"))
    log.completed(1, at=22_510, failure=failed).submitted(0, attempt=1, at=22_520)
    log.tasks(4, 22_550, 42_550, attempt=1).completed(0, attempt=1, at=42_560)
    log.submitted(1, attempt=1, at=42_570).tasks(8, 42_600, 43_600, stage=1, attempt=1)
    return log.completed(1, attempt=1, at=43_610).closed(43_620)


@pytest.mark.parametrize(
    ("removal", "given", "kind", "conf"),
    [
        ("Executor decommission: Executor 2 is decommissioned.", {}, "decommissioned", OFFERS),
        (
            "worker decommissioned",
            {"version": "3.1.3", "properties": ALONE},
            "decommissioned",
            OFFERS,
        ),
        (
            "The executor with id 2 was deleted by a user or the framework.",
            {"version": "3.0.3", "properties": POD},
            "node lost",
            [],
        ),
        (
            "Container from a bad node: container_2. Exit status: 137",
            {"version": "2.4.8"},
            "container memory",
            ["spark.executor.memoryOverhead=1g"],
        ),
        ("", {}, "shuffle files lost", ["spark.shuffle.io.maxRetries=6"]),
    ],
)  # fmt: skip
def test_repeated_stage_is_attributed_to_the_loss_of_its_shuffle_files(
    removal: str, given: dict[str, Any], kind: str, conf: list[str], tmp_path: Path
) -> None:
    (found,) = failures_of(fetched_again(removal, **given), tmp_path)
    facts = found["figures"]
    assert (facts["reason"], found["conf"]) == (kind, conf)
    assert (facts["executor"], facts["host"]) == ("2", "host2")
    assert 21 <= found["seconds_at_most"] <= 22
    assert found["figures"]["failed_tasks"] == 8
    assert found["figures"]["repeated_stages"] == 1
    if "k8s" not in given.get("properties", YARN)["spark.master"] and "memory" not in kind:
        assert "spark.shuffle.service.enabled" in facts["settings"]


def test_stage_attempt_with_remaining_tasks_is_no_repeated_stage(
    tmp_path: Path,
) -> None:
    log = FailingLog(properties=YARN).opened().submitted(0).tasks(4, 1050, 5050)
    log.tasks(4, 1050, 3050, reason=missed("Connection refused"))
    log.completed(0, at=5060, failure="org.apache.spark.shuffle.FetchFailedException: x")
    log.submitted(0, attempt=1, at=5100).tasks(4, 5150, 9150, attempt=1)
    (found,) = failures_of(log.completed(0, attempt=1, at=9160).closed(9170), tmp_path)
    assert found["figures"]["repeated_stages"] == 0
    assert found["seconds_at_most"] == pytest.approx(2.0)


def test_stage_aborted_by_spark_reports_attempt_limit_and_cause(tmp_path: Path) -> None:
    said = "ResultStage 1 (count) has failed the maximum allowable number of times: 4."
    log = FailingLog(properties=YARN).opened(stages=2).submitted(1)
    log.removed("2", BAD_NODE.format(137), at=2000)
    log.tasks(4, 1050, 3050, stage=1, reason=missed("Connection refused"))
    log.completed(1, at=3060, failure=said)
    (found,) = failures_of(log.closed(3070, error=f"Job aborted: {said}"), tmp_path)
    assert found["conf"] == [
        "spark.executor.memoryOverhead=1g",
        "spark.stage.maxConsecutiveAttempts=8",
    ]
    assert found["figures"]["reason"] == "container memory"
    assert found["figures"]["summary"] == "stage attempts"


def ended(error: str, *, tasks: Reason | None, query: bool, **properties: str) -> FailingLog:
    """Return a log: four tasks fill all slots for 9.75 s, then the job fails."""
    given = {f"spark.{name.replace('_', '.')}": value for name, value in properties.items()}
    log = FailingLog(properties=given, in_query=query).opened().submitted(0)
    if tasks is not None:
        log.tasks(4, 1250, 11_000, reason=tasks)
    return log.completed(0, at=11_020, failure=error).closed(11_030, error=error)


@pytest.mark.parametrize(
    ("log", "kind", "conf", "line"),
    [
        (
            ended(
                RESULTS,
                tasks=killed("Tasks result size has exceeded maxResultSize"),
                query=True,
                driver_maxResultSize="1m",
            ),
            "result size",
            ["spark.driver.maxResultSize=25m"],
            RESULTS,
        ),
        (
            ended(RESULTS.replace("MiB", "MB"), tasks=killed("Stage cancelled"), query=False),
            "result size",
            ["spark.driver.maxResultSize=2g"],
            RESULTS.replace("MiB", "MB"),
        ),
        (
            ended("Could not execute broadcast in 300 secs. You can", tasks=None, query=True),
            "broadcast timeout",
            ["spark.sql.broadcastTimeout=600", "spark.sql.autoBroadcastJoinThreshold=-1"],
            "Could not execute broadcast in 300 secs. You can",
        ),
        (
            ended("java.lang.OutOfMemoryError: Java heap space", tasks=None, query=True),
            "driver memory",
            ["spark.driver.memory=2g"],
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            ended("Job 0 cancelled because SparkContext was shut down", tasks=None, query=False),
            "shut down",
            [],
            "Job 0 cancelled because SparkContext was shut down",
        ),
    ],
)  # fmt: skip
def test_failed_job_is_reported_with_its_own_cause_and_message(
    log: FailingLog, kind: str, conf: list[str], line: str, tmp_path: Path
) -> None:
    (found,) = failures_of(log, tmp_path)
    assert (found["figures"]["reason"], found["conf"]) == (kind, conf)
    assert found["figures"]["message"] == line
    assert found["seconds_at_most"] == pytest.approx(10.03, abs=0.02)


def test_failure_of_unknown_cause_is_reported_with_message_executor_and_host(
    tmp_path: Path,
) -> None:
    own = raised("com.acme.PriceError", "the price of 7 is negative\nsee the wiki")
    (found,) = failures_of(replaced(own), tmp_path)
    facts = found["figures"]
    assert "reason" not in facts
    assert facts["error"] == "PriceError"
    assert facts["message"] == "the price of 7 is negative"
    assert (facts["executor"], facts["host"], facts["stage"]) == ("2", "host2", 0)
    assert found["conf"] == []
    assert "the price of 7 is negative" in found["evidence"]


def test_failures_with_different_causes_are_separate_findings(tmp_path: Path) -> None:
    log = FailingLog(properties=YARN).opened().submitted(0)
    log.tasks(4, 1000, 11_000).tasks(3, 1000, 5000, executor="2", reason=lost(PHYSICAL))
    log.tasks(1, 6000, 9000, executor="1", reason=raised("my.Error", "x"))
    log.tasks(1, 9000, 9900, executor="2", reason=raised("my.Error", "x"))
    log.tasks(4, 12_000, 20_000).completed(0, at=20_010).closed(20_020)
    memory, own = failures_of(log, tmp_path)
    assert (memory["figures"]["reason"], memory["seconds_at_most"]) == ("container memory", 4.0)
    assert (own["figures"]["error"], own["seconds_at_most"]) == ("Error", pytest.approx(3.9))
    assert not {"executor", "host"} & set(own["figures"])
    assert own["figures"]["stage"] == 0


@pytest.mark.parametrize(
    "reason",
    [
        killed("another attempt succeeded"),
        killed("Stage cancelled: Job 1 cancelled "),
        {"Reason": "TaskCommitDenied", "Job ID": 0, "Partition ID": 1, "Attempt Number": 0},
    ],
)
def test_cancelled_task_attempts_are_no_failures(reason: Reason, tmp_path: Path) -> None:
    assert failures_of(replaced(reason), tmp_path) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", ExecutionStatus.OUT_OF_MEMORY),
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
            "failure: Lost task 0.3 in stage 0.0 (TID 7) (h executor 2): ExecutorLostFailure "
            "(executor 2 exited caused by one of the running tasks) Reason: " + PHYSICAL,
            ExecutionStatus.OUT_OF_MEMORY,
        ),
        (RESULTS, ExecutionStatus.FAILED),
        ("", ExecutionStatus.OK),
    ],
)
def test_execution_status_is_out_of_memory_for_memory_errors_only(
    error: str, status: ExecutionStatus, tmp_path: Path
) -> None:
    log = FailingLog(in_query=True).opened().submitted(0).tasks(4, 1050, 5050)
    ((run_,), _) = read_log(
        log.completed(0, at=5060).closed(5070, error=error).write(tmp_path / "l")
    )
    assert (run_.status, run_.origin.failure) == (status, error[:400])
