"""Runs programs in a warm pool of child processes, and makes executions of the trials.

There is one child per set of engines, number of threads and memory cap. It starts when first needed
and is reused while measurements stay clean: a child is replaced after a failure, after
`max_trials` runs, and when it keeps much more memory than it started with. A child has a temporary
directory of its own, which is removed with it.

Invariants: a trial that crashes, hangs or allocates everything is a `Trial` with that status, never
an exception, and no process stays behind. The workflow of an execution carries actual
cardinalities, counted outside of the measured run, and none of the program's parameters.

Memory is capped by sampling the process tree about every 20 ms (`workers.child_process`). Engines
with such a setting get the cap when their child starts, so that they spill or fail by themselves.
The kernel keeps the exact peak of a child (VmHWM, reset before each run). The samples add the
child's own children.
"""

import contextlib
import math
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from fedperf_client.workers.child_process import ChildFailedError, ChildProcess
from fedperf_client.workers.child_side import Json
from fedperf_client.workers.machine import InterferenceMonitor
from fedperf_engines.platforms.executor import SegmentTiming
from fedperf_engines.platforms.program import Program, StepStatistics, to_json, to_workflow
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionStatus,
    InvalidExecutionError,
    Measurement,
)
from fedperf_shared.runtime.process import Closing
from fedperf_shared.workflow.graph import Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A program to run, and its resources."""

    program: bytes  # the program as JSON (`platforms.program.to_json`)
    platforms: tuple[Platform, ...]  # one platform per step
    data_directory: Path  # where the data sets of the program lie
    threads: int  # threads that the engines may use
    # Memory cap of the run: engines with such a setting arrange themselves with it, all are stopped
    # beyond it. None: the engines' own defaults.
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and not self.memory_bytes > 0:
            raise InvalidInputError(f"memory_bytes must be positive, got {self.memory_bytes!r}")
        if not 1 <= self.threads <= 1024:  # noqa: PLR2004 (a bound against typing errors)
            raise InvalidInputError(f"threads must be between 1 and 1024, got {self.threads!r}")
        if not self.platforms:
            raise InvalidInputError("a trial needs one platform per step, got none")


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The limits at which a trial is stopped."""

    timeout_seconds: float  # wall time of one run
    memory_bytes: int  # resident memory of the whole process tree, engines included

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds <= MAX_RUNTIME_SECONDS:
            raise InvalidInputError(
                f"timeout_seconds must be in (0, {MAX_RUNTIME_SECONDS:g}], "
                f"got {self.timeout_seconds!r}"
            )
        if not (math.isfinite(self.memory_bytes) and self.memory_bytes > 0):
            raise InvalidInputError(f"memory_bytes must be positive, got {self.memory_bytes!r}")


@dataclass(frozen=True, slots=True)
class Trial:
    """How a run ended."""

    platforms: tuple[Platform, ...]  # what ran where
    status: ExecutionStatus  # how it ended
    # What was measured; up to the end of a run that was stopped, None where nothing could be
    # measured.
    measurement: Measurement | None
    # Timing of each segment, empty unless the status is `OK`.
    segments: tuple[SegmentTiming, ...] = ()
    # Cores that the rest of the machine kept busy meanwhile, over at least a quarter of a second.
    host_busy_cores: float = 0.0
    reason: str = ""  # why it did not end well, empty otherwise; local text, never released


WORKER_COMMAND = (sys.executable, "-m", "fedperf_engines.trials.worker")

_TICK_SECONDS = 0.02
_CHILDREN_EVERY_TICKS = 25
_START_SECONDS = 180.0
_KEPT_BYTES = 256 * 1024**2  # A child that keeps this much more than after its start is replaced
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
    """The purpose of a child. The memory of some engines is fixed when they start."""

    platforms: frozenset[Platform]  # the engines that it may import, none to count rows
    threads: int  # of each engine
    memory_bytes: int | None = None  # memory cap of the engines, None for their own defaults


class UncountableProgramError(FedperfError):
    """The rows of a program could not be counted, so no plan can be made of it."""


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
        self._host = InterferenceMonitor(self._own_seconds)

    def close(self) -> None:
        """End all children; the pool can be used again."""
        for key in tuple(self._workers):
            self._discard(key)

    def warm(self, keys: Iterable[WorkerKey]) -> None:
        """Start the children for `keys` side by side, as far as there is room for them.

        Starting is mostly importing, so many starts take half as long on two cores. A child
        that fails to start is started again when it is needed, and the error is reported then.
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
        """Return one measured run; how it ended is data, it never raises for the trial's sake."""
        key = WorkerKey(frozenset(request.platforms), request.threads, request.memory_bytes)
        platforms = [int(platform) for platform in request.platforms]
        lowest = min(limits.memory_bytes, request.memory_bytes or limits.memory_bytes)
        limits = replace(limits, memory_bytes=lowest)
        reply = self._send(key, _message("run", request, platforms), limits)
        try:
            measurement = Measurement(
                reply["seconds"], peak_memory_bytes=reply["peak_bytes"], **reply["used"]
            )
        except InvalidExecutionError:
            measurement = None
        status = _STATUSES[reply["status"]]
        segments = reply.get("segments", ()) if status is ExecutionStatus.OK else ()
        return Trial(
            platforms=request.platforms,
            status=status,
            measurement=measurement,
            segments=tuple(
                SegmentTiming(Platform(number), tuple(steps), seconds)
                for number, steps, seconds in segments
            ),
            host_busy_cores=self._host.busy_cores_since_begin(),
            reason=reply["reason"],
        )

    def count(self, request: TrialRequest, limits: TrialLimits) -> Mapping[str, object]:
        """Return the worker's reply to "count the rows of this program", from a child of its own.

        Raises:
            UncountableProgramError: counting failed, or passed the limits.
        """
        key = WorkerKey(frozenset(), request.threads)
        reply = self._send(key, _message("count", request), limits)
        if reply["status"] != "ok":
            status = _STATUSES[reply["status"]].name.lower()
            raise UncountableProgramError(
                f"the rows of a program could not be counted ({status}): {reply['reason']}"
            )
        return reply

    def _send(self, key: WorkerKey, message: bytes, limits: TrialLimits) -> Json:
        try:
            worker = self._worker(key)
        except ChildFailedError as lost:
            self._host.begin()
            nothing = {"seconds": 0.0, "peak_bytes": 0, "used": {}}
            return nothing | {"status": lost.status, "reason": lost.reason}
        self._host.begin()
        return worker.call(message, limits)

    def _worker(self, key: WorkerKey) -> "_Worker":
        worker = self._workers.get(key)
        if worker is not None and not worker.is_clean(self._max_trials):
            self._discard(key)
            worker = None
        if worker is None:
            while len(self._workers) >= self._max_workers:
                self._discard(next(iter(self._workers)))
            worker = self._start(key)
            self._workers[key] = worker
            self._host.restart()
        self._workers.move_to_end(key)
        return worker

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
        with contextlib.ExitStack() as held:
            self.scratch = held.enter_context(
                tempfile.TemporaryDirectory(prefix="fedperf-trials-", ignore_cleanup_errors=True)
            )
            log = held.enter_context(tempfile.TemporaryFile())
            threads = dict.fromkeys(THREAD_VARIABLES, str(key.threads))
            try:
                self.child = ChildProcess(
                    command,
                    log=log,
                    env=os.environ | threads | {"TMPDIR": self.scratch},
                    ticks_seconds=(_TICK_SECONDS, _TICK_SECONDS),
                    children_every=_CHILDREN_EVERY_TICKS,
                )
                held.enter_context(self.child)
                names = sorted(platform.name for platform in key.platforms)
                settings = key._asdict() | {"platforms": names, "cores": cores}
                self.child.send(orjson.dumps(settings | {"scratch": self.scratch}))
                self.child.receive(_START_SECONDS)
            except OSError as error:
                reason = f"a child process could not be started: {error}"
                raise ChildFailedError("failed", reason) from error
            except ChildFailedError as lost:
                reason = f"a child process did not get ready: {lost.reason}"
                raise ChildFailedError("failed", reason) from lost
            self._held = held.pop_all()
        self._first_bytes = self.child.tree.resident_bytes()

    def is_clean(self, max_trials: int) -> bool:
        """Return whether another run would be measured as in a new child."""
        return (
            self.child.is_alive()
            and self._trials < max_trials
            and self._kept_bytes <= self._first_bytes + _KEPT_BYTES
        )

    def call(self, message: bytes, limits: TrialLimits) -> Json:
        """Send a request and watch the child until it replies or has to be killed.

        Returns:
            The reply; where the child measured nothing, wall and CPU seconds as seen from here.
            The peak is the larger one of the child's and that of the samples.
        """
        self._trials += 1
        tree = self.child.tree
        tree.peak_bytes = 0
        cpu_before = tree.cpu_seconds()
        start = time.monotonic()
        try:
            self.child.send(message)
            reply: Json = {"reason": ""} | orjson.loads(
                self.child.receive(limits.timeout_seconds, memory_bytes=limits.memory_bytes)
            )
            self._kept_bytes = reply["resident_bytes"]
        except ChildFailedError as lost:
            reply = {"status": lost.status, "reason": lost.reason}
        except (LookupError, TypeError, ValueError) as garbled:
            reply = {"status": "failed", "reason": f"its reply is garbled: {garbled}"}
        measured = {
            "seconds": time.monotonic() - start,
            "used": {"cpu_seconds": tree.cpu_seconds() - cpu_before},
        }
        if reply["status"] != "ok":
            self.close()
        peak = max(reply.get("peak_bytes", 0), tree.peak_bytes)
        return measured | reply | {"peak_bytes": peak}

    def close(self) -> None:
        """End the child and everything that it started."""
        self._held.close()


def _message(task: str, request: TrialRequest, platforms: Sequence[int] = ()) -> bytes:
    return orjson.dumps(
        {
            "task": task,
            "program": request.program.decode(),
            "platforms": platforms,
            "data_directory": str(request.data_directory),
        }
    )


_KEPT_WORKFLOWS = 1024
# Counting keeps every intermediate result, so it takes longer than a run.
_COUNTING_TIMEOUT_FACTOR = 5.0


class Profiler:
    """Profiles programs in the child processes of a pool."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        data_directory: Path,
        limits: TrialLimits,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        """Use `pool`; `clock` gives moments with time zone, `new_id` random local ids."""
        self._pool = pool
        self._data_directory = data_directory
        self._limits = limits
        self._counting_limits = TrialLimits(
            min(limits.timeout_seconds * _COUNTING_TIMEOUT_FACTOR, MAX_RUNTIME_SECONDS),
            limits.memory_bytes,
        )
        self._clock = clock
        self._new_id = new_id
        self._workflows: OrderedDict[bytes, Workflow] = OrderedDict()

    def profile(
        self,
        program: Program,
        platforms: Sequence[Platform],
        cluster: ClusterConfig,
        *,
        workload: str,
    ) -> Execution:
        """Return one measured run with `cluster.cores` threads; a failed one is an execution too.

        Raises:
            UncountableProgramError: the rows of the program could not be counted.
        """
        workflow = self.workflow(program)
        trial = self.trial(program, platforms, threads=cluster.cores)
        return self.execution(workflow, trial, cluster, workload=workload)

    def trial(
        self,
        program: Program,
        platforms: Sequence[Platform],
        *,
        threads: int,
        memory_bytes: int | None = None,
    ) -> Trial:
        """Return one measured run, with a memory cap of its own or the profiler's limits alone."""
        request = TrialRequest(
            to_json(program), tuple(platforms), self._data_directory, threads, memory_bytes
        )
        return self._pool.run(request, self._limits)

    def workflow(self, program: Program) -> Workflow:
        """Return the workflow of a program with the rows that really flow; remembered.

        Raises:
            UncountableProgramError: the rows of the program could not be counted.
        """
        text = to_json(program)
        workflow = self._workflows.get(text)
        if workflow is None:
            request = TrialRequest(text, (Platform.UNASSIGNED,), self._data_directory, 1)
            reply = self._pool.count(request, self._counting_limits)
            steps, sources = reply.get("steps"), reply.get("sources")
            if not (isinstance(steps, list) and isinstance(sources, list)):
                raise UncountableProgramError("the rows of a program were counted without a reply")
            statistics = [StepStatistics(*each) for each in steps]
            workflow = to_workflow(program, statistics, SourceStatistics(*sources))
            self._workflows[text] = workflow
            if len(self._workflows) > _KEPT_WORKFLOWS:
                self._workflows.popitem(last=False)
        return workflow

    def execution(
        self, workflow: Workflow, trial: Trial, cluster: ClusterConfig, *, workload: str
    ) -> Execution:
        """Return the trial as an execution that finished now."""
        return Execution(
            execution_id=self._new_id(),
            workload=workload,
            plan=Plan(workflow, trial.platforms),
            cluster=cluster,
            status=trial.status,
            measurement=trial.measurement,
            finished_at=self._clock(),
        )
