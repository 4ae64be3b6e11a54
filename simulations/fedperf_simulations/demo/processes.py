"""Programs that a simulation starts as a user would, each in a process of its own with a log.

Invariant: every program started through `Programs` has ended when its `with` block is left, also
after an error. A program that fails ends the step with one line that names the step, the program's
own last words and its log.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.process import Closing

CLIENT = "fedperf"
SERVER = "fedperf-server"

STOP_SECONDS = 15.0
"""Seconds that a program may take to end after the signal."""

_SETTINGS = {
    # Sums in another order are other bits, and a training that goes another way: one thread, and
    # vectors of one width on all machines that have them.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}
_OWN_PREFIX = "FEDPERF_"
_T = TypeVar("_T")


class StepFailedError(FedperfError):
    """A step of a simulation failed. The message names it, the reason and the log."""

    def __init__(self, step: str, reason: str, log: Path | None = None) -> None:
        advice = "" if log is None else f"; read {log}"
        super().__init__(f"{step} failed: {reason}{advice}")
        self.step = step
        self.log = log


class SimulationStoppedError(StepFailedError):
    """A step ended because another one had failed."""

    def __init__(self, step: str) -> None:
        super().__init__(step, "the simulation is being stopped")


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One program that runs to its end.

    Attributes:
        step: what it does, in words.
        command: program and arguments.
        log: name of its log.
        timeout_seconds: it fails when it takes longer.
    """

    step: str
    command: tuple[str, ...]
    log: str
    timeout_seconds: float = 300.0


class Programs(Closing):
    """Everything that was started. Use it as a context manager."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        """Write logs into the directory `logs`.

        fedperf's own variables in `environment` are not handed on: a simulation decides
        itself which home its programs use.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        variables = {n: value for n, value in environment.items() if not n.startswith(_OWN_PREFIX)}
        self._environment = {**variables, **_SETTINGS}
        self._started: list[tuple[subprocess.Popen[bytes], ProgramCall]] = []
        self._services: list[tuple[subprocess.Popen[bytes], ProgramCall]] = []
        self._is_closed = False

    def call(self, call: ProgramCall) -> bytes:
        """Run a program to its end and return its standard output.

        Raises:
            StepFailedError: it cannot be started, fails, or takes too long.
        """
        process = self._start(call, keep_output=True)
        try:
            output, _ = process.communicate(timeout=call.timeout_seconds)
        except subprocess.TimeoutExpired:
            _end([process], seconds=1.0)
            process.communicate()
            reason = f"it took longer than {call.timeout_seconds:g} s"
            raise StepFailedError(call.step, reason, self._log(call)) from None
        self._require_success(call, process)
        return output

    def facts(self, call: ProgramCall) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON that a program with `--json` prints, its rows alone.

        Raises the errors of `call`.
        """
        output = self.call(call)
        try:
            facts = orjson.loads(output)
        except ValueError:
            raise StepFailedError(call.step, "it printed no JSON", self._log(call)) from None
        return facts["rows"] if isinstance(facts, dict) and "rows" in facts else facts

    def lines(self, call: ProgramCall) -> Iterator[bytes]:
        """Yield the lines of a program until it has ended. It may take its time.

        Raises:
            StepFailedError: it cannot be started, or fails.
        """
        process = self._start(call, keep_output=True)
        if process.stdout is not None:
            with process.stdout as printed:
                yield from printed
        process.wait()
        self._require_success(call, process)

    def together(self, works: Sequence[Callable[[], _T]], *, at_once: int) -> list[_T]:
        """Do several things side by side. The first failure stops all programs."""
        with ThreadPoolExecutor(at_once) as threads:
            futures = [threads.submit(work) for work in works]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                if not all(each.done() and each.exception() is None for each in futures):
                    for each in futures:
                        each.cancel()
                    self.close()
        errors = [e for each in futures if not each.cancelled() and (e := each.exception())]
        if errors:
            # A program that failed by itself is more informative than one stopped because of it.
            raise min(errors, key=lambda error: isinstance(error, SimulationStoppedError))
        return [each.result() for each in futures]

    def start(self, call: ProgramCall) -> None:
        """Start a program that runs until `stop`. Raises the errors of `call`."""
        self._services.append((self._start(call, keep_output=False), call))

    def check(self) -> None:
        """Raise if a program that should still be running has ended.

        Raises:
            StepFailedError: naming the first that did.
        """
        for process, call in self._services:
            if process.poll() is not None:
                raise StepFailedError(call.step, self._last_words(call, process), self._log(call))

    def log_of(self, name: str) -> str:
        """Return the program's log so far. Empty where there is none."""
        path = self._logs / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def pause(self) -> None:
        """End the programs that were started to run on, the newest first. More may follow.

        Raises:
            StepFailedError: one of them did not end well.
        """
        services, self._services = self._services[::-1], []
        for process, call in services:
            _end([process], seconds=STOP_SECONDS)
            if process.returncode not in (0, -signal.SIGTERM):
                raise StepFailedError(call.step, self._last_words(call, process), self._log(call))

    def close(self) -> None:
        """End everything that still runs. Nothing can be started afterwards."""
        self._is_closed = True
        _end([process for process, _ in reversed(self._started)], seconds=STOP_SECONDS)

    def _start(self, call: ProgramCall, *, keep_output: bool) -> subprocess.Popen[bytes]:
        if self._is_closed:
            raise SimulationStoppedError(call.step)
        with self._log(call).open("ab") as log:
            log.write(f"$ {' '.join(map(_without_secret, call.command))}\n".encode())
            log.flush()
            try:
                process = subprocess.Popen(
                    call.command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if keep_output else log,
                    stderr=log,
                    env=self._environment,
                    # Ctrl-C must reach the children once, from here.
                    start_new_session=True,
                )
            except OSError as error:
                raise StepFailedError(
                    call.step, f"{call.command[0]} cannot be started ({error.strerror})"
                ) from error
        self._started.append((process, call))
        return process

    def _log(self, call: ProgramCall) -> Path:
        return self._logs / call.log

    def _require_success(self, call: ProgramCall, process: subprocess.Popen[bytes]) -> None:
        if process.returncode != 0:
            if self._is_closed:
                raise SimulationStoppedError(call.step)
            raise StepFailedError(call.step, self._last_words(call, process), self._log(call))

    def _last_words(self, call: ProgramCall, process: subprocess.Popen[bytes]) -> str:
        lines = [line.strip() for line in self.log_of(call.log).splitlines() if line.strip()]
        text = lines[-1] if lines and not lines[-1].startswith("$ ") else "it printed nothing"
        return f"exit code {process.returncode}, {text.removeprefix('error: ')}"


def client(home: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command line of an organization."""
    return (_script(CLIENT), "--home", str(home), *arguments)


def server(directory: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command line of the coordinator's operator."""
    return (_script(SERVER), "--directory", str(directory), *arguments)


def _script(name: str) -> str:
    """Return the console script of this environment."""
    return str(Path(sys.executable).with_name(name))


def _without_secret(word: str) -> str:
    """Return the word, without the secret part of a join URL."""
    return f"{word.partition('#')[0]}#..." if word.startswith("fedperf://") else word


def _end(processes: Sequence[subprocess.Popen[bytes]], *, seconds: float) -> None:
    """Terminate the processes and their children, then kill those that remain."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send the signal to the process group. Do nothing if the process has been waited for."""
    if process.poll() is None:
        os.killpg(process.pid, number)
