"""Times in which a job had no task running at all: who waited for whom.

Either a stage was submitted and none of its tasks had begun (it waited for executors, or for
the driver to send its tasks), or none was submitted: the driver planned, listed files, collected
or built a table for all. More executors help with neither.
"""

from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts, StageFacts, merged
from fedperf_client.sources.spark.query import Interval
from fedperf_client.text.durations import duration_text


def idle_executors(job: JobFacts) -> Iterator[JobFinding]:
    """What of the quiet times was waiting for tasks to begin, and what was the driver alone."""
    if not job.query.was_alone or job.query.dropped:
        return
    waits = merged(
        [(each.submitted_at, _began(job, each)) for each in _waited_for(job) if each.submitted_at]
    )
    waited = _together(job.quiet, waits)
    alone = sum(end - start for start, end in job.quiet) - sum(b - a for a, b in waited)
    if waited:
        yield _waiting(job, waited)
    if alone > 0:
        yield _driver(job, alone)


def _waited_for(job: JobFacts) -> list[StageFacts]:
    """Stages of which tasks succeeded, and those of which none ever began."""
    return [each for each in job.attempts if len(each.tasks) or not each.has_begun]


def _began(job: JobFacts, stage: StageFacts) -> int:
    """When its first task began; the end of the job where none did."""
    return stage.began if len(stage.tasks) else job.ended_at


def _waiting(job: JobFacts, waited: list[Interval]) -> JobFinding:
    start, end = max(waited, key=lambda each: each[1] - each[0])
    stage = min(
        (each for each in _waited_for(job) if each.submitted_at is not None),
        key=lambda each: (_began(job, each) < end, _began(job, each)),
    )
    missing = not stage.had_executors
    conf = _least_executors(job, stage) if missing and not stage.at_start else ()
    total = sum(b - a for a, b in waited) / 1000
    longest = (end - start) / 1000
    said = "no executor was there" if missing else "executors were there"
    before = f"before the first task of {stage}" if stage.has_begun else f"no task of {stage} began"
    return JobFinding(
        Symptom.EXECUTOR_WAIT,
        str(stage),
        total,
        f"for {duration_text(total)} stages were submitted and no task ran; the longest time, "
        f"{duration_text(longest)}, {before}: {said}",
        _how_to_wait_less(stage),
        conf,
        {"waited_seconds": total, "longest_seconds": longest},
        max(0.0, total - job.waited_seconds) / job.seconds if job.seconds > 0 else 0.0,
    )


def _how_to_wait_less(stage: StageFacts) -> str:
    if stage.had_executors:
        return (
            "executors that had just started, or a driver that is slow to send tasks: try more "
            "driver cores"
        )
    if stage.at_start:
        return (
            "the application was starting, and its first executors were on their way: the manager "
            "of the cluster sets how long that takes"
        )
    return (
        "keep executors between jobs (their idle time costs; a longer "
        "spark.dynamicAllocation.executorIdleTimeout does it as well), or let jobs follow closely"
    )


def _least_executors(job: JobFacts, stage: StageFacts) -> tuple[str, ...]:
    cores = job.settings.executor_cores
    if not cores:
        return ()
    wanted = -(-stage.slots * job.settings.cores_per_task // cores)
    return (f"spark.dynamicAllocation.minExecutors={max(1, wanted)}",)


def _driver(job: JobFacts, alone: int) -> JobFinding:
    began = min((each.began for each in job.stages), default=job.ended_at)
    ended = max((each.ended for each in job.stages), default=job.ended_at)
    before = max(0, began - job.started_at)
    after = max(0, job.ended_at - ended)
    where = (
        f"its first task began {duration_text(before / 1000)} after its start, and it ended "
        f"{duration_text(after / 1000)} after its last"
        if job.stages
        else "no task of it succeeded"
        if job.lost
        else "it had no task"
    )
    return JobFinding(
        Symptom.DRIVER,
        job.label,
        alone / 1000,
        f"for {duration_text(alone / 1000)} of {duration_text(job.seconds)} no task ran and no "
        f"stage waited for one ({where})",
        "the driver planned, listed files, collected results or committed: fewer files and "
        "partitions, less to collect; more executors do not help"
        if job.stages or job.lost
        else "no executor took part: planning, or the catalogue and its metastore; more executors "
        "do not help",
        (),
        {"alone_seconds": alone / 1000, "before_seconds": before / 1000,
         "after_seconds": after / 1000},
    )  # fmt: skip


def _together(some: tuple[Interval, ...], others: list[Interval]) -> list[Interval]:
    """Times that are in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(start, end) for start, end in pairs if end > start]
