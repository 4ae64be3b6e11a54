"""Small synthetic event logs in Spark's format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import orjson

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark.event_log import open_event_log
from fedperf_shared.execution import Execution

SQL = "org.apache.spark.sql.execution.ui."
APP_START = 1_750_000_000_000
ROWS = "number of output rows"
MOVED = "shuffle records written"
SIZE = "data size"

Json = dict[str, object]


def node(
    name: str,
    *children: Json,
    description: str = "",
    **counters: int,
) -> Json:
    """Return a node of a plan. A counter with the id 7 is given as `rows=7`."""
    names = {"rows": ROWS, "moved": MOVED, "size": SIZE, "partitions": "number of partitions"}
    return {
        "nodeName": name,
        "simpleString": description or name,
        "children": list(children),
        "metadata": {},
        "metrics": [
            {"name": names[each], "accumulatorId": number, "metricType": "sum"}
            for each, number in counters.items()
        ],
    }


def grouped(*below: Json, rows: int = 3) -> Json:
    """Return an aggregation in two steps over the nodes below, as Spark plans it."""
    what = "(keys=[k#1], functions=[count(1)])"
    partial = node("HashAggregate", *below, rows=rows - 1, description="HashAggregate" + what)
    moved = node("Exchange", partial, moved=rows + 100, size=rows + 101, partitions=rows + 102)
    codegen = node("WholeStageCodegen (2)", node("InputAdapter", moved))
    return node("HashAggregate", codegen, rows=rows, description="HashAggregate" + what)


@dataclass
class SparkLog:
    """Builder of an event log."""

    app_id: str = "app-1"
    app_name: str = "Nightly report 2026-03-01"
    attempt: str | None = None
    events: list[Json] = field(default_factory=list)
    _jobs: "count[int]" = field(default_factory=count)
    _stages: "count[int]" = field(default_factory=count)

    def add(self, name: str, **fields: object) -> "SparkLog":
        self.events.append(
            {"Event": name, **{_spaced(key): value for key, value in fields.items()}}
        )
        return self

    def begin(self, *, cores: int = 4, executors: int = 2, memory: str = "4g") -> "SparkLog":
        """Add version, properties, application and executors."""
        self.events.append({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"})
        self.events.append(
            {
                "Event": "SparkListenerEnvironmentUpdate",
                "Spark Properties": {"spark.executor.memory": memory},
                "System Properties": {"os.arch": "amd64"},
            }
        )
        started = {"App Name": self.app_name, "App ID": self.app_id, "Timestamp": APP_START}
        attempt = {} if self.attempt is None else {"App Attempt ID": self.attempt}
        self.events.append({"Event": "SparkListenerApplicationStart", **started, **attempt})
        for number in range(executors):
            self.executor(str(number), APP_START, host=f"host-{number}", cores=cores)
        return self

    def executor(
        self, identity: str, at: int, *, host: str, cores: int = 4, profile: int = 0
    ) -> "SparkLog":
        info = {"Host": host, "Total Cores": cores, "Resource Profile Id": profile}
        return self.add(
            "SparkListenerExecutorAdded", Timestamp=at, Executor_ID=identity, Executor_Info=info
        )

    def start(
        self,
        number: int,
        plan: Json,
        *,
        at: int = 1000,
        root: int | None = None,
        description: str = "",
    ) -> "SparkLog":
        known: Json = {} if root is None else {"rootExecutionId": root}
        if description:
            known["description"] = description
        return self.add(
            SQL + "SparkListenerSQLExecutionStart",
            executionId=number,
            time=APP_START + at,
            sparkPlanInfo=plan,
            **known,
        )

    def job(
        self,
        query: int | None,
        counters: Mapping[int, int] | None = None,
        *,
        at: int = 1000,
        end: int = 2000,
        failed_tasks: int = 0,
        rdds: Sequence[Json] = (),
        totals: Mapping[str, int] | None = None,
        result: str = "JobSucceeded",
        call_site: str = "",
        description: str = "",
        error: str = "",
    ) -> "SparkLog":
        """Add a job of one stage, from start to end."""
        job, stage = next(self._jobs), next(self._stages)
        properties = {} if query is None else {"spark.sql.execution.id": str(query)}
        if description:
            properties["spark.job.description"] = description
        info: Json = {"Stage ID": stage, "RDD Info": list(rdds), "Accumulables": []}
        if call_site:
            info["Stage Name"] = call_site
        self.add(
            "SparkListenerJobStart",
            Job_ID=job,
            Submission_Time=APP_START + at,
            Stage_Infos=[info],
            Stage_IDs=[stage],
            Properties=properties,
        )
        for index in range(3):
            self.task(stage, index, "Success" if index >= failed_tasks else "ExceptionFailure")
        counted = [
            {"ID": number, "Name": ROWS, "Value": str(value)}
            for number, value in (counters or {}).items()
        ]
        internal = [
            {"ID": 9000 + at, "Name": f"internal.metrics.{name}", "Value": value, "Internal": True}
            for name, value in (totals or {}).items()
        ]
        self.add(
            "SparkListenerStageCompleted",
            Stage_Info={**info, "Accumulables": counted + internal},
        )
        return self.add(
            "SparkListenerJobEnd",
            Job_ID=job,
            Completion_Time=APP_START + end,
            Job_Result={"Result": result} | ({"Exception": {"Message": error}} if error else {}),
        )

    def task(self, stage: int, index: int, reason: str) -> "SparkLog":
        """Add the start and end of a task without metrics."""
        info = {"Task ID": index, "Host": "host-0", "Accumulables": [{"ID": 5, "Value": 77}]}
        self.events.append(
            {"Event": "SparkListenerTaskStart", "Stage ID": stage, "Task Info": info}
        )
        self.events.append(
            {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": stage,
                "Stage Attempt ID": 0,
                "Task Type": "ResultTask",
                "Task End Reason": {"Reason": reason},
                "Task Info": info,
            }
        )
        return self

    def finish(self, number: int, *, at: int = 3000, error: str | None = "") -> "SparkLog":
        """Add the end of a query. Before Spark 3.4 it holds no error field (None)."""
        known = {} if error is None else {"errorMessage": error}
        return self.add(
            SQL + "SparkListenerSQLExecutionEnd",
            executionId=number,
            time=APP_START + at,
            **known,
        )

    def query(
        self, number: int, plan: Json, counters: Mapping[int, int], *, at: int = 1000
    ) -> "SparkLog":
        """Add a query of two seconds with one job."""
        self.start(number, plan, at=at).job(number, counters, at=at + 10, end=at + 1900)
        return self.finish(number, at=at + 2000)

    def bytes(self) -> bytes:
        return b"".join(orjson.dumps(event) + b"\n" for event in self.events)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def sample() -> list[Json]:
    """Return a log that contains every event type that the reader uses."""
    log = SparkLog().begin()
    properties = {"spark.master": "local[2]", "spark.task.resource.gpu.amount": "0.25"}
    log.add("SparkListenerEnvironmentUpdate", Spark_Properties=properties)
    log.add(
        "SparkListenerResourceProfileAdded",
        Resource_Profile_Id=0,
        Executor_Resource_Requests={"memory": {"Amount": 512}, "gpu": {"Amount": 1}},
        Task_Resource_Requests={"cpus": {"Amount": 1.0}, "gpu": {"Amount": 0.25}},
    )
    gpu = {"gpu": {"name": "gpu", "addresses": ["0"]}}
    info = {"Host": "host-2", "Total Cores": 4, "Resource Profile Id": 0, "Resources": gpu}
    log.add(
        "SparkListenerExecutorAdded",
        Timestamp=APP_START + 1500,
        Executor_ID="2",
        Executor_Info=info,
    )
    manager = {"Executor ID": "0", "Host": "host-0"}
    log.add("SparkListenerBlockManagerAdded", Block_Manager_ID=manager, Maximum_Memory=9)
    scan = node("Scan parquet", rows=1)
    log.start(1, grouped(scan), root=1, description="for ACME").start(2, scan, root=1)
    log.job(1, {1: 5, 2: 4, 3: 3}, failed_tasks=1).job(2, {1: 5})
    update = SQL + "SparkListenerSQLAdaptiveExecutionUpdate"
    log.add(update, executionId=1, sparkPlanInfo=grouped(scan))
    log.add(SQL + "SparkListenerDriverAccumUpdates", executionId=1, accumUpdates=[[1, 9], [2, 8]])
    rdd = {"RDD ID": 1, "Parent IDs": [0], "Scope": '{"id":"1","name":"map"}'}
    rdds = [rdd, {"RDD ID": 0, "Name": "file:/acme", "Parent IDs": []}]
    log.job(
        None,
        rdds=rdds,
        call_site="count at /home/alice/acme.py:13",
        description="payroll of ACME",
        result="JobFailed",
        error="ACME has no bytes left",
    )
    log.finish(2).finish(1)
    log.start(3, scan).job(3, {1: 5}).finish(3, error="ACME has no bytes left")
    log.events[-2]["modifiedConfigs"] = {"spark.sql.shuffle.partitions": "3"}
    log.events += _measured(4)
    log.add("SparkListenerApplicationEnd", Timestamp=APP_START + 9_000)
    gone = {"Executor ID": "1", "Timestamp": APP_START + 10_000, "Removed Reason": "ACME took it"}
    return [*log.events, {"Event": "SparkListenerExecutorRemoved", **gone}]


def _measured(job: int) -> list[Json]:
    """Return a job whose stage was attempted twice, with task metrics and end reasons."""
    name = "SparkListenerTaskEnd"
    told: Json = {"Task ID": 1, "Launch Time": APP_START + 5000, "Finish Time": APP_START + 5500}
    told |= {"Executor ID": "2", "Host": "host-2"}
    metrics = {"Executor Run Time": 300, "Input Metrics": {"Bytes Read": 9, "Records Read": 2}}
    of_stage: Json = {"Stage ID": 90, "Stage Attempt ID": 0}
    info = {**of_stage, "Stage Name": "sum", "Number of Tasks": 2, "Resource Profile Id": 0}
    times = {"Submission Time": APP_START + 4500, "Completion Time": APP_START + 5600}
    info |= {"RDD Info": [{"RDD ID": 7, "Name": "PythonRDD", "Parent IDs": []}], **times}
    reasons: list[Json] = [
        {"Reason": "Success"},
        {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"},
        {"Reason": "ExecutorLostFailure", "Executor ID": "1", "Loss Reason": "exit code 137"},
        {"Reason": "ExceptionFailure", "Class Name": "java.lang.X", "Description": "no bytes"},
    ]
    ends: list[Json] = [
        {
            "Event": name,
            **of_stage,
            "Task End Reason": each,
            "Task Info": told,
            "Task Metrics": metrics,
        }
        for each in reasons
    ]
    properties = {"spark.sql.adaptive.enabled": "false"}
    started = {"Job ID": job, "Stage IDs": [90], "Properties": properties}
    again = {**info, "Stage Attempt ID": 1}
    return [
        {"Event": "SparkListenerJobStart", **started, "Submission Time": APP_START + 4500},
        {"Event": "SparkListenerStageSubmitted", "Stage Info": info},
        {"Event": "SparkListenerTaskStart", **of_stage, "Task Info": told},
        *ends,
        {"Event": "SparkListenerStageCompleted", "Stage Info": {**info, "Failure Reason": "lost"}},
        {"Event": "SparkListenerStageCompleted", "Stage Info": again},
        {"Event": "SparkListenerJobEnd", "Job ID": job, "Job Result": {"Result": "JobSucceeded"}},
    ]


def read_log(path: Path) -> tuple[list[Execution], list[SkippedRecord]]:
    """Return the executions and the skipped records of a log."""
    source = open_event_log(path)
    if source is None:
        raise AssertionError(f"{path} is no event log")
    return split(source.read())


def split(
    found: Iterable[Execution | SkippedRecord],
) -> tuple[list[Execution], list[SkippedRecord]]:
    every = list(found)
    executions = [each for each in every if isinstance(each, Execution)]
    return executions, [each for each in every if isinstance(each, SkippedRecord)]


def _spaced(name: str) -> str:
    return name.replace("_", " ")
