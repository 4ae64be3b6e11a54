"""Stages whose tasks had too little memory: they spilled to disk, or the JVM collected garbage.

At stake of spilling is at most all time in the code of tasks that did, without garbage collection
and waiting for shuffles: sorting in pieces costs processor time as well, and no log tells that
apart. At stake of garbage collection is its time, as a share of the stage.
"""

import math
from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.settings import ADAPTIVE_BY_DEFAULT, SparkSettings
from fedperf_client.sources.spark.tasks import StageAttempt
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

ROOMY = 0.1  # Of an executor's memory: whose tasks hold less has enough of it for them
MUCH_GARBAGE = 0.1  # Of the time in tasks' code: from here on Spark's pages show a task in red


def spills(job: JobFacts) -> Iterator[JobFinding]:
    """Stages with tasks that wrote to disk what they could not hold."""
    for stage in job.stages:
        totals = stage.totals
        if not (totals.spilled_disk and totals.spilled_tasks):
            continue
        # By how much smaller the work of a task must be to fit: what it had, over what it held.
        held = max(1, totals.held)
        factor = max(2, math.ceil((held + totals.spilled_memory) / held))
        yield JobFinding(
            Symptom.SPILL,
            str(stage),
            stage.share_of_span(totals.spilled_run) / 1000,
            f"{totals.spilled_tasks} of {len(stage.tasks)} tasks wrote "
            f"{size_text(totals.spilled_disk)} to disk ({size_text(totals.spilled_memory)} in "
            f"memory); they could hold {size_text(totals.held / len(stage.tasks))} each",
            f"{factor} times as many partitions, or {factor} times the memory per task",
            _conf(stage, job.settings, factor),
            {
                "spilled_disk_bytes": totals.spilled_disk,
                "spilled_memory_bytes": totals.spilled_memory,
                "spilled_tasks": totals.spilled_tasks,
                "tasks": len(stage.tasks),
            },
        )


def _conf(stage: StageAttempt, settings: SparkSettings, factor: int) -> tuple[str, ...]:
    """More partitions where a setting makes them, else more memory."""
    tasks, totals = len(stage.tasks), stage.totals
    if totals.shuffle_read > totals.input_bytes:
        if settings.is_adaptive and tasks < settings.partitions:
            size = max(MIB, totals.shuffle_read // (tasks * factor))
            advisory = f"spark.sql.adaptive.advisoryPartitionSizeInBytes={size}"
            heeded = "spark.sql.adaptive.coalescePartitions.parallelismFirst=false"
            return (advisory, heeded) if settings.knows(ADAPTIVE_BY_DEFAULT) else (advisory,)
        if tasks == settings.partitions:
            return (f"spark.sql.shuffle.partitions={tasks * factor}",)
    return (settings.times_memory(factor),)


def garbage_collection(job: JobFacts) -> Iterator[JobFinding]:
    """Stages with too little memory for the objects that they make."""
    for stage in job.stages:
        share = stage.totals.garbage / stage.run_time
        if share < MUCH_GARBAGE:
            continue
        settings, held = job.settings, job.held_at_once(stage)
        is_roomy = held < ROOMY * settings.memory_bytes
        yield JobFinding(
            Symptom.GARBAGE,
            str(stage),
            stage.share_of_span(stage.totals.garbage) / 1000,
            f"{duration_text(stage.totals.garbage / 1000)} of "
            f"{duration_text(stage.run_time / 1000)} in tasks ({share:.0%}) were garbage "
            f"collection; tasks of one executor held at most {size_text(held)} of "
            f"{size_text(settings.memory_bytes)} at once",
            "not for want of room for what tasks hold: a JVM that had just started, data in its "
            "cache, or code that makes many objects"
            if is_roomy
            else "more memory per core: twice as much, or half as many cores per executor",
            () if is_roomy else (settings.times_memory(2),),
            {
                "garbage_seconds": stage.totals.garbage / 1000,
                "run_seconds": stage.run_time / 1000,
                "held_bytes": held,
                "memory_bytes": settings.memory_bytes,
            },
        )
