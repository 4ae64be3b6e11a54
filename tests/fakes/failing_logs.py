"""Small synthetic event logs with failed task attempts. Timestamps are in milliseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fakes.spark_logs import APP_START, SQL, Json, SparkLog, node

Reason = Mapping[str, object]


def lost(said: str, *, executor: str = "2", by_job: bool = True) -> Reason:
    """Return the end reason of a task whose executor was lost."""
    return {
        "Reason": "ExecutorLostFailure",
        "Executor ID": executor,
        "Exit Caused By App": by_job,
        "Loss Reason": said,
    }


def raised(name: str, said: str = "", stack: str = "") -> Reason:
    """Return the end reason of a task whose code raised an exception."""
    return {
        "Reason": "ExceptionFailure",
        "Class Name": name,
        "Description": said,
        "Stack Trace": [],
        "Full Stack Trace": stack or f"{name}: {said}\n\tat a.B.c(B.java:1)",
    }


def missed(said: str, *, executor: str = "2") -> Reason:
    """Return the end reason of a task that could not fetch an executor's shuffle output."""
    return {
        "Reason": "FetchFailed",
        "Block Manager Address": {"Executor ID": executor, "Host": f"host{executor}", "Port": 1},
        "Shuffle ID": 0,
        "Map ID": 4,
        "Reduce ID": 0,
        "Message": said,
    }


def killed(said: str) -> Reason:
    """Return the end reason of a task that Spark killed."""
    return {"Reason": "TaskKilled", "Kill Reason": said, "Accumulator Updates": []}


@dataclass
class FailingLog(SparkLog):
    """An application with one job on two executors of four cores."""

    version: str = "3.5.3"
    properties: Mapping[str, str] = field(default_factory=dict)
    in_query: bool = False

    def opened(self, *, stages: int = 1, at: int = 1000) -> "FailingLog":
        """Add the start of the application, its executors and the job."""
        self.add("SparkListenerLogStart", Spark_Version=self.version)
        known = {"spark.master": "yarn", "spark.executor.cores": "4", **self.properties}
        self.add("SparkListenerEnvironmentUpdate", Spark_Properties=known)
        self.add(
            "SparkListenerApplicationStart",
            App_Name="nightly",
            App_ID="application_1",
            Timestamp=APP_START,
        )
        for number in ("1", "2"):
            self.executor(number, APP_START, host=f"host{number}")
        if self.in_query:
            self.add(
                SQL + "SparkListenerSQLExecutionStart",
                executionId=0,
                time=APP_START + at,
                description="sum",
                sparkPlanInfo=node("Range"),
            )
        infos: list[Json] = [{"Stage ID": each, "Number of Tasks": 8} for each in range(stages)]
        self.add(
            "SparkListenerJobStart",
            Job_ID=0,
            Submission_Time=APP_START + at,
            Stage_IDs=list(range(stages)),
            Stage_Infos=infos,
            Properties={"spark.sql.execution.id": "0"} if self.in_query else {},
        )
        return self

    def submitted(self, stage: int, *, attempt: int = 0, at: int = 1000) -> "FailingLog":
        """Add the submission of a stage attempt."""
        info = {**self._info(stage, attempt), "Submission Time": APP_START + at}
        self.add("SparkListenerStageSubmitted", Stage_Info=info)
        return self

    def tasks(
        self,
        count: int,
        begin: int,
        end: int,
        *,
        stage: int = 0,
        attempt: int = 0,
        executor: str = "1",
        reason: Reason | None = None,
    ) -> "FailingLog":
        """Add task attempts that run at the same time on one executor."""
        for index in range(count):
            self.events.append(
                {
                    "Event": "SparkListenerTaskEnd",
                    "Stage ID": stage,
                    "Stage Attempt ID": attempt,
                    "Task Type": "ResultTask",
                    "Task End Reason": reason or {"Reason": "Success"},
                    "Task Info": {
                        "Task ID": len(self.events),
                        "Index": index,
                        "Executor ID": executor,
                        "Host": f"host{executor}",
                        "Launch Time": APP_START + begin,
                        "Finish Time": APP_START + end,
                        "Failed": reason is not None,
                    },
                    "Task Metrics": {"Executor Run Time": end - begin if reason is None else 0},
                }
            )
        return self

    def completed(
        self, stage: int, *, attempt: int = 0, at: int = 0, failure: str = ""
    ) -> "FailingLog":
        """Add the completion of a stage attempt."""
        told = {"Failure Reason": failure} if failure else {}
        info = {**self._info(stage, attempt), "Completion Time": APP_START + at, **told}
        self.add("SparkListenerStageCompleted", Stage_Info=info)
        return self

    def removed(self, executor: str, said: str, *, at: int) -> "FailingLog":
        """Add the removal of an executor."""
        self.add(
            "SparkListenerExecutorRemoved",
            Timestamp=APP_START + at,
            Executor_ID=executor,
            Removed_Reason=said,
        )
        return self

    def closed(self, end: int, *, error: str = "") -> "FailingLog":
        """Add the end of the job, its query and the application."""
        result: Json = {"Result": "JobSucceeded"}
        if error:
            result = {
                "Result": "JobFailed",
                "Exception": {"Message": error, "Stack Trace": []},
            }
        self.add(
            "SparkListenerJobEnd",
            Job_ID=0,
            Completion_Time=APP_START + end,
            Job_Result=result,
        )
        if self.in_query:
            self.finish(0, at=end + 10, error=error)
        self.add("SparkListenerApplicationEnd", Timestamp=APP_START + end + 1000)
        return self

    @staticmethod
    def _info(stage: int, attempt: int) -> Json:
        return {
            "Stage ID": stage,
            "Stage Attempt ID": attempt,
            "Stage Name": "count at job.py:7",
            "Number of Tasks": 8,
            "Accumulables": [],
            "RDD Info": [],
        }
