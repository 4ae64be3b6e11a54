"""The child's side of a supervised process: its channel, its end, and what its work used.

Functions that are measured run in processes that import this module. So it imports little of the
standard library and nothing else: their memory and their start-up time count.

The channel is the child's standard input, a socket that carries messages both ways. A child
replaces it by an empty input at once; what it prints goes to the log that its parent gave it.
"""

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

TYPE_CHECKING = False  # `typing` would be a megabyte of every function that is measured
if TYPE_CHECKING:
    import queue
    import subprocess
    from typing import IO, Any, TypeAlias, TypeVar

    T = TypeVar("T")
    Json: TypeAlias = dict[str, Any]
else:
    Json = dict

LONGEST_REASON = 500
_LOG_BYTES = 4096
_LENGTH_BYTES = 8
# Processes that are started while their siblings are killed are found in a later round.
_KILLING_ROUNDS = 3


class Channel:
    """One end of a socket that carries messages, each behind its length.

    Where the other end is gone, sending raises OSError, receiving EOFError or OSError.
    """

    def __init__(self, number: int) -> None:
        """Use, and own, the file descriptor `number`."""
        self._stream = FileIO(number, "r+")

    def __del__(self) -> None:
        self.close()

    def send(self, message: bytes) -> None:
        """Send a message whole."""
        remaining = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
        while remaining:
            remaining = remaining[os.write(self._stream.fileno(), remaining) :]

    def poll(self, seconds: float | None = 0.0) -> bool:
        """Whether a message or the end is there within `seconds`; None waits for it."""
        waiting = select.poll()
        waiting.register(self._stream.fileno(), select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))

    def receive(self) -> bytes:
        """Wait for a message."""
        return self._read(int.from_bytes(self._read(_LENGTH_BYTES), "big"))

    def close(self) -> None:
        """Close this end; once is enough."""
        self._stream.close()

    def _read(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            part = os.read(self._stream.fileno(), count - len(content))
            if not part:
                raise EOFError
            content += part
        return bytes(content)


def start_child(
    command: Sequence[str],
    log: "IO[bytes] | None",
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    start_new_session: bool = False,
) -> tuple["subprocess.Popen[bytes]", Channel]:
    """Start a child that uses `channel_to_parent`; return it and this end of its channel.

    Its output goes to `log`, or to this process's output if None; the rest is as in
    `subprocess.Popen`. OSError where the command cannot be started.
    """
    import subprocess
    from socket import socketpair

    here, there = socketpair()
    channel = Channel(here.detach())
    with there:  # closed here, so that the end of the child is seen
        process = subprocess.Popen(
            command,
            stdin=there.fileno(),
            stdout=log,
            stderr=log,
            env=env,
            cwd=cwd,
            start_new_session=start_new_session,
        )
    return process, channel


def channel_to_parent() -> Channel:
    """Return the channel of this process, and give it an empty standard input."""
    channel = Channel(os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return channel


def die_before_parent() -> None:
    """Make the kernel choose this process, not its parent, when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def requests_of_parent(channel: Channel, scratch: str | None = None) -> "queue.SimpleQueue[bytes]":
    """Return a queue of the parent's messages, filled by a thread.

    When the parent is gone, the thread ends this process, all below it, and `scratch`.
    """
    import queue
    import threading

    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                requests.put(channel.receive())
        for _ in range(_KILLING_ROUNDS):
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if scratch is not None:
            import shutil

            shutil.rmtree(scratch, ignore_errors=True)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    return requests


def failure(error: BaseException) -> Json:
    """Return the outcome of an error."""
    reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
    status = "oom" if isinstance(error, MemoryError) else "failed"
    return {"status": status, "reason": reason.encode(errors="replace").decode()}


def measured(
    work: "Callable[[], T]",
    besides: Callable[[], dict[str, float]],
    *,
    judge: Callable[[BaseException], Json] = failure,
) -> "tuple[T | None, Json, dict[str, float]]":
    """Run `work` once; return its result, None where it raised, how it ended, and what it used.

    Any exception of `work` is an outcome, also one that tries to end this process.

    Args:
        work: is measured.
        besides: totals that count besides the CPU time of this process: `used_besides`.
        judge: makes the outcome of an error.

    Returns:
        The outcome has its status and reason, wall seconds and peak bytes. The usage is the CPU
        seconds and the differences of `besides`.
    """
    reset_peak()
    before = besides()
    result, outcome = None, {"status": "ok", "reason": ""}
    # All threads of this process, to the nanosecond; `os.times` counts in ticks of 10 ms.
    cpu_start, start = time.process_time(), time.perf_counter()
    try:
        result = work()
    except BaseException as error:
        outcome = judge(error)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    after = besides()
    used = {name: max(0, after[name] - before[name]) for name in before}
    used["cpu_seconds"] += cpu_seconds
    return result, outcome | {"seconds": seconds, "peak_bytes": peak_bytes()}, used


def used_besides() -> dict[str, float]:
    """Return totals so far: CPU of children that were waited for, switches and bytes of all."""
    own, ended = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    switches = own.ru_nvcsw + own.ru_nivcsw + ended.ru_nvcsw + ended.ru_nivcsw
    cpu_seconds = ended.ru_utime + ended.ru_stime
    return {"cpu_seconds": cpu_seconds, "context_switches": switches} | moved_bytes(os.getpid())


def moved_bytes(pid: int) -> dict[str, float]:
    """Return the bytes read and written so far, with ended children; empty if not available.

    These are the requested bytes, also those from the page cache, since they belong to the job.
    The bytes that the disk delivered depend on the state of the machine.
    """
    names = {"rchar": "read_bytes", "wchar": "written_bytes"}
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {names[name]: int(count) for name, _, count in fields if name in names}


def peak_bytes() -> int:
    """Return the kernel's peak of this process's resident memory since `measured` began.

    It is 0 where the kernel has none.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Let a new peak count from now on, where the kernel can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def descendants(pid: int) -> Iterator[int]:
    """Yield all processes below `pid` now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name in parentheses may hold anything, a parenthesis too.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = list(parents.get(pid, ()))
    while waiting:
        child = waiting.pop()
        yield child
        waiting += parents.get(child, ())


def how_ended(code: int) -> str:
    """Describe an exit code; negative for a signal."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def last_words(log: "IO[bytes]") -> str:
    """Return the end of a log."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_BYTES))
    return " ".join(log.read().decode(errors="replace").split())[-LONGEST_REASON:]
