"""A warm pool of child processes that run trials.

One child per set of engines, number of threads and memory cap, started when first needed and
used again as long as measurements stay clean: a child is replaced after a failure,
after `max_trials` runs, and when it keeps much more memory than it started with.

Invariant: whatever a trial does (crash, hang, allocate everything), the parent gets
a `Trial` and no process stays behind.

Memory is capped by watching the resident memory of the process tree, about every
20 ms, and killing it: limits on address space or data segment count what engines
reserve and never touch, and make some of them abort. Engines that can are told a cap
when their child starts, so that they spill or fail by themselves. The kernel keeps the exact
peak of a child by itself (VmHWM, reset before each run); the watcher's samples add
what the child's own children use.

A child has a temporary directory of its own, which goes with it.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, NamedTuple

import orjson

from fedperf_client.profiling.trials.machine import HostWatch
from fedperf_client.profiling.trials.process_tree import ProcessTree
from fedperf_client.profiling.trials.trial import SegmentSeconds, Trial, TrialLimits, TrialRequest
from fedperf_shared.errors import FedperfError
from fedperf_shared.execution import ExecutionStatus, InvalidExecutionError, Measurement
from fedperf_shared.programs.resources import Closing
from fedperf_shared.workflow.vocabulary import Platform

WORKER_COMMAND = (sys.executable, "-m", "fedperf_client.profiling.trials.worker")

_TICK_SECONDS = 0.02
_CHILDREN_EVERY_TICKS = 25
_START_SECONDS = 180.0
_KEPT_BYTES = 256 * 1024**2
"""A child that keeps this much more than after its start is replaced."""
_KILLED_BY_KERNEL_SHARE = 0.5
_LONGEST_REASON = 500
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "ARROW_IO_THREADS",
)


class WorkerKey(NamedTuple):
    """What a child is started for; the memory of some engines is fixed when they start.

    Attributes:
        platforms: the engines that it may import, none to count rows.
        threads: of each engine.
        memory_bytes: memory cap that the engines are told, None for their own defaults.
    """

    platforms: frozenset[Platform]
    threads: int
    memory_bytes: int | None = None


class UncountableProgramError(FedperfError):
    """The rows of a program could not be counted, so no plan can be made of it."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of one request.

    Attributes:
        status: how it ended.
        reply: what the child answered, empty where it did not.
        seconds: wall time as the parent saw it.
        peak_bytes: largest sample of the process tree's resident memory.
        cpu_seconds: CPU time of the tree, only where the child did not answer.
        reason: why it did not end well.
    """

    status: ExecutionStatus
    reply: Mapping[str, object]
    seconds: float
    peak_bytes: int
    cpu_seconds: float = 0.0
    reason: str = ""


class WorkerPool(Closing):
    """Runs trials in warm child processes, one at a time; use it as a context manager."""

    def __init__(
        self,
        *,
        command: Sequence[str] = WORKER_COMMAND,
        cores: Sequence[int] = (),
        max_workers: int = 8,
        max_trials: int = 200,
    ) -> None:
        """Start nothing yet.

        Args:
            command: how to start a child; the pool appends its options.
            cores: cores to pin trials to, the last `threads` of them; empty: no pinning.
            max_workers: children kept warm; the one unused for longest goes first.
            max_trials: runs after which a child is replaced.
        """
        self._command = tuple(command)
        self._cores = tuple(cores)
        self._max_workers = max_workers
        self._max_trials = max_trials
        self._workers: OrderedDict[WorkerKey, _Worker] = OrderedDict()
        self._host = HostWatch(self._own_seconds)

    def close(self) -> None:
        """End all children; the pool can be used again."""
        for key in tuple(self._workers):
            self._discard(key)

    def warm(self, keys: Iterable[WorkerKey]) -> None:
        """Start the children for `keys` side by side, as far as there is room for them.

        Starting is mostly importing, so many starts take half as long on two cores. A child
        that does not start now is started again when it is needed, and then it says why.
        """
        room = self._max_workers - len(self._workers)
        missing = [key for key in dict.fromkeys(keys) if key not in self._workers][:room]
        with ThreadPoolExecutor(os.cpu_count()) as starting:
            started = [starting.submit(self._start, key) for key in missing]
        for key, each in zip(missing, started, strict=True):
            with contextlib.suppress(_WorkerLostError):
                self._workers[key] = each.result()
        self._host.restart()

    def run(self, request: TrialRequest, limits: TrialLimits) -> Trial:
        """One measured run; how it ended is data, it never raises for the trial's sake."""
        key = WorkerKey(frozenset(request.platforms), request.threads, request.memory_bytes)
        message = {
            "task": "run",
            "program": request.program.decode(),
            "platforms": [int(platform) for platform in request.platforms],
            "data_directory": str(request.data_directory),
        }
        ended = self._ask(key, message, limits.within(request.memory_bytes))
        busy = self._host.busy_cores_since_begin()
        return _to_trial(request, ended, busy)

    def count(self, request: TrialRequest, limits: TrialLimits) -> Mapping[str, object]:
        """The worker's answer to "count the rows of this program", in a child of its own.

        Raises:
            UncountableProgramError: counting failed, or passed the limits.
        """
        message = {
            "task": "count",
            "program": request.program.decode(),
            "data_directory": str(request.data_directory),
        }
        ended = self._ask(WorkerKey(frozenset(), request.threads), message, limits)
        if ended.status is not ExecutionStatus.OK:
            raise UncountableProgramError(
                f"the rows of a program could not be counted "
                f"({ended.status.name.lower()}): {ended.reason}"
            )
        return ended.reply

    def _ask(self, key: WorkerKey, message: Mapping[str, object], limits: TrialLimits) -> _Answer:
        try:
            worker = self._worker(key)
        except _WorkerLostError as lost:
            self._host.begin()
            return _Answer(ExecutionStatus.FAILED, {}, 0.0, 0, reason=str(lost))
        self._host.begin()
        return worker.ask(message, limits)

    def _worker(self, key: WorkerKey) -> "_Worker":
        found = self._workers.get(key)
        if found is not None and not found.is_clean(self._max_trials):
            self._discard(key)
            found = None
        if found is None:
            while len(self._workers) >= self._max_workers:
                self._discard(next(iter(self._workers)))
            found = self._start(key)
            self._workers[key] = found
            self._host.restart()
        self._workers.move_to_end(key)
        return found

    def _start(self, key: WorkerKey) -> "_Worker":
        return _Worker(self._command, key, self._cores[-key.threads :])

    def _discard(self, key: WorkerKey) -> None:
        self._workers.pop(key).kill()
        self._host.restart()

    def _own_seconds(self) -> float:
        children = sum(worker.cpu_seconds() for worker in self._workers.values())
        return time.process_time() + children


class _WorkerLostError(FedperfError):
    """A child ended, or garbled its reply; the message says what is known."""


class _Worker:
    """One child: started and warmed up by the constructor."""

    def __init__(self, command: Sequence[str], key: WorkerKey, cores: Sequence[int]) -> None:
        self._trials = 0
        self._kept_bytes = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._scratch = tempfile.TemporaryDirectory(  # this too
            prefix="fedperf-trials-", ignore_cleanup_errors=True
        )
        options = [
            *("--platforms", ",".join(sorted(platform.name for platform in key.platforms))),
            *("--threads", str(key.threads)),
            *("--cores", ",".join(str(core) for core in cores)),
            *("--scratch", self._scratch.name),
            *(() if key.memory_bytes is None else ("--memory", str(key.memory_bytes))),
        ]
        try:
            self._process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ
                | dict.fromkeys(THREAD_VARIABLES, str(key.threads))
                | {"TMPDIR": self._scratch.name},
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            self._scratch.cleanup()
            raise _WorkerLostError(f"a child process could not be started: {error}") from error
        self._tree = ProcessTree(self._process.pid, children_every=_CHILDREN_EVERY_TICKS)
        self._pending = b""
        self._cpu_seconds = 0.0
        try:
            self._read_reply(time.monotonic() + _START_SECONDS)
        except (_WorkerLostError, TimeoutError) as error:
            self.kill()
            raise _WorkerLostError(f"a child process did not get ready: {error}") from error
        self._first_bytes = self._tree.resident_bytes()

    def is_clean(self, max_trials: int) -> bool:
        """Whether another run would be measured as in a new child."""
        return (
            self._process.poll() is None
            and self._trials < max_trials
            and self._kept_bytes <= self._first_bytes + _KEPT_BYTES
        )

    def cpu_seconds(self) -> float:
        """CPU time of the tree so far; what was last seen when it has ended."""
        self._cpu_seconds = max(self._cpu_seconds, self._tree.cpu_seconds())
        return self._cpu_seconds

    def ask(self, message: Mapping[str, object], limits: TrialLimits) -> _Answer:
        """Send a request and watch the child until it answers or has to be killed."""
        self._trials += 1
        self._tree.peak_bytes = 0
        cpu_before = self.cpu_seconds()
        start = time.monotonic()
        status, reason, reply = ExecutionStatus.OK, "", dict[str, object]()
        try:
            self._send(message)
            reply = self._read_reply(start + limits.timeout_seconds, limits.memory_bytes)
            status = ExecutionStatus[str(reply.get("status"))]
            reason = str(reply.get("reason", ""))
            self._kept_bytes = int(str(reply.get("resident_bytes", 0)))
        except TimeoutError:
            status = ExecutionStatus.TIMEOUT
            reason = f"stopped after {limits.timeout_seconds:g} s"
        except MemoryError:
            status = ExecutionStatus.OUT_OF_MEMORY
            reason = f"stopped at {self._tree.peak_bytes} of {limits.memory_bytes:g} bytes"
        except (_WorkerLostError, KeyError, ValueError) as lost:
            status, reason = self._judge_loss(limits), str(lost)[:_LONGEST_REASON]
        seconds = time.monotonic() - start
        cpu_seconds = self.cpu_seconds() - cpu_before
        if status is not ExecutionStatus.OK:
            self.kill()
        return _Answer(status, reply, seconds, self._tree.peak_bytes, cpu_seconds, reason)

    def kill(self) -> None:
        """End the child and everything that it started."""
        self._tree.kill_children()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._errors.close()
        self._scratch.cleanup()

    def _send(self, message: Mapping[str, object]) -> None:
        requests = _pipe(self._process.stdin)
        try:
            requests.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
            requests.flush()
        except OSError as error:
            raise self._lost() from error

    def _read_reply(self, deadline: float, memory_bytes: float = float("inf")) -> dict[str, object]:
        """The next line; TimeoutError, MemoryError or _WorkerLostError without one."""
        source = _pipe(self._process.stdout).fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if not left > 0:
                raise TimeoutError
            readable, _, _ = select.select([source], [], [], min(_TICK_SECONDS, left))
            if self._tree.sample() > memory_bytes:
                raise MemoryError
            if readable:
                received = os.read(source, 1 << 16)
                if not received:
                    raise self._lost()
                self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        reply = orjson.loads(line)
        if not isinstance(reply, dict):
            raise _WorkerLostError("the child process answered with something else than a reply")
        return reply

    def _lost(self) -> _WorkerLostError:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return _WorkerLostError("the child process closed its pipe")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LONGEST_REASON))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return _WorkerLostError(
            f"the child process ended ({how}) {said[-1] if said else ''}".strip()
        )

    def _judge_loss(self, limits: TrialLimits) -> ExecutionStatus:
        """A child that the kernel killed near its cap ran out of memory; else it failed."""
        killed = self._process.poll() == -signal.SIGKILL
        near = self._tree.peak_bytes > _KILLED_BY_KERNEL_SHARE * limits.memory_bytes
        return ExecutionStatus.OUT_OF_MEMORY if killed and near else ExecutionStatus.FAILED


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise _WorkerLostError("the child process has no pipe")
    return pipe


def _to_trial(request: TrialRequest, ended: _Answer, busy_cores: float) -> Trial:
    return Trial(
        platforms=request.platforms,
        status=ended.status,
        measurement=_measurement(ended),
        segments=_segments(ended),
        host_busy_cores=busy_cores,
        reason=ended.reason,
    )


def _measurement(ended: _Answer) -> Measurement | None:
    reply = ended.reply
    try:
        if "runtime_seconds" not in reply:
            return Measurement(ended.seconds, ended.cpu_seconds, ended.peak_bytes)
        return Measurement(
            runtime_seconds=float(str(reply["runtime_seconds"])),
            cpu_seconds=float(str(reply["cpu_seconds"])),
            peak_memory_bytes=max(int(str(reply["peak_memory_bytes"])), ended.peak_bytes),
            read_bytes=int(str(reply["read_bytes"])),
            written_bytes=int(str(reply["written_bytes"])),
        )
    except InvalidExecutionError:
        return None


def _segments(ended: _Answer) -> tuple[SegmentSeconds, ...]:
    found = ended.reply.get("segments", ())
    if ended.status is not ExecutionStatus.OK or not isinstance(found, list):
        return ()
    return tuple(SegmentSeconds(Platform(platform), float(seconds)) for platform, seconds in found)
