"""Rules about jobs and applications: times when nothing ran, failures, and logs that cannot tell.

In a job, either a stage was submitted and none of its tasks had begun (it waited for executors, or
for the driver to send its tasks), or none was submitted: the driver planned, listed files,
collected or built a table for all. Outside of all queries and jobs the driver worked alone, or
waited; at stake is all that executors cost meanwhile. More executors help with none of it.

At stake of failures is the time in which lost tasks or repeated stages ran; of a job that failed,
all.

Where Spark dropped events under load the log tells fewer tasks of a stage than it had. Nothing is
at stake then, but nobody can tell who idled, so no rule says so.
"""

from collections import defaultdict
from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.failure_advice import advice_for
from fedperf_client.sources.spark.failures import (
    FailureCause,
    FailureText,
    causes_of,
    last_text,
)
from fedperf_client.sources.spark.fields import moment
from fedperf_client.sources.spark.identity import is_interactive
from fedperf_client.sources.spark.query import Interval, covered, merged
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_client.sources.spark.tasks import StageAttempt
from fedperf_shared.runtime.quantities import duration_text

MUCH_OF_APPLICATION = 0.2  # Of its time: every one has some, before its first job and later
LEAST_SECONDS = 5.0  # below this an application is short, and most of that is its start
IDLE_TIMEOUT = 60  # seconds after which Spark gives an idle executor back, where nobody set it
USUAL_EVENTS = 10_000  # that a queue of Spark's listeners holds where nobody set it


def idle_executors(job: JobFacts) -> Iterator[JobFinding]:
    """What of the quiet times was waiting for tasks to begin, and what was the driver alone."""
    if not job.query.was_alone or job.query.dropped:
        return
    # Stages of which tasks succeeded, and those of which none ever began: until its end.
    begun = [
        (each.began if len(each.tasks) else job.query.end, each)
        for each in job.attempts
        if each.submitted_at and (len(each.tasks) or not each.has_begun)
    ]
    waits = merged((each.submitted_at or 0, began) for began, each in begun)
    both = ((max(a, c), min(b, d)) for a, b in job.quiet for c, d in waits)
    waited = [(start, end) for start, end in both if end > start]
    alone = sum(end - start for start, end in job.quiet) - sum(b - a for a, b in waited)
    if waited:
        _, last = max(waited, key=lambda each: each[1] - each[0])
        _, stage = min(begun, key=lambda each: (each[0] < last, each[0]))
        yield _waiting(job, waited, stage)
    if alone > 0:
        yield _driver(job, alone)


def _waiting(job: JobFacts, waited: list[Interval], stage: StageAttempt) -> JobFinding:
    missing = not stage.had_executors
    conf: tuple[str, ...] = ()
    cores = job.settings.executor_cores
    if cores and missing and not stage.at_start:
        wanted = -(-stage.slots * job.settings.cores_per_task // cores)
        conf = (f"spark.dynamicAllocation.minExecutors={max(1, wanted)}",)
    total = sum(b - a for a, b in waited) / 1000
    longest = max(end - start for start, end in waited) / 1000
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
        max(0.0, total - job.query.wait_milliseconds / 1000) / job.seconds
        if job.seconds > 0
        else 0.0,
    )


def _how_to_wait_less(stage: StageAttempt) -> str:
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


def _driver(job: JobFacts, alone: int) -> JobFinding:
    began = min((each.began for each in job.stages), default=job.query.end)
    ended = max((each.ended for each in job.stages), default=job.query.end)
    before = max(0, began - job.query.started_at)
    after = max(0, job.query.end - ended)
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
        str(job.query),
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


def outside_jobs(whole: Application, cores: int) -> JobFinding | None:
    """That time, where it is much.

    Args:
        whole: the application, whose log was read.
        cores: that it had, a mean over its time.
    """
    outside, seconds = min(whole.gaps.milliseconds / 1000, whole.seconds), whole.seconds
    if not (outside >= LEAST_SECONDS and outside >= MUCH_OF_APPLICATION * seconds):
        return None
    idle, total = whole.gaps.core_milliseconds / 1000, cores * seconds
    session = is_interactive(whole.name.rpartition(" (")[0] or whole.name)
    who = "people who thought, or were gone" if session else "the driver's own code, or waiting"
    back, conf = _against_idleness(whole.settings)
    longest = whole.gaps.longest
    gaps = ", ".join(
        f"{duration_text(took / 1000)} from {moment(at):%H:%M:%S}" for took, (at, _) in longest
    )
    return JobFinding(
        Symptom.OUTSIDE_JOBS,
        "idle session" if session else "application",
        outside,
        f"for {duration_text(outside)} of {duration_text(seconds)} ({outside / seconds:.0%}) no "
        f"query and no job ran, and executors held {idle:,.0f} of {total:,.0f} core-seconds "
        f"meanwhile; longest: {gaps}",
        f"{who}: more executors do not help; {back}",
        conf,
        {
            "outside_seconds": outside,
            "share": outside / seconds,
            "idle_core_seconds": idle,
            "core_seconds": total,
            "longest_seconds": longest[0][0] / 1000,
        },
        min(1.0, idle / total) if total else 0.0,
    )


def _against_idleness(settings: SparkSettings) -> tuple[str, tuple[str, ...]]:
    """What gives idle cores back, and its settings."""
    if settings.is_local:
        return "fewer cores, or stop it", ()
    conf: tuple[str, ...] = (f"spark.dynamicAllocation.executorIdleTimeout={IDLE_TIMEOUT}s",)
    back = "a shorter idle timeout gives executors back"
    if not settings.has_dynamic_executors:
        kept = "dynamicAllocation.shuffleTracking" if settings.knows((3, 0)) else "shuffle.service"
        conf = ("spark.dynamicAllocation.enabled=true", f"spark.{kept}.enabled=true", *conf)
        back = "dynamic allocation with an idle timeout, or fewer executors, gives the cores back"
    return back, () if settings.is_databricks else conf


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


MOST_CAUSES = 3  # that are told of one job


def failures(job: JobFacts) -> Iterator[JobFinding]:
    """What had to be done again, or was in vain."""
    own_text = None
    if job.query.has_failed:
        own_text = last_text(job.query.failures) or FailureText.of("", job.query.failure)
    causes, again = causes_of(job.lost, job.removals, own_text), list(_repeated(job))
    if again and not causes:
        causes = [FailureCause(None, "")]
    # Whatever lost the files of a stage made it run again; else what cost most attempts.
    to_blame = next((each for each in causes if each.missing), causes[0] if causes else None)
    for cause in causes[:MOST_CAUSES]:
        yield _failure(job, cause, again if cause is to_blame else [])


def _repeated(job: JobFacts) -> Iterator[StageAttempt]:
    """Attempts at stages in which tasks ran that had succeeded before."""
    attempts = defaultdict[int, list[StageAttempt]](list)
    for stage in job.stages:
        attempts[stage.number].append(stage)
    for stage in job.stages:
        so_far = [each for each in attempts[stage.number] if each.attempt <= stage.attempt]
        done = sum(len(each.tasks) for each in so_far)
        if done > max(each.announced or len(each.tasks) for each in so_far):
            yield stage


def _failure(job: JobFacts, cause: FailureCause, again: list[StageAttempt]) -> JobFinding:
    advice = advice_for(cause, job.settings)
    lost = [(each.launched, each.finished) for each in cause.failures]
    seconds = covered([*lost, *((each.began, each.ended) for each in again)]) / 1000
    ended = f"the job ended with an error after {duration_text(job.seconds)}"
    repeated = f"{', '.join(map(str, again))} ran again"
    said = (
        ended * cause.ends_job,
        advice.reason,
        *cause.evidence,
        repeated * bool(again),
        f"{duration_text(seconds)} lost" * bool(seconds),
    )
    after = None if cause.moment is None else (cause.moment - job.query.started_at) / 1000
    return JobFinding(
        Symptom.FAILURES,
        str(job.query) if cause.stage is None else f"stage {cause.stage}",
        job.seconds if cause.ends_job else min(seconds, job.seconds),
        "; ".join(filter(None, said)),
        advice.action,
        advice.conf,
        {
            "repeated_stages": len(again),
            "lost_seconds": seconds,
            **cause.figures,
            **({} if after is None else {"after_seconds": after}),
            **({"settings": advice.settings} if advice.settings else {}),
        },
    )
