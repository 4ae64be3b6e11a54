"""A warm pool of child processes that run trials.

One child per set of engines, number of threads and memory cap, started when first needed and
used again as long as measurements stay clean: a child is replaced after a failure,
after `max_trials` runs, and when it keeps much more memory than it started with.

Invariant: whatever a trial does (crash, hang, allocate everything), the parent gets
a `Trial` and no process stays behind.

Memory is capped by sampling the process tree about every 20 ms (`workers.child_process`).
Engines that can are told a cap when their child starts, so that they spill or fail by
themselves. The kernel keeps the exact peak of a child by itself (VmHWM, reset before each
run); the samples add what the child's own children use.

A child has a temporary directory of its own, which goes with it.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from fedperf_client.profiling.trials.machine import HostWatch
from fedperf_client.profiling.trials.trial import SegmentSeconds, Trial, TrialLimits, TrialRequest
from fedperf_client.workers.child_process import ChildFailedError, ChildProcess
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
_STATUSES = {
    "ok": ExecutionStatus.OK,
    "failed": ExecutionStatus.FAILED,
    "timeout": ExecutionStatus.TIMEOUT,
    "oom": ExecutionStatus.OUT_OF_MEMORY,
}
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
            with contextlib.suppress(ChildFailedError):
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
        except ChildFailedError as lost:
            self._host.begin()
            return _Answer(ExecutionStatus.FAILED, {}, 0.0, 0, reason=lost.reason)
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
        self._workers.pop(key).close()
        self._host.restart()

    def _own_seconds(self) -> float:
        children = sum(worker.child.tree.cpu_seconds() for worker in self._workers.values())
        return time.process_time() + children


class _Worker(Closing):
    """One child: started and warmed up by the constructor."""

    def __init__(self, command: Sequence[str], key: WorkerKey, cores: Sequence[int]) -> None:
        """Start it; `ChildFailedError` where it does not get ready."""
        self._trials = 0
        self._kept_bytes = 0
        self._held = contextlib.ExitStack()
        options = [
            *("--platforms", ",".join(sorted(platform.name for platform in key.platforms))),
            *("--threads", str(key.threads)),
            *("--cores", ",".join(str(core) for core in cores)),
            *(() if key.memory_bytes is None else ("--memory", str(key.memory_bytes))),
        ]
        with contextlib.ExitStack() as held:
            self.scratch = held.enter_context(
                tempfile.TemporaryDirectory(prefix="fedperf-trials-", ignore_cleanup_errors=True)
            )
            try:
                self.child = ChildProcess(
                    [*command, *options, "--scratch", self.scratch],
                    log=held.enter_context(tempfile.TemporaryFile()),
                    environment=os.environ
                    | dict.fromkeys(THREAD_VARIABLES, str(key.threads))
                    | {"TMPDIR": self.scratch},
                    ticks_seconds=(_TICK_SECONDS, _TICK_SECONDS),
                    children_every=_CHILDREN_EVERY_TICKS,
                )
            except OSError as error:
                raise ChildFailedError(
                    "failed", f"a child process could not be started: {error}"
                ) from error
            held.enter_context(self.child)
            try:
                self.child.receive(_START_SECONDS)
            except ChildFailedError as error:
                raise ChildFailedError(
                    "failed", f"a child process did not get ready: {error.reason}"
                ) from error
            self._held = held.pop_all()
        self._first_bytes = self.child.tree.resident_bytes()

    def is_clean(self, max_trials: int) -> bool:
        """Whether another run would be measured as in a new child."""
        return (
            self.child.is_alive()
            and self._trials < max_trials
            and self._kept_bytes <= self._first_bytes + _KEPT_BYTES
        )

    def ask(self, message: Mapping[str, object], limits: TrialLimits) -> _Answer:
        """Send a request and watch the child until it answers or has to be killed."""
        self._trials += 1
        tree = self.child.tree
        tree.peak_bytes = 0
        cpu_before = tree.cpu_seconds()
        start = time.monotonic()
        reply: dict[str, object] = {}
        try:
            self.child.send(orjson.dumps(message))
            reply = orjson.loads(
                self.child.receive(limits.timeout_seconds, memory_bytes=limits.memory_bytes)
            )
            status, reason = _STATUSES[str(reply["status"])], str(reply.get("reason", ""))
            self._kept_bytes = int(str(reply["resident_bytes"]))
        except ChildFailedError as lost:
            status, reason = _STATUSES[lost.status], lost.reason
        except (LookupError, TypeError, ValueError) as garbled:
            status, reason = ExecutionStatus.FAILED, f"its answer is garbled: {garbled}"
        seconds = time.monotonic() - start
        cpu_seconds = tree.cpu_seconds() - cpu_before
        if status is not ExecutionStatus.OK:
            self.close()
        return _Answer(status, reply, seconds, tree.peak_bytes, cpu_seconds, reason)

    def close(self) -> None:
        """End the child and everything that it started."""
        self._held.close()


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
        used = reply.get("used")
        if not isinstance(used, dict):
            return Measurement(ended.seconds, ended.cpu_seconds, ended.peak_bytes)
        return Measurement(
            runtime_seconds=float(str(reply["seconds"])),
            cpu_seconds=used["cpu_seconds"],
            peak_memory_bytes=max(int(str(reply["peak_bytes"])), ended.peak_bytes),
            read_bytes=used["read_bytes"],
            written_bytes=used["written_bytes"],
        )
    except InvalidExecutionError:
        return None


def _segments(ended: _Answer) -> tuple[SegmentSeconds, ...]:
    found = ended.reply.get("segments", ())
    if ended.status is not ExecutionStatus.OK or not isinstance(found, list):
        return ()
    return tuple(SegmentSeconds(Platform(platform), float(seconds)) for platform, seconds in found)
