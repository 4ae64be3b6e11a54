"""Rows that travel between executors: by shuffles, and in tables that are sent to all of them.

At stake of waiting for shuffles is that time, as a share of the stage; of a shuffle that grew the
stage's span, as far as what it wrote was more than what it read (bytes may grow by another
encoding; rows do not). At stake of a table that is far larger than Spark believed is the driver's
time to build and send it, once it was collected; the memory that it takes on every executor comes
on top and is in no log.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.query import SparkQuery
from fedperf_client.sources.spark.settings import DEFAULT_BROADCAST_BYTES
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

MUCH = 0.1  # Of the time in tasks' code, as for garbage collection
GROWS = 2.0  # times the rows that were read: a stage that only joins to keys adds none
LEAST_BYTES = 128 * MIB  # A shuffle below this fits into one partition of the usual size

TIMES = 10
"""Of the size up to which Spark sends a table to all: it estimated no more than that, unless the
code asked for it, and its files take a tenth of what rows take in memory at the least."""

_SIZE = "data size"


def shuffles(job: JobFacts) -> Iterator[JobFinding]:
    """Waiting for shuffles, and shuffles of a surprising size."""
    for stage in job.stages:
        totals, run = stage.totals, stage.run_time / 1000
        wait, write = totals.fetch_wait / 1000, totals.shuffle_write / 1000
        waited = totals.fetch_wait + totals.shuffle_write
        if waited >= MUCH * stage.run_time:
            yield JobFinding(
                Symptom.SHUFFLE_WAIT,
                str(stage),
                stage.share_of_span(waited) / 1000,
                f"of {duration_text(run)} in tasks {duration_text(waited / 1000)} were shuffle: "
                f"{duration_text(wait)} waiting for {size_text(totals.shuffle_read)}, "
                f"{duration_text(write)} writing {size_text(totals.shuffle_written)}",
                "faster local disks or network, fewer and larger executors, or less to shuffle",
                (),
                {"fetch_wait_seconds": wait, "shuffle_write_seconds": write, "run_seconds": run},
            )
        read, rows, written = totals.rows_read, totals.rows_written, totals.shuffle_written
        if read and rows >= GROWS * read and written >= LEAST_BYTES:
            yield JobFinding(
                Symptom.SHUFFLE_GROWTH,
                str(stage),
                stage.span * (1 - read / rows) / 1000,
                f"it read {read:,} rows and wrote {rows:,} for the next stage, {rows / read:.1f} "
                f"times as many, {size_text(written)}",
                "look for joins or explodes that multiply rows, for columns that nobody needs, and "
                "for a filter or a partial aggregate that could come first",
                (),
                {"read_rows": read, "written_rows": rows, "written_bytes": written},
            )


def broadcasts(job: JobFacts) -> Iterator[JobFinding]:
    """The table that took the driver longest, where it is that large."""
    # Spark's default where that is switched off.
    limit = job.settings.size(
        "spark.sql.autoBroadcastJoinThreshold", DEFAULT_BROADCAST_BYTES, unit=1
    )
    large = [each for each in _sent(job.query) if each[0] > TIMES * limit]
    if not large:
        return
    size, *took = max(large, key=lambda each: sum(each[1:]))
    build, send = (each / 1000 for each in took)
    yield JobFinding(
        Symptom.BROADCAST,
        str(job.query),
        build + send,
        f"a table of {size_text(size)} was sent to all executors, {len(large)} such "
        f"in all, where Spark sends up to {size_text(limit)} by itself; building it took "
        f"{duration_text(build)}, sending {duration_text(send)}",
        "join it by a shuffle: no broadcast hint, statistics of the table, or a lower "
        "spark.sql.autoBroadcastJoinThreshold",
        (),
        {"data_bytes": size, "build_seconds": build, "send_seconds": send},
    )


def _sent(query: SparkQuery) -> Iterator[tuple[int, int, int]]:
    """Every table that was sent to all and whose size was counted, once.

    Its bytes in memory, and milliseconds in which the driver built and sent it once collected.
    """
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
            yield counted[_SIZE], build, send
