"""Time of an application in which no query and no job ran: its driver worked alone, or waited.

At stake is all that executors cost meanwhile; more of them do not help.
"""

from fedperf_client.diagnosis.finding import JobFinding, Symptom
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.fields import moment
from fedperf_client.sources.spark.identity import is_interactive
from fedperf_client.sources.spark.settings import SparkSettings
from fedperf_client.text.durations import duration_text

MUCH = 0.2  # Of an application's time: every one has some, before its first job and between others
LEAST_SECONDS = 5.0  # below this an application is short, and most of that is its start
IDLE_TIMEOUT = 60  # seconds after which Spark gives an idle executor back, where nobody set it


def outside_jobs(whole: Application, cores: int) -> JobFinding | None:
    """That time, where it is much.

    Args:
        whole: the application, whose log was read.
        cores: that it had, a mean over its time.
    """
    outside, seconds = min(whole.gaps.milliseconds / 1000, whole.seconds), whole.seconds
    if not (outside >= LEAST_SECONDS and outside >= MUCH * seconds):
        return None
    idle, total = whole.gaps.core_milliseconds / 1000, cores * seconds
    session = is_interactive(whole.name.rpartition(" (")[0] or whole.name)
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
        _advice(whole.settings, is_session=session),
        _conf(whole.settings),
        {
            "outside_seconds": outside,
            "share": outside / seconds,
            "idle_core_seconds": idle,
            "core_seconds": total,
            "longest_seconds": longest[0][0] / 1000,
        },
        min(1.0, idle / total) if total else 0.0,
    )


def _advice(settings: SparkSettings, *, is_session: bool) -> str:
    who = "people who thought, or were gone" if is_session else "the driver's own code, or waiting"
    back = (
        "fewer cores, or stop it"
        if settings.is_local
        else "a shorter idle timeout gives executors back"
        if settings.has_dynamic_executors
        else "dynamic allocation with an idle timeout, or fewer executors, gives the cores back"
    )
    return f"{who}: more executors do not help; {back}"


def _conf(settings: SparkSettings) -> tuple[str, ...]:
    if settings.is_local or settings.is_databricks:
        return ()
    timeout = f"spark.dynamicAllocation.executorIdleTimeout={IDLE_TIMEOUT}s"
    if settings.has_dynamic_executors:
        return (timeout,)
    has_tracking = settings.knows((3, 0))
    kept = "dynamicAllocation.shuffleTracking" if has_tracking else "shuffle.service"
    return ("spark.dynamicAllocation.enabled=true", f"spark.{kept}.enabled=true", timeout)
