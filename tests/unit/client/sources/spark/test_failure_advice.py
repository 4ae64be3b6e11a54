"""Tests of advice on Spark failures: settings computed from those of the application."""

import pytest

from fedperf_client.sources.spark.failures import (
    FailureAdvice,
    FailureCause,
    advice_for,
    failure_table,
)
from fedperf_client.sources.spark.settings import SparkSettings

OVERHEAD = "spark.executor.memoryOverhead"
OFFERS = (
    "spark.decommission.enabled=true",
    "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
)


def advice_on(kind: str, message: str, settings: SparkSettings) -> FailureAdvice:
    return advice_for(FailureCause(kind, "", message), settings)


def conf(kind: str, version: str = "3.5.3", *, said: str = "", **set_: str) -> list[str]:
    """Return the advised setting lines.

    Names of settings omit `spark.` and use underscores for dots.
    """
    properties = {f"spark.{name.replace('_', '.')}": value for name, value in set_.items()}
    return list(advice_on(kind, said, SparkSettings(version, properties)).conf)


@pytest.mark.parametrize(
    ("version", "set_", "line"),
    [
        ("3.3.2", {"master": "yarn", "executor_memory": "4g"}, f"{OVERHEAD}=1g"),
        ("3.3.2", {"master": "yarn", "executor_memory": "16g"}, f"{OVERHEAD}=4g"),
        ("3.3.2", {"master": "yarn"}, f"{OVERHEAD}=1g"),  # the minimum is 384 MiB
        ("2.4.8", {"master": "yarn", "executor_memoryOverhead": "1g"}, f"{OVERHEAD}=2g"),
        ("2.4.8", {"master": "yarn", "executor_memoryOverhead": "1500"}, f"{OVERHEAD}=3g"),
        ("2.4.8", {"master": "yarn", "yarn_executor_memoryOverhead": "3072"}, f"{OVERHEAD}=6g"),
        (
            "2.2.3",
            {"master": "yarn", "yarn_executor_memoryOverhead": "600"},
            "spark.yarn.executor.memoryOverhead=2048",
        ),
        (
            "3.1.3",
            {"master": "mesos://h:5050", "executor_memory": "8g"},
            "spark.mesos.executor.memoryOverhead=2048",
        ),
        (
            "2.3.4",
            {"master": "k8s://https://h", "executor_memory": "8g"},
            "spark.kubernetes.executor.memoryOverhead=2048",
        ),
        ("3.5.3", {"master": "k8s://https://h", "executor_memory": "8g"}, f"{OVERHEAD}=2g"),
        (
            "3.5.3",
            {
                "master": "k8s://https://h",
                "executor_memory": "8g",
                "kubernetes_resource_type": "python",
            },
            f"{OVERHEAD}=7g",  # 40 % for Python containers
        ),
        (
            "3.5.3",
            {"master": "yarn", "executor_memory": "8g", "executor_memoryOverheadFactor": "0.25"},
            f"{OVERHEAD}=4g",
        ),
        ("4.0.0", {"executor_memory": "4g", "executor_minMemoryOverhead": "2g"}, f"{OVERHEAD}=4g"),
        ("", {}, f"{OVERHEAD}=1g"),
    ],
)
def test_failure_advice_doubles_overhead_under_setting_of_version_and_manager(
    version: str, set_: dict[str, str], line: str
) -> None:
    assert conf("container memory", version, **set_) == [line]


def test_failure_advice_without_containers_suggests_no_overhead() -> None:
    for master in ("spark://h:7077", "local[4]"):
        assert conf("container memory", master=master) == []


@pytest.mark.parametrize(
    ("kind", "set_", "lines"),
    [
        ("executor memory", {"executor_memory": "4g"}, ["spark.executor.memory=8g"]),
        ("executor memory", {"executor_memory": "1500m"}, ["spark.executor.memory=3000m"]),
        ("executor memory", {"master": "local[2]"}, ["spark.driver.memory=2g"]),
        ("driver memory", {"driver_memory": "3g"}, ["spark.driver.memory=6g"]),
        ("python memory", {"executor_pyspark_memory": "2g"}, ["spark.executor.pyspark.memory=4g"]),
        ("python memory", {}, [f"{OVERHEAD}=1g"]),
        (
            "broadcast memory",
            {},
            ["spark.driver.memory=2g", "spark.sql.autoBroadcastJoinThreshold=-1"],
        ),
        ("virtual memory", {"master": "yarn"}, [f"{OVERHEAD}=1g"]),
        ("direct memory", {}, ["spark.executor.memory=2g", f"{OVERHEAD}=1g"]),
        ("disassociated", {"master": "yarn"}, [f"{OVERHEAD}=1g"]),
        (
            "python crash",
            {},
            [f"{OVERHEAD}=1g", "spark.python.worker.faulthandler.enabled=true"],
        ),
        ("python start", {}, ["spark.python.authenticate.socketTimeout=30s"]),
        (
            "heartbeat",
            {"network_timeout": "5min"},
            ["spark.network.timeout=600s", "spark.executor.memory=2g"],
        ),
        ("heartbeat", {}, ["spark.network.timeout=240s", "spark.executor.memory=2g"]),
        ("stage attempts", {}, ["spark.stage.maxConsecutiveAttempts=8"]),
        ("shuffle files lost", {"shuffle_io_maxRetries": "10"}, ["spark.shuffle.io.maxRetries=20"]),
        ("barrier with dynamic allocation", {}, ["spark.dynamicAllocation.enabled=false"]),
        ("barrier timeout", {"barrier_sync_timeout": "10"}, ["spark.barrier.sync.timeout=20s"]),
        ("barrier timeout", {}, []),
        ("broadcast size", {}, ["spark.sql.autoBroadcastJoinThreshold=-1"]),
        ("scaled down", {}, ["spark.dynamicAllocation.shuffleTracking.enabled=true"]),
        ("scaled down", {"shuffle_service_enabled": "true"}, []),
        ("terminated", {"master": "yarn"}, list(OFFERS)),
    ],
)
def test_failure_advice_doubles_the_current_value(
    kind: str, set_: dict[str, str], lines: list[str]
) -> None:
    assert conf(kind, **set_) == lines


@pytest.mark.parametrize(
    ("kind", "said", "set_", "lines"),
    [
        (
            "result size",
            "Total size of serialized results of 1 tasks (12.3 MiB) is bigger than",
            {"driver_maxResultSize": "1m"},
            ["spark.driver.maxResultSize=25m"],
        ),
        (
            "result size",
            "Total size of serialized results of 9 tasks (1024.2 MB) is bigger than",
            {},
            ["spark.driver.maxResultSize=2049m"],
        ),
        ("result size", "", {"driver_maxResultSize": "2g"}, ["spark.driver.maxResultSize=4g"]),
        (
            "message size",
            "Serialized task 1:0 was 209715200 bytes, which exceeds",
            {},
            ["spark.rpc.message.maxSize=400"],
        ),
        ("message size", "", {"rpc_message_maxSize": "1500"}, ["spark.rpc.message.maxSize=2047"]),
        (
            "kryo buffer",
            "Buffer overflow. Available: 0, required: 104857600",
            {},
            ["spark.kryoserializer.buffer.max=200m"],
        ),
        ("kryo buffer", "", {}, ["spark.kryoserializer.buffer.max=128m"]),
        (
            "broadcast timeout",
            "Could not execute broadcast in 900 secs.",
            {},
            ["spark.sql.broadcastTimeout=1800", "spark.sql.autoBroadcastJoinThreshold=-1"],
        ),
        (
            "named setting",
            'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.',
            {},
            ["spark.sql.ansi.enabled=false"],
        ),
        ("named setting", "This timeout is controlled by spark.rpc.askTimeout", {}, []),
    ],
)
def test_failure_advice_uses_required_value_from_message(
    kind: str, said: str, set_: dict[str, str], lines: list[str]
) -> None:
    assert conf(kind, said=said, **set_) == lines


@pytest.mark.parametrize("kind", ["preempted", "decommissioned", "node lost"])
def test_failure_advice_for_removed_executor_enables_decommissioning(kind: str) -> None:
    assert conf(kind, master="yarn") == list(OFFERS)
    assert conf(kind, decommission_enabled="true") == list(OFFERS[1:])
    assert conf(kind, "3.0.3", master="yarn") == ["spark.shuffle.service.enabled=true"]
    assert conf(kind, "2.4.8", master="k8s://h") == []
    every = dict.fromkeys(
        (
            "decommission_enabled",
            "storage_decommission_enabled",
            "storage_decommission_shuffleBlocks_enabled",
        ),
        "true",
    )
    assert conf(kind, **every) == []
    properties = {f"spark.{name.replace('_', '.')}": value for name, value in every.items()}
    found = advice_on(kind, "", SparkSettings("3.5.3", properties))
    assert "spark.storage.decommission.fallbackStorage.path" in found.settings
    assert "spark.shuffle.service.enabled" in found.settings


def test_failure_advice_lists_settings_without_a_value() -> None:
    def named(kind: str, version: str = "3.5.3", **properties: str) -> tuple[str, ...]:
        given = {f"spark.{name}": value for name, value in properties.items()}
        return advice_on(kind, "see spark.rpc.askTimeout", SparkSettings(version, given)).settings

    assert named("disk full") == ("spark.local.dir",)
    assert named("disk full", master="yarn") == ("yarn.nodemanager.local-dirs",)
    assert named("excluded executors")[0] == "spark.excludeOnFailure.enabled"
    assert named("excluded executors", "3.0.3")[0] == "spark.blacklist.enabled"
    assert named("named setting") == ("spark.rpc.askTimeout",)
    assert named("container memory") == (OVERHEAD,)
    assert named("python start", "2.4.8") == ()


@pytest.mark.parametrize("kind", failure_table()[0])
def test_failure_advice_for_every_kind_survives_nonsensical_settings(kind: str) -> None:
    names = ("executor.memory", "executor.memoryOverheadFactor", "network.timeout", "master")
    properties = {f"spark.{name}": "9" * 40 + " parsecs" for name in names}
    found = advice_on(kind, "12.3.4 of 5", SparkSettings("three", properties))
    assert found.reason
    assert found.action
    assert all("=" in each for each in found.conf)
