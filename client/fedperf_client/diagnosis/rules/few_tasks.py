"""Stages with fewer tasks than slots.

At stake is what the usual task takes longer than its share of all slots would, and no more than
the slots were without work: not all work can be split.
"""

import re
from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts, StageFacts
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

_READS_SCHEMA = re.compile(r"(?:load|parquet|orc|avro|csv|json|text|table) at ")
"""Calls that read no rows, but ask files for their columns, in a task of Spark's own."""

LEAST_BYTES = MIB
"""A task for less is not worth its start: what Spark itself merges partitions up to."""


def few_tasks(job: JobFacts) -> Iterator[JobFinding]:
    """Stages that could not use the cores that were there."""
    for stage in job.stages:
        if not len(stage.tasks) < stage.slots:
            continue
        usual = min(stage.mean, stage.median)  # a straggler is another finding
        spread = usual * (1 - len(stage.tasks) / stage.slots)
        seconds = min(spread, job.unused(stage)) / 1000
        conf = _conf(stage, job.settings)
        totals, tasks = stage.totals, len(stage.tasks)
        read = totals.input_bytes + totals.shuffle_read
        yield JobFinding(
            Symptom.FEW_TASKS,
            str(stage),
            seconds,
            f"{tasks} task{'s' * (tasks > 1)} on {stage.slots} slots for "
            f"{duration_text(stage.span / 1000)}; read: {size_text(read)}",
            _advice(stage, read, conf),
            conf,
            {"tasks": tasks, "slots": stage.slots, "read_bytes": read},
        )


def _advice(stage: StageFacts, read: int, conf: tuple[str, ...]) -> str:
    if conf:
        return "more partitions"
    if len(stage.tasks) == 1 and not read and _READS_SCHEMA.match(stage.name):
        return (
            "Spark asks files for their columns, which no setting splits: give a schema, or read "
            "a table of the catalogue"
        )
    return "more partitions where the code makes them; else fewer cores do as well here"


def _conf(stage: StageFacts, settings: SparkSettings) -> tuple[str, ...]:
    """As many partitions as slots, where there is enough to read for each."""
    totals, tasks = stage.totals, len(stage.tasks)
    read = max(totals.input_bytes, totals.shuffle_read)
    size = read // stage.slots
    if size < LEAST_BYTES:
        return ()
    if totals.input_bytes > totals.shuffle_read:
        return settings.smaller_files(size)
    if tasks == settings.partitions:
        return (f"spark.sql.shuffle.partitions={stage.slots}",)
    if settings.is_adaptive and settings.partitions >= stage.slots:
        return (f"spark.sql.adaptive.advisoryPartitionSizeInBytes={size}",)
    return ()
