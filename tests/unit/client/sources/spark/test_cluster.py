"""Resources of a query follow the lifetimes of executors."""

import pytest

from fedperf_client.sources.spark.cluster import Executors
from fedperf_client.sources.spark.fields import size_bytes
from fedperf_shared.execution import ClusterConfig

GIB = 1024**3


def added(executors: Executors, identity: str, at: int, *, cores: int = 4, host: str = "h") -> None:
    info = {"Host": host, "Total Cores": cores}
    executors.added({"Executor ID": identity, "Timestamp": at, "Executor Info": info})


def removed(executors: Executors, identity: str, at: int) -> None:
    executors.removed({"Executor ID": identity, "Timestamp": at})


def during(executors: Executors, start: int, end: int) -> ClusterConfig:
    found = executors.during(start, end)
    assert found is not None
    return found


def test_executor_cores_and_memory_are_averaged_over_the_query() -> None:
    executors = Executors()
    executors.configured({"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "1024"})
    added(executors, "1", 0, host="a")
    added(executors, "2", 1500, host="b")
    added(executors, "3", 0, host="b", cores=8)
    removed(executors, "3", 1500)
    cluster = during(executors, 1000, 2000)
    assert (cluster.nodes, cluster.cores) == (2, 4 + 2 + 4)
    assert cluster.memory_bytes == 3 * GIB + 3 * GIB // 2 + 3 * GIB // 2


def test_executor_removed_before_query_is_not_counted() -> None:
    executors = Executors()
    added(executors, "1", 0)
    removed(executors, "1", 900)
    assert executors.during(1000, 2000) is None


def test_executor_added_after_query_by_clock_skew_counts_in_full() -> None:
    executors = Executors()
    added(executors, "1", 10_000_000)
    assert during(executors, 1000, 2000).cores == 4


def test_executor_removed_without_addition_or_added_twice_is_ignored() -> None:
    executors = Executors()
    removed(executors, "9", 5)
    added(executors, "1", 0)
    added(executors, "1", 0)
    assert during(executors, 0, 10).cores == 4


def test_local_mode_driver_memory_comes_from_block_manager() -> None:
    executors = Executors()
    executors.configured({"spark.executor.memory": "64g"})
    block_manager = {"Executor ID": "driver", "Host": "h"}
    executors.block_manager_added({"Block Manager ID": block_manager, "Maximum Memory": 6 * GIB})
    added(executors, "driver", 0, cores=2)
    assert during(executors, 0, 10).memory_bytes == 10 * GIB


def test_local_mode_driver_memory_ignores_executor_resource_profile() -> None:
    executors = Executors()
    amounts = {"memory": {"Amount": 1024}}
    executors.resource_profile(
        {"Resource Profile Id": 0, "Executor Resource Requests": amounts}
    )  # Spark 3.1 and later write this in local mode too
    info = {"Host": "h", "Total Cores": 2, "Resource Profile Id": 0}
    executors.added({"Executor ID": "driver", "Timestamp": 0, "Executor Info": info})
    assert during(executors, 0, 10).memory_bytes == GIB
    block_manager = {"Executor ID": "driver", "Host": "h"}
    executors.block_manager_added({"Block Manager ID": block_manager, "Maximum Memory": 6 * GIB})
    assert during(executors, 0, 10).memory_bytes == 10 * GIB


def test_executor_memory_comes_from_its_resource_profile() -> None:
    executors = Executors()
    amounts = {"memory": {"Amount": 2048}, "memoryOverhead": {"Amount": 1024}, "cores": {}}
    profile = {"Resource Profile Id": 3, "Executor Resource Requests": amounts}
    executors.resource_profile(profile)
    info = {"Host": "h", "Total Cores": 4, "Resource Profile Id": 3}
    executors.added({"Executor ID": "1", "Timestamp": 0, "Executor Info": info})
    assert during(executors, 0, 10).memory_bytes == 3 * GIB


def test_executors_that_ended_before_running_queries_are_dropped() -> None:
    executors = Executors()
    for number in range(1000):
        added(executors, str(number), number)
        removed(executors, str(number), number + 1)
    executors.forget_before(900)
    assert len(executors._ended) == 101


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2g", 2 * GIB),
        ("512m", 512 << 20),
        ("1024", 1024 << 20),
        ("3 KiB", 3072),
        ("1tb", 1 << 40),
        ("-1", 0),
        ("1.5g", 0),
        ("", 0),
        (2, 0),
        ("9" * 16 + "g", 0),
    ],
)
def test_size_bytes_parses_spark_sizes_and_returns_zero_otherwise(text: object, size: int) -> None:
    assert size_bytes(text) == size


def test_size_bytes_without_suffix_uses_given_unit() -> None:
    assert size_bytes("4096", unit=1) == 4096
