"""Many tasks that have next to nothing to do.

At stake is what tasks spent beside computing (their start, waiting, scheduling), as far as
there were more of them than the slots and the bytes ask for. The log counts the processor time of
the JVM alone, so nothing is said of stages in which Python works, or whose tasks ran long.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts, StageFacts
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

WORTH_BYTES = MIB  # that a task should read: what Spark itself merges partitions up to
TINY_MILLISECONDS = 100.0  # below this most of a task that reads nothing is its own start
MUCH_WORK_MILLISECONDS = 500.0  # in the code of most tasks: whatever they read, that is no start
WAVES = 2  # fewer tasks per slot are no excess

_LISTING = "Listing leaf files"


def tiny_tasks(job: JobFacts) -> Iterator[JobFinding]:
    """Stages in which starting tasks took more than their work."""
    for stage in job.stages:
        tasks, totals = len(stage.tasks), stage.totals
        read = totals.input_bytes + totals.shuffle_read
        enough = max(stage.slots, -(-read // WORTH_BYTES))
        is_tiny = read > 0 or stage.median < TINY_MILLISECONDS
        if stage.runs_python or job.query.dropped or stage.median_run > MUCH_WORK_MILLISECONDS:
            continue
        if not (stage.slots and is_tiny and tasks >= WAVES * enough):
            continue
        beside = max(0, stage.task_time - totals.cpu)
        yield JobFinding(
            Symptom.TINY_TASKS,
            str(stage),
            stage.share_of_span(beside * (1 - enough / tasks)) / 1000,
            f"{tasks} tasks on {stage.slots} slots read {size_text(read / tasks)} each and took "
            f"{duration_text(stage.median / 1000)} in the median; of "
            f"{duration_text(stage.task_time / 1000)} in all, {duration_text(totals.cpu / 1000)} "
            "were CPU time of their code in the JVM; time of programs beside it is not counted",
            _advice(job, stage),
            _conf(job, stage, enough),
            {
                "tasks": tasks,
                "slots": stage.slots,
                "read_bytes": read,
                "task_seconds": stage.task_time / 1000,
                "cpu_seconds": totals.cpu / 1000,
            },
        )


def _advice(job: JobFacts, stage: StageFacts) -> str:
    if job.description.startswith(_LISTING):
        return "fewer and larger files or directories; list them in fewer tasks"
    if stage.totals.input_bytes > stage.totals.shuffle_read:
        return "fewer and larger files (small files), or fewer partitions"
    return "fewer partitions"


def _conf(job: JobFacts, stage: StageFacts, enough: int) -> tuple[str, ...]:
    if job.description.startswith(_LISTING):
        return (f"spark.sql.sources.parallelPartitionDiscovery.parallelism={enough}",)
    if stage.totals.shuffle_read and len(stage.tasks) == job.settings.partitions:
        return (*job.settings.with_adaptive, f"spark.sql.shuffle.partitions={enough}")
    return ()
