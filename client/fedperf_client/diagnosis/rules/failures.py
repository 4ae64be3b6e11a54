"""Tasks that failed, stages that ran again, and jobs that ended with an error.

At stake is the time in which lost tasks or repeated stages ran; of a job that failed, all.
"""

from collections import Counter
from collections.abc import Iterator

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources.spark.query import Interval
from fedperf_client.sources.spark.settings import memory_setting
from fedperf_client.text.durations import duration_text

MOST_REASONS = 3  # that are named


def failures(job: JobFacts) -> Iterator[JobFinding]:
    """What had to be done again, or was in vain."""
    again = [each for each in job.stages if each.attempt]
    if not (job.failed or again or job.query.has_failed):
        return
    lost = _covered(
        [(each.launched, each.finished) for each in job.failed]
        + [(each.began, each.ended) for each in again]
    )
    said = [
        f"the job ended with an error after {duration_text(job.seconds)}"
    ] * job.query.has_failed
    if job.failed:
        reasons = Counter(each.reason.name for each in job.failed).most_common(MOST_REASONS)
        named = ", ".join(f"{count} {reason}" for reason, count in reasons)
        count = len(job.failed)
        said.append(f"{count} task{'s' * (count > 1)} failed ({named})")
    if again:
        said.append(f"{', '.join(map(str, again))} ran again")
    no_memory = any(each.reason.is_out_of_memory for each in job.failed)
    settings = job.settings
    stages = sorted({each.stage for each in job.failed})
    yield JobFinding(
        Symptom.FAILURES,
        f"stage {stages[0]}" if len(stages) == 1 else job.label,
        job.seconds if job.query.has_failed else min(lost / 1000, job.seconds),
        "; ".join(said),
        "memory ran out: more for each task" if no_memory else "see the error in the log",
        (f"{settings.memory_name}={memory_setting(2 * settings.memory_bytes)}",)
        if no_memory
        else (),
        {"failed_tasks": len(job.failed), "repeated_stages": len(again)},
    )


def _covered(intervals: list[Interval]) -> int:
    """Milliseconds that at least one of them holds."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
