"""Applications of Spark with one fault each, and their logs, to test what diagnosis finds.

Every application runs on two executors of two cores each and on their warm Python workers. The job
with the fault is described as `FAULT`; jobs that only prepare it have other descriptions. Most
tasks sleep, so that their times are known however busy the machine is.

Logs are stored trimmed: the events that are read, without paths, hosts and users, as zstd.

Usage: spark_faults.py DIRECTORY [NAME...] (with the Python of an environment that has pyspark;
all faults by default)
"""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULT = "fault"
SLOTS = 4

Spark = Any  # pyspark is installed in the environment that runs this script alone


@dataclass(frozen=True)
class Fault:
    """An application: its settings, and what it runs after the start."""

    run: Callable[[Spark], None]
    settings: dict[str, str] = field(default_factory=dict)
    is_warm: bool = True  # its executors and their Python workers have worked before


FAULTS: dict[str, Fault] = {}

_DYNAMIC = {
    "dynamicAllocation.enabled": "true",
    "dynamicAllocation.shuffleTracking.enabled": "true",
    "dynamicAllocation.minExecutors": "0",
    "dynamicAllocation.initialExecutors": "0",
    "dynamicAllocation.maxExecutors": "2",
    "scheduler.minRegisteredResourcesRatio": "0",
}


def fault(
    settings: Mapping[str, str] | None = None, *, is_warm: bool = True
) -> Callable[[Callable[[Spark], None]], Callable[[Spark], None]]:
    """Register an application with its settings: names without `spark.`."""

    def register(run: Callable[[Spark], None]) -> Callable[[Spark], None]:
        FAULTS[run.__name__] = Fault(run, dict(settings or {}), is_warm)
        return run

    return register


def sleep_in_python(spark: Spark, seconds: list[float]) -> None:
    """Run one job with a task of every length."""
    tasks = spark.sparkContext.parallelize(seconds, len(seconds))
    tasks.map(time.sleep).count()


def asleep(milliseconds: int) -> str:
    """Return a column that sleeps for every row, in the JVM."""
    return f"java_method('java.lang.Thread', 'sleep', {milliseconds}L) AS slept"


def discard(frame: Any) -> None:
    """Compute all rows and write them nowhere."""
    frame.write.format("noop").mode("overwrite").save()


@fault()
def no_fault(spark: Spark) -> None:
    """Run even tasks on all slots."""
    sleep_in_python(spark, [3.0] * 4 * SLOTS)


@fault()
def skew(spark: Spark) -> None:
    """Give one partition most of the rows."""
    text = "concat(" + ", ".join(["uuid()"] * 20) + ") AS text"
    rows = spark.range(0, 8000, 1, SLOTS).selectExpr("if(id < 5000, 0, 1 + id % 15) AS key", text)
    rows = rows.repartition(16, "key").selectExpr("length(text) AS size", asleep(3))
    discard(rows)


@fault({"memory.fraction": "0.02"})
def spill(spark: Spark) -> None:
    """Sort more than fits into the memory of tasks."""
    rows = spark.range(0, 1_200_000, 1, SLOTS).selectExpr("id", "uuid() AS text")
    discard(rows.repartition(SLOTS).sortWithinPartitions("text"))


@fault()
def garbage(spark: Spark) -> None:
    """Collect garbage for every row."""
    rows = spark.range(0, 160, 1, SLOTS).selectExpr("id", asleep(100))
    discard(rows.selectExpr("id", "slept", "java_method('java.lang.System', 'gc') AS collected"))


@fault()
def straggler(spark: Spark) -> None:
    """Let one task of eight take seven times as long for no more data."""
    sleep_in_python(spark, [14.0] + [2.0] * 7)


@fault()
def slow_executor(spark: Spark) -> None:
    """Let one of two executors take four times as long for the same."""

    def work(_: int) -> None:
        time.sleep(4.0 if Path.cwd().name == "1" else 1.0)

    spark.sparkContext.parallelize(range(40), 40).map(work).count()


@fault(_DYNAMIC, is_warm=False)
def cold_start(spark: Spark) -> None:
    """Submit a job while there is no executor."""
    sleep_in_python(spark, [3.0] * 4 * SLOTS)


@fault(_DYNAMIC | {"dynamicAllocation.executorIdleTimeout": "1s"})
def churn(spark: Spark) -> None:
    """Let executors go after every job, and wait for new ones before the next."""
    for _ in range(4):
        time.sleep(6)
        sleep_in_python(spark, [1.0] * 2 * SLOTS)


@fault()
def recomputed(spark: Spark) -> None:
    """Compute the same rows for three queries, instead of keeping them."""
    rows = spark.range(0, 6400, 1, 2 * SLOTS).selectExpr("id % 7 AS key", "id", asleep(2))
    for column in ("min(id)", "max(id)", "avg(id)"):
        spark.sparkContext.setJobDescription(f"{FAULT} {column}")
        rows.where("slept IS NOT NULL OR id >= 0").groupBy().agg({"id": column[:3]}).collect()


@fault({"sql.exchange.reuse": "false"})
def duplicate(spark: Spark) -> None:
    """Compute both sides of a self-join, though they are equal."""
    rows = spark.range(0, 9600, 1, 2 * SLOTS).selectExpr("id % 10 AS key", asleep(2))
    rows = rows.groupBy("key").agg({"slept": "max"})
    discard(rows.alias("one").join(rows.alias("other"), "key"))


@fault()
def small_files_read(spark: Spark) -> None:
    """Read two thousand files of some bytes."""
    with tempfile.TemporaryDirectory(prefix="events") as directory:
        for number in range(2000):
            Path(directory, f"{number}.json").write_text(f'{{"id": {number}}}\n')
        discard(spark.read.schema("id long").json(directory))


@fault()
def small_files_written(spark: Spark) -> None:
    """Write eight hundred files of some bytes with four tasks."""
    with tempfile.TemporaryDirectory(prefix="events") as directory:
        rows = spark.range(0, 80_000, 1, SLOTS).selectExpr("id", "id % 200 AS day")
        rows.write.partitionBy("day").mode("overwrite").parquet(f"{directory}/days")


@fault({"sql.autoBroadcastJoinThreshold": "-1"})
def sort_merge_join(spark: Spark) -> None:
    """Shuffle and sort a large table to join it with a small one."""
    large = spark.range(0, 6_000_000, 1, SLOTS).selectExpr("id", "id % 1000 AS key")
    small = spark.range(0, 1000, 1, 1).selectExpr("id AS key", "id AS value")
    discard(large.join(small, "key"))


@fault({"sql.autoBroadcastJoinThreshold": "1m"})
def broadcast(spark: Spark) -> None:
    """Send a table to all executors that is far above the threshold."""
    large = spark.range(0, 400_000, 1, SLOTS).selectExpr("id AS key", "concat(uuid(), uuid()) AS t")
    discard(
        spark.range(0, 1000, 1, SLOTS).selectExpr("id AS key").join(large.hint("broadcast"), "key")
    )


@fault()
def few_tasks(spark: Spark) -> None:
    """Use one of four slots."""
    sleep_in_python(spark, [12.0])


@fault()
def last_wave(spark: Spark) -> None:
    """Run five equal tasks on four slots."""
    sleep_in_python(spark, [5.0] * (SLOTS + 1))


@fault({"sql.adaptive.enabled": "false", "sql.shuffle.partitions": "800"})
def tiny_tasks(spark: Spark) -> None:
    """Cut a thousand rows into eight hundred partitions."""
    spark.range(0, 1000, 1, SLOTS).selectExpr("id % 1000 AS key").groupBy("key").count().collect()


@fault()
def retries(spark: Spark) -> None:
    """Let half of the tasks fail once, after three seconds."""

    def work(number: int) -> None:
        from pyspark import TaskContext

        time.sleep(3.0)
        if number % 2 and TaskContext.get().attemptNumber() == 0:
            raise ValueError("the first attempt")

    spark.sparkContext.parallelize(range(8), 8).map(work).count()


@fault()
def aborted_stage(spark: Spark) -> None:
    """Let one task fail until its job fails."""

    def work(number: int) -> None:
        time.sleep(2.0)
        if number == 0:
            raise ValueError("always")

    try:
        spark.sparkContext.parallelize(range(8), 8).map(work).count()
    except Exception as error:
        print("failed as it should:", type(error).__name__)


@fault()
def lost_executor(spark: Spark) -> None:
    """Kill an executor in the middle of its work."""

    def work(number: int) -> None:
        from pyspark import TaskContext

        time.sleep(3.0)
        if number == 0 and TaskContext.get().attemptNumber() == 0:
            daemon = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1])
            jvm = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(jvm, signal.SIGKILL)

    spark.sparkContext.parallelize(range(8), 8).map(work).count()


@fault()
def outside_jobs(spark: Spark) -> None:
    """Hold all executors while the driver does something else."""
    sleep_in_python(spark, [2.0] * 2 * SLOTS)
    time.sleep(50)
    sleep_in_python(spark, [2.0] * 2 * SLOTS)


@fault({"scheduler.listenerbus.eventqueue.eventLog.capacity": "5"})
def dropped_events(spark: Spark) -> None:
    """Report more tasks than the queue of events holds."""
    spark.sparkContext.parallelize(range(1500), 1500).count()


@fault({"task.cpus": "2"})
def cores_per_task(spark: Spark) -> None:
    """Reserve two cores for tasks that use one."""
    discard(spark.range(0, 12_000, 1, 2 * SLOTS).selectExpr("id", asleep(2)))


@fault({"python.worker.reuse": "false"})
def python_workers(spark: Spark) -> None:
    """Start a process of Python for each of many tasks."""
    spark.sparkContext.parallelize(range(24), 24).map(lambda each: each + 1).count()


@fault()
def killed_driver(spark: Spark) -> None:
    """Kill the driver in the middle of a job; the last of all, as no context can follow."""
    import threading

    gateway = spark.sparkContext._gateway.proc
    threading.Timer(9.0, lambda: os.kill(gateway.pid, signal.SIGKILL)).start()
    try:
        sleep_in_python(spark, [3.0] * 10 * SLOTS)
    except Exception as error:
        print("killed as it should be:", type(error).__name__)


def session(directory: Path, settings: dict[str, str]) -> Spark:
    """Start an application that logs into the directory."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,2,1024]").appName("nightly")
    defaults = {
        "ui.enabled": "false",
        "ui.showConsoleProgress": "false",
        "eventLog.enabled": "true",
        "eventLog.dir": f"file://{directory}",
        "eventLog.compress": "false",
        "eventLog.rolling.enabled": "false",
        "driver.host": "127.0.0.1",
        "driver.bindAddress": "127.0.0.1",
        "scheduler.minRegisteredResourcesRatio": "1.0",
        "sql.shuffle.partitions": str(SLOTS),
        "sql.warehouse.dir": f"{directory}/warehouse",
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(f"spark.{name}", value)
    return builder.getOrCreate()


def warm_up(spark: Spark) -> None:
    """Start Python workers and compile code, as the applications before a job have done."""
    spark.sparkContext.setJobDescription("warm-up")
    sleep_in_python(spark, [1.0] * 2 * SLOTS)
    discard(spark.range(0, 80, 1, 2 * SLOTS).selectExpr("id", "uuid() AS t", asleep(2)))


def trimmed(lines: Iterator[str]) -> Iterator[str]:
    """Yield the events of a log without paths, hosts, users and what is not read."""
    host = socket.gethostname()
    for line in lines:
        event = json.loads(line)
        for name in ("Hadoop Properties", "System Properties", "Classpath Entries",
                     "Metrics Properties", "physicalPlanDescription", "details",
                     "jobTags", "jobGroupId", "Task Executor Metrics", "User"):  # fmt: skip
            event.pop(name, None)
        for name in ("Spark Properties", "Properties"):
            if isinstance(event.get(name), dict):
                event[name] = {
                    key: value
                    for key, value in event[name].items()
                    if key.startswith("spark.") and "/" not in str(value)
                }
        for info in (event.get("Stage Info"), *event.get("Stage Infos", [])):
            if info is not None:
                info.pop("Details", None)
        if event["Event"] == "SparkListenerJobStart":
            event["Stage Infos"] = event["Stage Infos"][:MOST_STAGES]
        if "Task Info" in event:
            event["Task Info"].pop("Accumulables", None)
        if "Executor Info" in event:
            event["Executor Info"].pop("Log Urls", None)
            event["Executor Info"].pop("Attributes", None)
        text = json.dumps(event, separators=(",", ":"))
        text = text.replace(host, "host").replace("127.0.0.1", "host")
        yield re.sub(r"(?<![\w:])(?:file:)?/(?:[\w.~@-]+/)+", "/data/", text)


MOST_STAGES = 20


def run(name: str, directory: Path) -> Path:
    """Run an application; return its trimmed log, `NAME-VERSION.gz` in the directory."""
    import pyspark

    each = FAULTS[name]
    with tempfile.TemporaryDirectory() as temporary:
        logs = Path(temporary)
        spark = session(logs, each.settings)
        work = Path(os.environ["SPARK_HOME"], "work", spark.sparkContext.applicationId)
        if each.is_warm:
            warm_up(spark)
        spark.sparkContext.setJobDescription(FAULT)
        each.run(spark)
        if name != "killed_driver":
            spark.stop()
        (log,) = [path for path in logs.iterdir() if path.is_file() and path.stem.startswith("app")]
        target = directory / f"{name}-{'.'.join(pyspark.__version__.split('.')[:2])}.gz"
        with log.open(encoding="utf-8") as lines, gzip.GzipFile(target, "wb", mtime=0) as out:
            for line in trimmed(iter(lines)):
                out.write(line.encode() + b"\n")
        shutil.rmtree(work, ignore_errors=True)
    return target


def main(directory: str, *names: str) -> None:
    """Run the applications and store their logs."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for name in names or FAULTS:
        began = time.monotonic()
        print(run(name, Path(directory)), f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
