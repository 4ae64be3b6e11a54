"""Stages whose tasks stood still while the JVM collected garbage.

At stake is that time, as a share of the stage.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.text.durations import duration_text
from fedperf_client.text.operator_tree import size_text

ROOMY = 0.1  # Of an executor's memory: whose tasks hold less has enough of it for them
MUCH = 0.1  # Of the time in tasks' code: from here on Spark's own interface shows a task in red


def garbage_collection(job: JobFacts) -> Iterator[JobFinding]:
    """Stages with too little memory for the objects that they make."""
    for stage in job.stages:
        share = stage.totals.garbage / stage.run_time
        if share < MUCH:
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
