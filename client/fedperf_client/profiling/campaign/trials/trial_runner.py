"""Runs one trial in a process of its own, watches it, and says how it ended.

Invariant: whatever a trial does (crash, hang, allocate everything, start processes that
outlive it), the campaign gets an `TrialOutcome` and no process of the trial stays behind.

What the trial's processes used is counted by the kernel and read when they end; samples
of the process tree, every 50 ms and every 100 ms after the first second, add the memory
that they held together and enforce the limit. The watching happens in the campaign's process,
so it slows a trial down only where no core is free. What a component prints goes to a
file that is emptied whenever it is too long, so no trial fills the disk by talking.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from fedperf_client.profiling.campaign.components import Component, message_of
from fedperf_client.profiling.campaign.expressions import Value
from fedperf_client.profiling.campaign.record.outcome import (
    ComponentSpan,
    ResourceUse,
    TrialOutcome,
    TrialStatus,
)
from fedperf_client.profiling.trials.process_tree import ProcessTree
from fedperf_shared.errors import FedperfError, StorageError

TRIAL_COMMAND = (
    sys.executable,
    "-P",
    "-m",
    "fedperf_client.profiling.campaign.trials.trial_process",
)
TOKEN_VARIABLE = "FEDPERF_TRIAL"
"""Marks the processes of a trial in their environment; opens nothing."""

TICK_SECONDS = 0.05
"""From one sample of the process tree to the next, in the first second of a trial."""
_LATER_TICK_SECONDS = 0.1
_LATER_SECONDS = 1.0
_START_SECONDS = 300.0
_GRACE_SECONDS = 2.0
_LARGEST_REPLY = 1 << 22
_LONGEST_REASON = 500
_NEAR_LIMIT_SHARE = 0.5
MOST_LOG_BYTES = 1 << 24
"""Of what a component printed, that are kept until the next sample."""


class TrialStoppedError(FedperfError):
    """A trial was ended because the campaign is to stop; it has no outcome."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a trial may use: wall seconds, resident bytes (None for as much as there is)."""

    timeout_seconds: float
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why a trial was given up."""

    status: TrialStatus
    reason: str


class TrialRunner:
    """Runs trials, one at a time, in a scratch directory that it empties."""

    def __init__(self, directory: Path, scratch: Path, *, stop: threading.Event) -> None:
        """Run nothing yet.

        Args:
            directory: where commands run and modules of callables lie.
            scratch: for the trials' own directories; made, and removed by `clear`. Commands
                are told it in full, as they run elsewhere.
            stop: once set, the trial in flight is ended.
        """
        self._directory = directory
        self._scratch = scratch.absolute()
        self._stop = stop

    def clear(self) -> None:
        """Remove what trials left in the scratch directory, those of earlier runs too."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._scratch.is_dir():  # a trial may leave directories in which nobody may write
            _make_writable(self._scratch)
            shutil.rmtree(self._scratch, ignore_errors=True)

    def run(
        self,
        components: Sequence[Component],
        configuration: Mapping[str, Value],
        *,
        limits: Limits,
        token: str,
    ) -> TrialOutcome:
        """One trial; how it ended is data, it never raises for the trial's sake.

        Args:
            components: that run, in the order that they ask for.
            configuration: values by column.
            limits: at which it is stopped.
            token: marks its processes, so that they are found if this process is killed.

        Raises:
            TrialStoppedError: `stop` was set before it ended.
            StorageError: the scratch directory cannot be written.
        """
        self.clear()
        trial_directory, logs = self._scratch / "trial", self._scratch / "logs"
        try:
            for each in (trial_directory, logs):
                each.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"cannot write {self._scratch}: {error.strerror}") from error
        request = {
            "components": [message_of(each, configuration, trial_directory) for each in components],
            "directory": str(self._directory),
            "logs": str(logs),
            "timeout_seconds": limits.timeout_seconds,
        }
        try:
            with (logs / "trial.log").open("ab") as log:
                watched = _WatchedProcess(_start(log.fileno(), token), limits, logs, self._stop)
                outcome = watched.outcome(orjson.dumps(request) + b"\n")
        finally:
            self.clear()
        if not outcome.status.is_data:
            kill_leftovers([token])  # what left the session, where its foster parent was killed
        if self._stop.is_set() and not outcome.status.is_data:
            raise TrialStoppedError("the trial in flight was ended")
        return outcome


class _WatchedProcess:
    """A trial's process from its start to its end."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        limits: Limits,
        logs: Path,
        stop: threading.Event,
    ) -> None:
        self._process = process
        self._limits = limits
        self._logs = logs
        self._stop = stop
        self._tree = ProcessTree(process.pid, counts_root=False)
        self._pending = b""
        self._kernel_kills = _kernel_kills()
        self._is_over = False

    def outcome(self, request: bytes) -> TrialOutcome:
        """Send the request, wait for the end, and leave nothing behind."""
        startup, began, cpu_before = 0.0, 0.0, 0.0
        try:
            self._send(request)
            ready = self._reply(_START_SECONDS, "before it was ready")
            if "ready" not in ready:
                return TrialOutcome(TrialStatus.FAILED, str(ready.get("reason", "")))
            startup = _number(ready["startup_seconds"]) or 0.0
            self._tree.peak_bytes = 0
            began, cpu_before = time.monotonic(), self._tree.cpu_seconds()
            reply = self._reply(self._limits.timeout_seconds, "")
        except _LostError as lost:
            seconds = time.monotonic() - began if began else None
            cpu_seconds = max(0.0, self._tree.cpu_seconds() - cpu_before) if began else None
            self.end()
            used = ResourceUse(cpu_seconds, self._tree.peak_bytes or None)
            return TrialOutcome(lost.status, lost.reason, seconds, startup, used)
        finally:
            self.end()
        return self._judged(reply, startup)

    def end(self) -> None:
        """Kill what is still there of the trial, and reap its process; once."""
        if self._is_over:  # its number may be another process's by now
            return
        self._is_over = True
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # at which it ends what it started, and itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
        self._tree.kill_children()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()

    def _send(self, request: bytes) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(request)
                self._process.stdin.flush()
            except OSError as error:
                raise self._lost() from error

    def _reply(self, seconds: float, phase: str) -> dict[str, object]:
        """The next line; `_LostError` without one within `seconds`, which names the phase."""
        source = -1 if self._process.stdout is None else self._process.stdout.fileno()
        start = time.monotonic()
        deadline = start + seconds
        while b"\n" not in self._pending:
            now = time.monotonic()
            tick = TICK_SECONDS if now - start < _LATER_SECONDS else _LATER_TICK_SECONDS
            readable, _, _ = select.select([source], [], [], max(0.0, min(tick, deadline - now)))
            if readable:
                received = os.read(source, 1 << 16)
                if not received or len(self._pending) > _LARGEST_REPLY:
                    raise self._lost()
                self._pending += received
                continue
            self._check()
            if time.monotonic() >= deadline:
                raise _LostError(TrialStatus.TIMEOUT, f"stopped after {seconds:g} s {phase}")
        line, _, self._pending = self._pending.partition(b"\n")
        return dict(orjson.loads(line))

    def _check(self) -> None:
        _shorten(self._logs)
        limit, resident = self._limits.memory_bytes, self._tree.sample()
        if limit is not None and resident > limit:
            reason = f"stopped at {resident} of {limit} bytes"
            raise _LostError(TrialStatus.OOM, reason)
        if self._stop.is_set():
            raise _LostError(TrialStatus.FAILED, "the campaign was stopped")

    def _lost(self) -> "_LostError":
        """The trial's process itself ended without a reply."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        code = self._process.poll()
        how = f"ended by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        found = self._killed() if code == -signal.SIGKILL else _Loss(TrialStatus.FAILED, "")
        return _LostError(found.status, f"the trial's process was lost ({how}) {found.reason}")

    def _killed(self) -> _Loss:
        """What a kill that did not come from here means."""
        limit = self._limits.memory_bytes
        near = limit is not None and self._tree.peak_bytes > _NEAR_LIMIT_SHARE * limit
        if near or _kernel_kills() > self._kernel_kills:
            return _Loss(TrialStatus.OOM, "killed by the kernel when memory ran out")
        return _Loss(TrialStatus.FAILED, "killed by somebody else")

    def _judged(self, reply: Mapping[str, object], startup: float) -> TrialOutcome:
        status, reason = str(reply.get("status")), str(reply.get("reason", ""))
        if status == "killed":
            loss = self._killed()
            status, reason = loss.status.value, f"{reason} ({loss.reason})"
        spans = [each for each in _list(reply.get("spans")) if isinstance(each, dict)]
        return TrialOutcome(
            status=TrialStatus(status),
            reason=reason[:_LONGEST_REASON],
            wall_seconds=_number(reply.get("wall_seconds")),
            startup_seconds=startup,
            resources=self._resources(reply, spans),
            spans=tuple(_span(each) for each in spans),
        )

    def _resources(
        self, reply: Mapping[str, object], spans: Sequence[Mapping[str, object]]
    ) -> ResourceUse:
        """Of the whole trial; nothing where a part of it ran elsewhere."""
        left = reply.get("left")
        if not reply.get("usage_is_seen") or not isinstance(left, dict):
            return ResourceUse()
        each_peak = [_whole(each.get("peak_bytes")) or 0 for each in spans]
        exact = [
            peak for peak, each in zip(each_peak, spans, strict=True) if each.get("peak_is_exact")
        ]
        sampled = max([self._tree.peak_bytes, *exact])
        total = {
            name: sum(_number(each.get(name)) or 0.0 for each in (*spans, left))
            for name in ("cpu_seconds", "read_bytes", "written_bytes", "context_switches")
        }
        moved = all("read_bytes" in each for each in spans)
        return ResourceUse(
            cpu_seconds=total["cpu_seconds"],
            peak_bytes=sampled or max(each_peak, default=0) or None,
            read_bytes=int(total["read_bytes"]) if moved else None,
            written_bytes=int(total["written_bytes"]) if moved else None,
            context_switches=int(total["context_switches"]),
        )


class _LostError(FedperfError):
    """A trial was given up."""

    def __init__(self, status: TrialStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason.strip()[:_LONGEST_REASON]


def _start(log: int, token: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        TRIAL_COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=os.environ | {TOKEN_VARIABLE: token},
        start_new_session=True,
    )


def kill_leftovers(tokens: Sequence[str]) -> int:
    """Kill processes of trials that were in flight when their campaign was killed."""
    import psutil

    killed = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN_VARIABLE) in tokens:
                process.kill()
                killed += 1
    return killed


def _make_writable(directory: Path) -> None:
    for folder, names, _ in os.walk(directory):
        for path in (Path(folder) / name for name in names):
            if not path.is_symlink():  # which may lead to a directory that is not ours
                with contextlib.suppress(OSError):
                    path.chmod(0o700)


def _shorten(logs: Path) -> None:
    """Empty the files that are too long; whoever writes there appends."""
    for log in logs.iterdir():
        with contextlib.suppress(OSError):
            if log.stat().st_size > MOST_LOG_BYTES:
                os.truncate(log, 0)


def _kernel_kills() -> int:
    """How many processes the kernel has killed for memory since it started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _span(each: Mapping[str, object]) -> ComponentSpan:
    return ComponentSpan(
        component=str(each["component"]),
        start_seconds=_number(each["start_seconds"]) or 0.0,
        end_seconds=_number(each["end_seconds"]) or 0.0,
        resources=ResourceUse(
            _number(each.get("cpu_seconds")),
            _whole(each.get("peak_bytes")),
            _whole(each.get("read_bytes")),
            _whole(each.get("written_bytes")),
            _whole(each.get("context_switches")),
        ),
        queue_seconds=_number(each.get("queue_seconds")),
        compute_seconds=_number(each.get("compute_seconds")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
