"""Tasks that failed, stages that ran again, and jobs that ended with an error, by their causes.

At stake is the time in which lost tasks or repeated stages ran; of a job that failed, all.
"""

from collections import defaultdict
from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.failure_advice import advice_for
from fedperf_client.sources.spark.failures import (
    FailureCause,
    FailureText,
    causes_of,
    last_text,
)
from fedperf_client.sources.spark.query import covered
from fedperf_client.sources.spark.tasks import StageAttempt
from fedperf_client.text.durations import duration_text

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
        yield _finding(job, cause, again if cause is to_blame else [])


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


def _finding(job: JobFacts, cause: FailureCause, again: list[StageAttempt]) -> JobFinding:
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
