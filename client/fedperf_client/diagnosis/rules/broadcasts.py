"""Tables sent to all executors that are far larger than Spark believed.

At stake is the driver's time to build and send them, once they were collected; the memory that
they take on every executor comes on top and is in no log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

TIMES = 10
"""Of the size up to which Spark sends a table to all: it estimated no more than that, unless the
code asked for it, and its files take a tenth of what rows take in memory at the least."""

_SIZE = "data size"


@dataclass(frozen=True, slots=True)
class _Broadcast:
    """One table that was sent to all."""

    data_bytes: int  # of it, as it is kept in memory
    build_time: int  # build_time, send_time: milliseconds of the driver, once it had been collected
    send_time: int


def broadcasts(job: JobFacts) -> Iterator[JobFinding]:
    """The table that took the driver longest, where it is that large."""
    limit = job.settings.broadcast_bytes
    large = [each for each in _sent(job.query) if each.data_bytes > TIMES * limit]
    if not large:
        return
    worst = max(large, key=lambda each: each.build_time + each.send_time)
    build, send = worst.build_time / 1000, worst.send_time / 1000
    yield JobFinding(
        Symptom.BROADCAST,
        job.label,
        build + send,
        f"a table of {size_text(worst.data_bytes)} was sent to all executors, {len(large)} such "
        f"in all, where Spark sends up to {size_text(limit)} by itself; building it took "
        f"{duration_text(build)}, sending {duration_text(send)}",
        "join it by a shuffle: no broadcast hint, statistics of the table, or a lower "
        "spark.sql.autoBroadcastJoinThreshold",
        (),
        {"data_bytes": worst.data_bytes, "build_seconds": build, "send_seconds": send},
    )


def _sent(query: SparkQuery) -> Iterator[_Broadcast]:
    """Every table that was sent to all and whose size was counted, once."""
    seen = set[int]()
    for node in query.plan.nodes:
        ids = node.sent or {}
        counted = {
            name.removesuffix(" (ms)"): max(0, query.counters[number])
            for name, number in ids.items()
            if number in query.counters
        }
        if counted.get(_SIZE) and ids[_SIZE] not in seen:
            seen.add(ids[_SIZE])
            build, send = counted.get("time to build", 0), counted.get("time to broadcast", 0)
            yield _Broadcast(counted[_SIZE], build, send)
