"""Stages that wait for shuffles, and stages that write many more rows for the next than they read.

At stake of the first is that waiting, as a share of the stage; of the second its span, as
far as what it wrote was more than what it read. Bytes may grow by another encoding; rows do not.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts, StageFacts
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

MUCH = 0.1  # Of the time in tasks' code, as for garbage collection
GROWS = 2.0  # times the rows that were read: a stage that only joins to keys adds none
LEAST_BYTES = 128 * MIB  # A shuffle below this fits into one partition of the usual size


def shuffles(job: JobFacts) -> Iterator[JobFinding]:
    """Waiting for shuffles, and shuffles of a surprising size."""
    for stage in job.stages:
        totals = stage.totals
        waited = totals.fetch_wait + totals.shuffle_write
        read = totals.rows_read
        if waited >= MUCH * stage.run_time:
            yield _wait(stage, waited)
        grows = read and totals.rows_written >= GROWS * read
        if grows and totals.shuffle_written >= LEAST_BYTES:
            yield _growth(stage)


def _wait(stage: StageFacts, waited: int) -> JobFinding:
    totals = stage.totals
    return JobFinding(
        Symptom.SHUFFLE_WAIT,
        str(stage),
        stage.share_of_span(waited) / 1000,
        f"of {duration_text(stage.run_time / 1000)} in tasks {duration_text(waited / 1000)} were "
        f"shuffle: {duration_text(totals.fetch_wait / 1000)} waiting for "
        f"{size_text(totals.shuffle_read)}, {duration_text(totals.shuffle_write / 1000)} writing "
        f"{size_text(totals.shuffle_written)}",
        "faster local disks or network, fewer and larger executors, or less to shuffle",
        (),
        {"fetch_wait_seconds": totals.fetch_wait / 1000,
         "shuffle_write_seconds": totals.shuffle_write / 1000,
         "run_seconds": stage.run_time / 1000},
    )  # fmt: skip


def _growth(stage: StageFacts) -> JobFinding:
    totals = stage.totals
    read, written = totals.rows_read, totals.rows_written
    return JobFinding(
        Symptom.SHUFFLE_GROWTH,
        str(stage),
        stage.span * (1 - read / written) / 1000,
        f"it read {read:,} rows and wrote {written:,} for the next stage, {written / read:.1f} "
        f"times as many, {size_text(totals.shuffle_written)}",
        "look for joins or explodes that multiply rows, for columns that nobody needs, and for "
        "a filter or a partial aggregate that could come first",
        (),
        {"read_rows": read, "written_rows": written, "written_bytes": totals.shuffle_written},
    )
