"""The supervisor of child processes: limits, losses, their last output, and their whole end.

Memory is capped by sampling the resident memory of the process tree and killing it: limits
on address space or data segment count what engines reserve and never touch, and make
some of them abort.
"""

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from fedperf_client.workers.child_side import (
    LONGEST_REASON,
    how_ended,
    last_words,
    start_child,
)
from fedperf_shared.errors import FedperfError
from fedperf_shared.runtime.process import Closing

_FIRST_SECONDS = 1.0
_LOSS_SECONDS = 5.0
_NEAR_LIMIT_SHARE = 0.5
_LONGEST_WORDS = 300
_LONGEST_END_SECONDS = 10.0
_END_TICK_SECONDS = 0.005


class ChildFailedError(FedperfError):
    """Raised when a child does not reply.

    Attributes:
        status: `timeout`, `oom` or `failed`.
        reason: local text.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason.strip()[:LONGEST_REASON]


class ChildProcess(Closing):
    """A child process that replies to messages (see `child_side`); use it as a context manager.

    Attributes:
        pid: its number.
        tree: the child and its descendants, sampled while a reply is awaited.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: IO[bytes] | None = None,
        ticks_seconds: tuple[float, float] | None = None,
        children_every: int = 1,
        counts_root: bool = True,
        grace_seconds: float = 0.0,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start the child in a session of its own; OSError where it cannot be started.

        Args:
            command: starts the child.
            log: readable, takes what the child prints; None for where this process prints.
            ticks_seconds: between two samples, in the first second of waiting and later;
                None to wait without sampling.
            children_every: samples from one search for new descendants to the next.
            counts_root: whether the memory of the child itself counts.
            grace_seconds: how long the child may take to end by itself when it is closed.
            env: as in `subprocess.Popen`.
            cwd: as in `subprocess.Popen`.
        """
        self._process, self._channel = start_child(
            command, log, env=env, cwd=cwd, start_new_session=True
        )
        self._log = log
        self._ticks_seconds = ticks_seconds
        self._grace_seconds = grace_seconds
        self._kernel_kills = _kernel_kills()
        self._is_killed = False
        self.pid = self._process.pid
        self.tree = ProcessTree(self.pid, children_every=children_every, counts_root=counts_root)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, message: bytes) -> None:
        """Send a message; `ChildFailedError` where the child has ended."""
        self._kernel_kills = _kernel_kills()
        try:
            self._channel.send(message)
        except OSError as error:
            raise self._lost(None) from error

    def receive(
        self,
        seconds: float | None,
        *,
        memory_bytes: float | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Return the next message of the child.

        Args:
            seconds: how long it may take; None for any time.
            memory_bytes: resident memory that the tree may hold; None for any.
            on_tick: called after each sample without a reply; may raise `ChildFailedError`.

        Raises:
            ChildFailedError: the child ended, or passed a limit. It is not killed.
        """
        start = time.monotonic()
        limit = math.inf if seconds is None else seconds
        remaining = limit
        first, later = self._ticks_seconds or (math.inf, math.inf)
        tick = first
        while True:
            wait = min(tick, max(0.0, remaining))
            has_reply = self._channel.poll(None if wait == math.inf else wait)
            if self._ticks_seconds is not None:
                resident = self.tree.sample()
                if memory_bytes is not None and resident > memory_bytes:
                    raise ChildFailedError("oom", f"stopped at {resident} of {memory_bytes} bytes")
            if has_reply:
                try:
                    return self._channel.receive()
                except (EOFError, OSError) as error:
                    raise self._lost(memory_bytes) from error
            on_tick()
            elapsed = time.monotonic() - start
            tick = first if elapsed < _FIRST_SECONDS else later
            remaining = limit - elapsed
            if not remaining > 0:
                raise ChildFailedError("timeout", f"stopped after {seconds:g} s")

    def meaning_of_kill(self, memory_bytes: float | None) -> tuple[str, str]:
        """Return status and reason of a process of the tree that a foreign SIGKILL ended."""
        near = memory_bytes is not None and self.tree.peak_bytes > _NEAR_LIMIT_SHARE * memory_bytes
        if near or _kernel_kills() > self._kernel_kills:
            return "oom", "killed by the kernel when memory ran out"
        return "failed", "killed by somebody else"

    def kill(self) -> None:
        """End the child and everything that it started; a waiting `receive` raises."""
        if self._is_killed:  # its number may be another process's by now
            return
        self._is_killed = True
        self.tree.kill_children()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Let the child end by itself within its grace, then kill it; no thread may wait for it."""
        if self._grace_seconds and not self._is_killed:
            self._channel.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self._grace_seconds)
        self.kill()
        self._channel.close()

    def _lost(self, memory_bytes: float | None) -> ChildFailedError:
        """Return the error of a child that ended without a reply."""
        try:
            code = self._process.wait(_LOSS_SECONDS)
        except subprocess.TimeoutExpired:
            return ChildFailedError("failed", "its process was lost: it closed its channel")
        status, why = "failed", ""
        if code == -signal.SIGKILL:
            status, why = self.meaning_of_kill(memory_bytes)
        words = "" if self._log is None else last_words(self._log)[-_LONGEST_WORDS:]
        return ChildFailedError(
            status, f"its process was lost ({how_ended(code)}) {why} {words}".strip()
        )


class ProcessTree:
    """A process and its descendants, sampled: their resident memory and CPU time.

    A value that cannot be read because a process has just ended counts as zero.
    """

    def __init__(self, pid: int, *, children_every: int = 1, counts_root: bool = True) -> None:
        """Watch the process `pid`, which is alive; options as of `ChildProcess`."""
        self._root = psutil.Process(pid)
        self._children_every = children_every
        self._counted: tuple[psutil.Process, ...] = (self._root,) if counts_root else ()
        self._children: list[psutil.Process] = []
        self._samples = 0
        self._cpu_seconds = 0.0
        self.peak_bytes = 0

    def sample(self) -> int:
        """Return the resident memory now, in bytes, and update the peak."""
        self._samples += 1
        if self._samples % self._children_every == 0:
            self._children = self._descendants()
        resident = self.resident_bytes()
        self.peak_bytes = max(self.peak_bytes, resident)
        return resident

    def resident_bytes(self) -> int:
        """Return the resident memory now, in bytes."""
        total = 0
        for process in (*self._counted, *self._children):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def cpu_seconds(self) -> float:
        """Return the CPU time so far, including ended children that the root has waited for.

        After the end of the tree it is the last sample.
        """
        total = 0.0
        for process in (self._root, *self._children):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                if process is self._root:
                    total += times.children_user + times.children_system
        self._cpu_seconds = max(self._cpu_seconds, total)
        return self._cpu_seconds

    def kill_children(self) -> None:
        """Kill all descendants, not the root, and wait until they are gone.

        The kernel takes a while to end a process that holds gigabytes; until then its memory
        is missing to the next process.
        """
        killed = {*self._children, *self._descendants()}
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        latest = time.monotonic() + _LONGEST_END_SECONDS
        while any(map(_is_alive, killed)) and time.monotonic() < latest:
            time.sleep(_END_TICK_SECONDS)

    def _descendants(self) -> list[psutil.Process]:
        """Return the processes below the root, with the same objects as before."""
        earlier = {process.pid: process for process in self._children}
        processes: list[psutil.Process] = []
        try:
            for pid in _pids_below(self._root.pid):
                with contextlib.suppress(psutil.Error):
                    processes.append(earlier.get(pid) or psutil.Process(pid))
        except OSError:  # this kernel does not list children: look through all processes
            with contextlib.suppress(psutil.Error):
                return self._root.children(recursive=True)
        return processes


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _pids_below(pid: int) -> Iterator[int]:
    """Yield the kernel's list of children, a hundred times faster than reading all of /proc."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            yield int(child)
            with contextlib.suppress(OSError):
                yield from _pids_below(int(child))


def _kernel_kills() -> int:
    """Return the number of processes that the kernel has killed for memory since it started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
