"""Small synthetic event logs with task metrics. Times count from the start of the application."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedperf_client.diagnosis.job_facts import JobFacts, jobs_of
from fedperf_client.sources.spark.event_log import EventLog
from tests.fakes.spark_logs import APP_START, SQL, SparkLog


@dataclass(frozen=True)
class FakeTask:
    """A task with its metrics.

    By default it spends all of its time in its own code and reads nothing.
    """

    begin: int
    end: int
    run: int | None = None
    cpu: int = 0
    garbage: int = 0
    fetch_wait: int = 0
    shuffle_write: int = 0
    read: int = 0
    fetched: int = 0
    rows: int = 0
    written: int = 0
    rows_written: int = 0
    spilled_memory: int = 0
    spilled_disk: int = 0
    held: int = 0
    executor: str | None = None
    reason: Mapping[str, object] | str = "Success"

    @property
    def metrics(self) -> dict[str, object]:
        return {
            "Executor Run Time": self.end - self.begin if self.run is None else self.run,
            "Executor CPU Time": self.cpu * 1_000_000,
            "JVM GC Time": self.garbage,
            "Memory Bytes Spilled": self.spilled_memory,
            "Disk Bytes Spilled": self.spilled_disk,
            "Peak Execution Memory": self.held,
            "Input Metrics": {"Bytes Read": self.read, "Records Read": self.rows},
            "Shuffle Read Metrics": {
                "Remote Bytes Read": self.fetched,
                "Local Bytes Read": 0,
                "Fetch Wait Time": self.fetch_wait,
                "Total Records Read": 0,
            },
            "Shuffle Write Metrics": {
                "Shuffle Bytes Written": self.written,
                "Shuffle Write Time": self.shuffle_write * 1_000_000,
                "Shuffle Records Written": self.rows_written,
            },
        }


class MeasuredLog(SparkLog):
    """A log of queries and jobs whose stages are built task by task."""

    def set(self, **properties: str) -> "MeasuredLog":
        """Set application properties: names without `spark.`, with underscores for dots."""
        self.add("SparkListenerEnvironmentUpdate", Spark_Properties=named(properties))
        return self

    def opened(self, *, query: int | None = 0, at: int = 1000, stages: int = 1) -> "MeasuredLog":
        """Add the start of a query, or of a job without a query."""
        known = {} if query is None else {"spark.sql.execution.id": str(query)}
        if query is not None:
            self.add(
                SQL + "SparkListenerSQLExecutionStart",
                executionId=query,
                time=APP_START + at,
                description="the nightly sum",
            )
        self.add(
            "SparkListenerJobStart",
            Job_ID=query or 0,
            Submission_Time=APP_START + at,
            Stage_IDs=list(range(stages)),
            Properties=known,
        )
        return self

    def stage(
        self,
        tasks: Sequence[FakeTask],
        *,
        number: int = 0,
        attempt: int = 0,
        at: int | None = None,
        name: str = "sum at job.py:7",
        profile: int = 0,
        announced: int | None = None,
        rdds: Sequence[Mapping[str, object]] = (),
        failure: str = "",
    ) -> "MeasuredLog":
        """Add a stage that is submitted with its first task, unless `at` is given.

        Args:
            tasks: ended attempts to record.
            number, attempt, name, profile, rdds, failure: values in the log.
            at: time of submission.
            announced: number of planned tasks. Default: the number of successful tasks.
        """
        submitted = min(each.begin for each in tasks) if at is None else at
        info = {"Stage ID": number, "Stage Attempt ID": attempt, "Stage Name": name}
        succeeded = sum(each.reason == "Success" for each in tasks)
        info |= {"Number of Tasks": succeeded if announced is None else announced}
        info |= {"RDD Info": list(rdds)} | ({"Failure Reason": failure} if failure else {})
        self.add(
            "SparkListenerStageSubmitted",
            Stage_Info={
                **info,
                "Submission Time": APP_START + submitted,
                "Resource Profile Id": profile,
            },
        )
        for each in sorted(tasks, key=lambda task: task.end):
            reason = {"Reason": each.reason} if isinstance(each.reason, str) else each.reason
            told: dict[str, object] = {
                "Launch Time": APP_START + each.begin,
                "Finish Time": APP_START + each.end,
            }
            if each.executor is not None:
                told |= {"Executor ID": each.executor, "Host": f"host-{each.executor}"}
            self.events.append(
                {
                    "Event": "SparkListenerTaskEnd",
                    "Stage ID": number,
                    "Stage Attempt ID": attempt,
                    "Task End Reason": reason,
                    "Task Info": told,
                    "Task Metrics": each.metrics,
                }
            )
        ended = max((each.end for each in tasks), default=submitted)
        times = {"Submission Time": APP_START + submitted, "Completion Time": APP_START + ended}
        self.add("SparkListenerStageCompleted", Stage_Info={**info, **times})
        return self

    def closed(self, *, query: int | None = 0, end: int = 11_000, error: str = "") -> "MeasuredLog":
        """Add the end of the open job, and of its query if there is one."""
        self.add(
            "SparkListenerJobEnd",
            Job_ID=query or 0,
            Completion_Time=APP_START + end,
            Job_Result={"Result": "JobFailed" if error else "JobSucceeded"},
        )
        if query is not None:
            self.finish(query, at=end, error=error)
        return self

    def jobs(self, directory: Path) -> tuple[list[JobFacts], list[str]]:
        """Return the jobs that are read from the log, and the messages about skipped ones."""
        found = list(jobs_of(EventLog((self.write(directory / "log"),))))
        return (
            [each for each in found if isinstance(each, JobFacts)],
            [each for each in found if isinstance(each, str)],
        )


def named(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under their full names."""
    return {f"spark.{key.replace('_', '.')}": value for key, value in properties.items()}


def started(**properties: str) -> MeasuredLog:
    """Return the log of a started application with two executors of four cores."""
    log = MeasuredLog()
    log.begin()
    return log.set(**properties)


def log_of(*stages: Sequence[FakeTask], **properties: str) -> MeasuredLog:
    """Return the log of one query with these stages, from second 1 to second 11."""
    log = started(**properties).opened(stages=len(stages))
    for number, tasks in enumerate(stages):
        log.stage(tasks, number=number)
    return log.closed()
