"""The Spark session of a process: a JVM in local mode, started once and kept warm.

Starting takes many seconds, and the first jobs are slow until the JVM has compiled their code. So
the session outlives the engines that use it. Threads and memory are fixed when the JVM starts;
other resources need another process, and are refused here.

There is no user interface, and everything is bound to this machine. The JVM does not write to the
pipes of the process. All files are in one directory under the temporary directory of the process
and are removed when it ends. A killed process leaves them to the cleanup of that directory.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from fedperf_shared.errors import FedperfError, InvalidInputError

MIN_MEMORY_BYTES = 1_280_000_000  # the smallest cap: Spark wants 450 MiB of heap
# Classes, compiled code, threads and buffers of the JVM, and this process in addition.
_BESIDES_THE_HEAP_BYTES = 500_000_000
# Of the rest; what is left is for Arrow tables outside of the heap, in both processes.
_HEAP_SHARE = 0.7
_PARTITIONS_PER_CORE = 2
_END_SECONDS = 10.0
_DEATH_SECONDS = 10.0
_OUT_OF_MEMORY_CODE = 52  # exit code of a Spark whose executor threads met the end of the heap
_LONGEST_REASON = 500
_ENVIRONMENT = {
    # Without it Spark looks up the name of this host, which may take long or fail.
    "SPARK_LOCAL_IP": "127.0.0.1",
    # Of the short-lived JVM that puts the command line of the other together.
    "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
}


class SparkNotStartedError(FedperfError):
    """Spark's JVM did not start; the message ends with its last output."""

    def __init__(self, output: str) -> None:
        super().__init__(f"Spark did not start: {output or 'no output'}")


@dataclass(frozen=True, slots=True)
class SessionResources:
    """The resources of a session."""

    # Cores of Spark's local mode. The JVM's own helpers (collector, compiler) have as many.
    threads: int
    memory_bytes: int | None  # of the whole process with its JVM; None: the heap is Spark's default

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and not self.memory_bytes >= MIN_MEMORY_BYTES:
            raise InvalidInputError(
                f"Spark needs a cap of at least {MIN_MEMORY_BYTES} bytes, got {self.memory_bytes!r}"
            )

    def __str__(self) -> str:
        return f"{self.threads} threads and a memory cap of {self.memory_bytes} bytes"

    @property
    def heap_bytes(self) -> int | None:
        """Return the JVM's heap, where there is a cap."""
        if self.memory_bytes is None:
            return None
        return int(_HEAP_SHARE * (self.memory_bytes - _BESIDES_THE_HEAP_BYTES))


@dataclass(frozen=True, slots=True)
class RunningSpark:
    """A started JVM and its session."""

    resources: SessionResources
    session: SparkSession
    process: "subprocess.Popen[bytes]"

    @contextmanager
    def memory_errors(self) -> Iterator[None]:
        """Raise MemoryError where Spark ran out of its heap."""
        try:
            yield
        except Exception as error:
            if "OutOfMemoryError" in str(error) or self._died_of_memory():
                self._let_it_end()
                heap = self.resources.heap_bytes
                size = "its default size" if heap is None else f"{heap} bytes"
                raise MemoryError(f"Spark ran out of its heap of {size}") from error
            raise

    def _died_of_memory(self) -> bool:
        return not self._responds() and self._let_it_end() == _OUT_OF_MEMORY_CODE

    def _let_it_end(self) -> int | None:
        """Wait for an ending JVM; return its exit code, or None if it goes on."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(_DEATH_SECONDS)
        return None

    def _responds(self) -> bool:
        try:
            self.session.sparkContext.defaultParallelism  # noqa: B018 - calls the JVM
        except Exception:  # Py4J raises various errors for a closed connection
            return False
        return self.process.poll() is None


# At most one: Spark itself keeps its JVM as a global of the process.
_running: list[RunningSpark] = []


def running_spark(resources: SessionResources) -> RunningSpark:
    """Return the Spark of this process, started now if it is the first time.

    Raises:
        InvalidInputError: this process runs a Spark with other resources.
        SparkNotStartedError: the JVM did not start, or has ended.
    """
    if _running and _running[0].process.poll() is not None:
        raise SparkNotStartedError("the JVM of this process has ended, and it can have one only")
    if _running and _running[0].resources == resources:
        return _running[0]
    if _running or SparkContext._active_spark_context is not None:
        runs = str(_running[0].resources) if _running else "settings that are not fedperf's"
        raise InvalidInputError(
            f"Spark with {resources} needs a process of its own: this one runs Spark with {runs}"
        )
    _running.append(_started(resources))
    return _running[0]


def _started(resources: SessionResources) -> RunningSpark:
    with ExitStack() as on_failure:
        directory = Path(tempfile.mkdtemp(prefix="fedperf-spark-"))
        on_failure.callback(shutil.rmtree, directory, ignore_errors=True)
        settings = SparkConf(loadDefaults=False)
        settings.setAll(list(_settings(resources, directory).items()))
        gateway = _gateway(settings)
        on_failure.callback(_end, gateway, directory)
        session = SparkSession(SparkContext(gateway=gateway, conf=settings))
        on_failure.pop_all()
    atexit.register(_end, gateway, directory)
    return RunningSpark(resources, session, gateway.proc)


def _settings(resources: SessionResources, directory: Path) -> dict[str, str]:
    # Twice the cores of the machine, as Spark's guide advises, and not of the run: so that
    # one job has one plan on this machine, however many threads work on it. Spark's default
    # of 200 would make every shuffle of a small table 200 tasks.
    partitions = _PARTITIONS_PER_CORE * (os.cpu_count() or 1)
    java_options = (
        f"-XX:ActiveProcessorCount={resources.threads}",
        "-XX:-UsePerfData",  # keeps a file in /tmp, wherever the temporary directory is
        f'"-Djava.io.tmpdir={directory}"',
    )
    heap = resources.heap_bytes
    return {
        "spark.master": f"local[{resources.threads}]",
        "spark.app.name": "fedperf",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.driver.maxResultSize": "0",  # results are limited by the memory alone
        "spark.eventLog.enabled": "false",
        "spark.local.dir": str(directory),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ansi.enabled": "true",  # a sum beyond int64 is an error, as elsewhere
        "spark.sql.caseSensitive": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    } | ({} if heap is None else {"spark.driver.memory": str(heap)})


def _gateway(settings: SparkConf) -> Any:  # noqa: ANN401 - Py4J has no types
    # The JVM writes to an unnamed file, which is read only if the start fails.
    with tempfile.TemporaryFile() as output, _environment_of_the_start():
        try:
            return cast("Any", launch_gateway)(settings, {"stdout": output, "stderr": output})
        except Exception as error:
            output.seek(0)
            lines = output.read().decode(errors="replace").split("\n")
            reason = " ".join(line.strip() for line in lines).strip()
            raise SparkNotStartedError(reason[-_LONGEST_REASON:]) from error


@contextmanager
def _environment_of_the_start() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end(gateway: Any, directory: Path) -> None:  # noqa: ANN401 - as above
    """End the JVM with the process, and remove its files when it is gone."""
    process: subprocess.Popen[bytes] = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)
