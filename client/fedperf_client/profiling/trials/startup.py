"""How long an engine takes to start in a new process, for whoever plans whether it pays.

The clock runs from the engine's import to the end of its first job on a few rows. What
every process of a trial has anyway (the interpreter, Arrow, fedperf itself) is not
counted. Files that the machine has read lately are read faster, so a first measurement
after a restart of the machine may take longer than the next.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from io import BytesIO

from fedperf_client.platforms.engine import ENGINES, UnsupportedOperationError, open_engine
from fedperf_client.platforms.operations.analytic import KMeans
from fedperf_client.platforms.operations.expressions import Comparison
from fedperf_client.platforms.operations.tabular import Filter
from fedperf_client.platforms.support import supports
from fedperf_client.profiling.trials.pool import THREAD_VARIABLES
from fedperf_shared.errors import FedperfError
from fedperf_shared.workflow.vocabulary import Platform

TIMEOUT_SECONDS = 180.0
_LONGEST_REASON = 500


class EngineNotStartedError(FedperfError):
    """An engine did not get through its first job in a new process."""

    def __init__(self, platform: Platform, reason: str) -> None:
        super().__init__(f"{platform.name} did not start: {reason}")
        self.platform = platform


def startup_seconds(
    platform: Platform,
    *,
    threads: int,
    memory_bytes: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> float:
    """Wall seconds of the engine's first start in a process; `open_engine` has the arguments.

    Raises:
        UnsupportedOperationError: fedperf has no engine for this platform.
        EngineNotStartedError: its library or Java is missing, or it took too long.
    """
    if platform not in ENGINES:
        raise UnsupportedOperationError("anything yet: fedperf has no engine for it", platform)
    with (
        tempfile.TemporaryDirectory(prefix="fedperf-start-", ignore_cleanup_errors=True) as scratch,
        subprocess.Popen(
            [sys.executable, "-m", __name__, platform.name, str(threads), str(memory_bytes or "")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TMPDIR": scratch},
            start_new_session=True,
        ) as child,
    ):
        try:
            output, said = child.communicate(timeout=timeout_seconds)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)  # with its JVM; the child is not waited for yet
            if isinstance(error, subprocess.TimeoutExpired):
                reason = f"stopped after {timeout_seconds:g} s"
                raise EngineNotStartedError(platform, reason) from error
            raise
    if child.returncode:
        reason = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineNotStartedError(platform, reason[-_LONGEST_REASON:])
    return float(output.split()[-1])


def _start(platform: Platform, threads: int, memory_bytes: int | None) -> float:
    from pyarrow import csv

    table = csv.read_csv(BytesIO(b"value\n0.1\n1.1\n2.1"))  # from lists, Arrow imports pandas
    filtered = Filter("value", Comparison.GREATER, 0.5)
    job = filtered if supports(filtered, platform) else KMeans(("value",), 1, 1)
    start = time.perf_counter()
    engine = open_engine(platform, threads=threads, memory_bytes=memory_bytes)
    engine.collect(engine.apply(job, [engine.load(table)]))
    seconds = time.perf_counter() - start
    engine.close()
    return seconds


if __name__ == "__main__":
    _name, _threads, _memory = sys.argv[1:]
    print(_start(Platform[_name], int(_threads), int(_memory) if _memory else None))
