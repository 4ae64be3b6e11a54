"""Rules about a whole application: what its jobs have in common, or what is outside of them.

- Outside of all queries and jobs, the driver worked alone, or waited. The cost of all executors
  meanwhile can be saved; more executors help with none of it.
- Executor churn: executors came again after others had gone. At most the time in which jobs waited
  for them.
- Repeated work: see `plan_rules`.
- No end: the log stops in the middle of a job and has no end of the application. At most the time
  of that job; if the application still runs, nothing is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedperf_client.diagnosis.job_facts import JobFacts, JobFinding, Symptom
from fedperf_client.diagnosis.plan_rules import RepeatedParts
from fedperf_client.sources.spark.fields import moment
from fedperf_client.sources.spark.names import is_interactive
from fedperf_client.sources.spark.query import COLUMNS
from fedperf_client.sources.spark.reader import Application
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_shared.runtime.quantities import duration_text

MUCH_OF_APPLICATION = 0.2  # of its time; every application has some
LEAST_SECONDS = 5.0  # a shorter time is mostly the start of the application
IDLE_SETTING = "spark.dynamicAllocation.executorIdleTimeout"
IDLE_TIMEOUT = 60  # seconds; Spark's default of executorIdleTimeout
FEW_RETURNS = 2  # executors that came after others had gone; fewer are a loss, or a change


@dataclass(slots=True)
class ApplicationFacts:
    """Facts that the jobs of an application have in common."""

    repeated: RepeatedParts = field(default_factory=RepeatedParts)
    waits: list[float] = field(default_factory=list)  # seconds of jobs, for executors to come back

    def add(self, job: JobFacts) -> None:
        """Add a job that is over."""
        self.repeated.add(job)
        if job.query.wait_milliseconds and not all(each.at_start for each in job.attempts):
            self.waits.append(job.query.wait_milliseconds / 1000)

    def findings(self, whole: Application, cores: int) -> Iterator[JobFinding]:
        """Yield the findings about an application that is over; `cores` are its mean."""
        yield from outside_jobs(whole, cores)
        yield from _churn(whole, self.waits)
        yield from self.repeated.findings()
        yield from _no_end(whole)


def outside_jobs(whole: Application, cores: int) -> Iterator[JobFinding]:
    """Find the time outside of jobs, if it is long; `cores` are the mean of the application."""
    outside, seconds = min(whole.idle_milliseconds / 1000, whole.seconds), whole.seconds
    if not (outside >= LEAST_SECONDS and outside >= MUCH_OF_APPLICATION * seconds):
        return
    idle, total = whole.idle_core_milliseconds / 1000, cores * seconds
    session = is_interactive(whole.name.rpartition(" (")[0] or whole.name)
    who = "the session waited for its user" if session else "the driver ran own code, or waited"
    back, conf = _against_idleness(whole.settings)
    longest = whole.longest_gaps
    gaps = ", ".join(
        f"{duration_text(took / 1000)} from {moment(at):%H:%M:%S}" for took, (at, _) in longest
    )
    yield JobFinding(
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
    """Return advice that gives idle cores back, and its settings."""
    if settings.is_local:
        return "fewer cores, or stop it", ()
    conf: tuple[str, ...] = (f"{IDLE_SETTING}={IDLE_TIMEOUT}s",)
    back = "a shorter idle timeout gives executors back"
    if not settings.has_dynamic_executors:
        tracking = (
            "dynamicAllocation.shuffleTracking"
            if settings.has_version((3, 0))
            else "shuffle.service"
        )
        conf = ("spark.dynamicAllocation.enabled=true", f"spark.{tracking}.enabled=true", *conf)
        back = "dynamic allocation with an idle timeout, or fewer executors, gives the cores back"
    return back, () if settings.is_databricks else conf


def _churn(whole: Application, waits: Sequence[float]) -> Iterator[JobFinding]:
    lifetimes = whole.executors.lifetimes
    gone = min((removed for _, removed in lifetimes), default=float("inf"))
    returned = sum(added > gone for added, _ in lifetimes)
    if returned < FEW_RETURNS or not waits or not whole.settings.has_dynamic_executors:
        return
    lived = sorted(
        (removed - added) / 1000 for added, removed in lifetimes if removed < added + 1e9
    )
    median = lived[len(lived) // 2] if lived else 0.0
    gap = max((took for took, _ in whole.longest_gaps), default=0) / 1000
    timeout = whole.settings.seconds(IDLE_SETTING, IDLE_TIMEOUT)
    conf = (f"{IDLE_SETTING}={int(gap) + 10}s",) if gap > timeout else ()
    yield JobFinding(
        Symptom.EXECUTOR_CHURN,
        "application",
        sum(waits),
        f"{len(lifetimes)} executors came, {returned} of them after others had gone; they stayed "
        f"{duration_text(median)} in the median, and {len(waits)} jobs waited "
        f"{duration_text(sum(waits))} for them; idle ones go after {duration_text(timeout)}",
        "keep executors between jobs: a longer idle timeout, or a least number of them; their idle "
        "time costs",
        conf,
        {
            "executors": len(lifetimes),
            "returned": returned,
            "median_seconds": median,
            "waited_seconds": sum(waits),
        },
    )


def _no_end(whole: Application) -> Iterator[JobFinding]:
    query = whole.unfinished
    if query is None or whole.has_end or whole.is_partial:
        return
    at = COLUMNS.index("finished")
    ends = (max(e.columns[at :: len(COLUMNS)], default=0) for e in query.attempts.values())
    last = max(whole.latest, query.started_at, *ends)
    seconds = (last - query.started_at) / 1000
    tasks = sum(each.succeeded for each in query.attempts.values())
    yield JobFinding(
        Symptom.NO_END,
        str(query),
        seconds,
        f"the log stops at {moment(last):%H:%M:%S}, {duration_text(seconds)} after {query} began "
        f"({tasks} tasks of it succeeded), with no end of it and none of the application",
        "its driver was killed or lost, or it still runs: see the log of the driver and of its "
        "machine (memory, preemption)",
        (),
        {"after_seconds": seconds, "succeeded_tasks": tasks},
    )
