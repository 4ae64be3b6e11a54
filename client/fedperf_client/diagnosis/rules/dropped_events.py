"""Stages of which the log tells fewer tasks than they had: Spark dropped events under load.

Nothing is at stake, but nobody can tell from such a log who idled, so no rule says so.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts

USUAL_EVENTS = 10_000
"""That a queue of Spark's listeners holds where nobody set it."""


def dropped_events(job: JobFacts) -> Iterator[JobFinding]:
    """The stage of which most tasks are missing."""
    dropped = job.query.dropped
    if dropped is None:
        return
    name = "spark.scheduler.listenerbus.eventqueue.capacity"
    yield JobFinding(
        Symptom.DROPPED_EVENTS,
        f"stage {dropped.stage}",
        0.0,
        f"{dropped.told} of {dropped.announced} tasks of stage {dropped.stage} are in the log: "
        "Spark dropped events, so that nothing is said about idle time, and sums are too low",
        "a longer queue for the events, and more memory for the driver that keeps it",
        (f"{name}={4 * (job.settings.number(name, 0) or USUAL_EVENTS)}",),
        {"stage": dropped.stage, "told_tasks": dropped.told, "tasks": dropped.announced},
    )
