"""The process of one trial: starts its components in their order and waits for them.

It is the leader of a session of its own, and the foster parent of every process that a
component leaves behind, so that all of them are counted and none stays: when the
components have ended, when one of them failed, and when the campaign itself is gone,
which closes the pipe that this process reads.

The clock runs from the start of the first component to the end of the last one. Modules
of callables are imported and connections prepared before it. Commands are started here,
callables wait in processes of their own (`callable_process`), requests leave from
threads of this process. It imports the standard library alone, to be small and ready soon.
"""

import contextlib
import ctypes
import json
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import BinaryIO

from fedperf_client.profiling.trials.peak_memory import peak_bytes

Json = dict[str, object]

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""

_LONGEST_REASON = 500
_LOG_BYTES = 4096
_TICK_SECONDS = 0.1
_KILLED_IN_A_SHELL = 128 + signal.SIGKILL
CALLABLE_COMMAND = (
    sys.executable,
    "-P",
    "-m",
    "fedperf_client.profiling.campaign.trials.callable_process",
)


@dataclass(frozen=True, slots=True)
class ComponentEnd:
    """How a component ended: `reason` says why where it did not end well."""

    status: str = "ok"
    reason: str = ""
    usage: Json = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    moment: int = field(default_factory=time.perf_counter_ns)


class Runnable:
    """A component that is ready: calling `run` begins it and returns when it has ended."""

    def run(self) -> ComponentEnd:
        """Run it once."""
        raise NotImplementedError


class Command(Runnable):
    """A command, started by this process."""

    def __init__(self, message: Json, directory: Path, log: Path) -> None:
        self._arguments = strings(message["command"])
        self._environment = os.environ | dict(mapping(message.get("environment", {})))
        self._directory = directory
        self._log = log

    def run(self) -> ComponentEnd:
        """Start it and wait for it."""
        with self._log.open("ab") as log:
            try:
                process = subprocess.Popen(
                    self._arguments,
                    cwd=self._directory,
                    env={name: str(value) for name, value in self._environment.items()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except (OSError, ValueError) as error:
                return ComponentEnd("failed", f"it could not be started: {error}")
        code, usage = reap(process.pid)
        moment = time.perf_counter_ns()
        process.returncode = code
        return judged(code, last_words(self._log), usage, moment=moment)


class Function(Runnable):
    """A Python function, waiting in a process of its own."""

    def __init__(self, message: Json, directory: Path, log: Path) -> None:
        """Import its module; ValueError where that fails."""
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                CALLABLE_COMMAND,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._send(message | {"directory": str(directory)})

    def wait(self) -> None:
        """Until its module is imported; ValueError where that fails."""
        reply = self._receive()
        if "ready" not in reply:
            reason = str(reply.get("reason", "")) or last_words(self._log)
            raise ValueError(f"its function cannot be imported: {reason}")

    def run(self) -> ComponentEnd:
        """Call it."""
        self._send({})
        reply = self._receive()
        moment = time.perf_counter_ns()
        code, usage = reap(self._process.pid)
        self._process.returncode = code
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if not reply:
            return judged(code or 1, last_words(self._log), usage, moment=moment)
        status, reason = str(reply["status"]), str(reply["reason"])
        return ComponentEnd(status, reason, mapping(reply["usage"]), moment=moment)

    def _send(self, message: Json) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended, and its answer says so
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()

    def _receive(self) -> Json:
        """Its next line; nothing where it has ended, even if a child of it holds the pipe."""
        source = self._process.stdout
        if source is None:
            return {}
        while not select.select([source], [], [], _TICK_SECONDS)[0]:
            if has_ended(self._process.pid) and not select.select([source], [], [], 0)[0]:
                return {}
        line = source.readline()
        return mapping(json.loads(line)) if line.endswith(b"\n") else {}


class Request(Runnable):
    """A request to a function elsewhere."""

    def __init__(self, message: Json, directory: Path, seconds: float) -> None:
        """Import what sends it; ValueError where its body or its token is missing."""
        from fedperf_client.profiling.campaign.trials.http_call import HttpCall

        self._call = HttpCall.prepare(mapping(message["http"]), directory, seconds=seconds)

    def run(self) -> ComponentEnd:
        """Send it and wait for the answer."""
        answer = self._call.send()
        extra: Json = {
            "queue_seconds": answer.queue_seconds,
            "compute_seconds": answer.compute_seconds,
        }
        return ComponentEnd("failed" if answer.reason else "ok", answer.reason, {}, extra)


def serve() -> None:
    """Run the trial that the first line of standard input describes."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _settle()
    request = mapping(json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_campaign, daemon=True).start()
    start = time.perf_counter()
    components = [mapping(each) for each in _items(request["components"])]
    try:
        ready = _prepared(components, request)
    except (OSError, ValueError) as error:
        _reply(replies, {"status": "failed", "reason": str(error)[:_LONGEST_REASON], "spans": []})
        end_descendants()
        return
    _reply(replies, {"ready": True, "startup_seconds": time.perf_counter() - start})
    reply = run_components(ready, {str(c["name"]): strings(c["after"]) for c in components})
    left = end_descendants()
    _reply(
        replies, reply | {"left": left, "usage_is_seen": all("http" not in c for c in components)}
    )


def run_components(ready: dict[str, Runnable], after: dict[str, list[str]]) -> Json:
    """Begin every component as soon as what it comes after has ended well; how all ended."""
    order = TopologicalSorter(after)
    order.prepare()
    ended: queue.SimpleQueue[tuple[str, float, float, ComponentEnd]] = queue.SimpleQueue()
    spans: list[Json] = []
    zero = time.perf_counter_ns()

    def run(name: str) -> None:
        start = time.perf_counter_ns()
        try:
            outcome = ready[name].run()
        except Exception as error:  # without an end the trial would wait until its timeout
            outcome = ComponentEnd("failed", f"{type(error).__name__}: {error}")
        ended.put((name, (start - zero) / 1e9, (outcome.moment - zero) / 1e9, outcome))

    failure: Json = {}
    while order.is_active() and not failure:
        for name in order.get_ready():
            threading.Thread(target=run, args=(name,), daemon=True).start()
        name, start, end, outcome = ended.get()
        span = {"component": name, "start_seconds": start, "end_seconds": end}
        spans.append(span | outcome.usage | outcome.extra)
        if outcome.status == "ok":
            order.done(name)
        else:
            failure = {"status": outcome.status, "reason": f"{name}: {outcome.reason}"}
    wall = (time.perf_counter_ns() - zero) / 1e9 if failure else _wall(spans)
    return {"status": "ok", "reason": "", "wall_seconds": wall, "spans": spans} | failure


def reap(pid: int) -> tuple[int, Json]:
    """Wait for a child; its exit code, negative for a signal, and what it used.

    What it and the children that it waited for moved stands in /proc until it is reaped.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        moved = _moved(pid)
        _, status, used = os.wait4(pid, 0)
    except ChildProcessError:  # another component failed, and this one was ended and reaped
        return -signal.SIGKILL, {}
    # A child starts with the peak of whoever started it: less than that says nothing.
    usage: Json = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "peak_bytes": used.ru_maxrss * 1024,
        "peak_is_exact": used.ru_maxrss * 1024 > peak_bytes() > 0,
    }
    return os.waitstatus_to_exitcode(status), usage | moved


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def judged(code: int, words: str, usage: Json, *, moment: int) -> ComponentEnd:
    """How a command ended at `moment`, from its exit code."""
    if code == 0:
        return ComponentEnd(usage=usage, moment=moment)
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    status = "killed" if code in (-signal.SIGKILL, _KILLED_IN_A_SHELL) else "failed"
    return ComponentEnd(status, f"{how}. {words}".strip(), usage, moment=moment)


def last_words(log: Path) -> str:
    """The end of what a component printed."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LOG_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())[-_LONGEST_REASON:]


def end_descendants() -> Json:
    """Kill and reap everything that is left; what it had used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    moved: dict[str, int] = {}
    while True:
        for pid in descendants(os.getpid()):
            for name, count in _moved(pid).items():
                moved[name] = moved.get(name, 0) + count
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait4(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": cpu_seconds, **moved}


def descendants(pid: int) -> Iterator[int]:
    """All processes below `pid` now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name in parentheses may hold anything, a parenthesis too.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = list(parents.get(pid, ()))
    while waiting:
        found = waiting.pop()
        yield found
        waiting += parents.get(found, ())


def mapping(value: object) -> Json:
    """`value` where it is a JSON object."""
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {value!r}")
    return value


def strings(value: object) -> list[str]:
    """`value` where it is a JSON array, as texts."""
    return [str(each) for each in _items(value)]


def _prepared(components: Sequence[Json], request: Json) -> dict[str, Runnable]:
    directory, logs = Path(str(request["directory"])), Path(str(request["logs"]))
    seconds = float(str(request["timeout_seconds"]))
    makers: dict[str, Callable[[Json, Path], Runnable]] = {
        "command": lambda each, log: Command(each, directory, log),
        "callable": lambda each, log: Function(each, directory, log),
        "http": lambda each, _: Request(each, directory, seconds),
    }
    ready: dict[str, Runnable] = {}
    for each in components:
        make = next(maker for kind, maker in makers.items() if kind in each)
        with _named(str(each["name"])):
            ready[str(each["name"])] = make(each, logs / f"{each['name']}.log")
    for name, each_ready in ready.items():  # after all of them began to import
        if isinstance(each_ready, Function):
            with _named(name):
                each_ready.wait()
    return ready


@contextlib.contextmanager
def _named(component: str) -> Iterator[None]:
    """What goes wrong inside says which component it is about."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{component}: {error}") from error


def _settle() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    # When the machine runs out of memory, the kernel should choose the trial, not its parent.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _end_with_campaign() -> None:
    while os.read(0, 1 << 16):
        pass
    for _ in range(3):  # what is born meanwhile
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _moved(pid: int) -> dict[str, int]:
    names = {"rchar": "read_bytes", "wchar": "written_bytes"}
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {names[name]: int(count) for name, _, count in fields if name in names}


def _wall(spans: Sequence[Json]) -> float:
    starts = [float(str(each["start_seconds"])) for each in spans]
    return max(float(str(each["end_seconds"])) for each in spans) - min(starts)


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"not an array: {value!r}")
    return value


def _reply(replies: BinaryIO, content: Json) -> None:
    with contextlib.suppress(BrokenPipeError):  # the campaign is gone, and so is this process
        replies.write(json.dumps(content).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    serve()
