"""The process of one trial: it starts the components in their order and waits for them.

It leads a session of its own, and adopts every process that a component leaves behind. So all of
them are counted and none stays when the components have ended, when one of them failed, or when the
campaign is gone, which closes the channel that this process reads.

The clock runs from the start of the first component to the end of the last one. Before it, modules
of callables are imported and connections prepared. Commands are started here, callables wait in
processes of their own (`callable_process`), requests are sent by threads of this process. It
imports the standard library alone, to be small and ready soon.
"""

import contextlib
import ctypes
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

from fedperf_client.workers.child_side import (
    LONGEST_REASON,
    Json,
    channel_to_parent,
    descendants,
    die_before_parent,
    how_ended,
    last_words,
    moved_bytes,
    peak_bytes,
    requests_of_parent,
    start_child,
)

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_TICK_SECONDS = 0.1
_KILLED_IN_A_SHELL = 128 + signal.SIGKILL
CALLABLE_COMMAND = (
    sys.executable,
    "-P",
    "-m",
    "fedperf_campaigns.campaign.callable_process",
)


@dataclass(frozen=True, slots=True)
class ComponentEnd:
    """The end of a component. `reason` explains a failure."""

    status: str = "ok"
    reason: str = ""
    usage: Json = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    moment: int = field(default_factory=time.perf_counter_ns)


Run = Callable[[], ComponentEnd]


def run_command(message: Json, directory: Path, log: Path) -> ComponentEnd:
    """Start a command and wait for it."""
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                message["command"],
                cwd=directory,
                env=os.environ | message["environment"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except (OSError, ValueError) as error:
            return ComponentEnd("failed", f"it could not be started: {error}")
    code, usage = reap(process.pid)
    moment = time.perf_counter_ns()
    process.returncode = code
    return end_of_command(code, last_output(log), usage, moment=moment)


class Function:
    """A Python function, waiting in a process of its own."""

    def __init__(self, message: Json, directory: Path, log: Path) -> None:
        """Import its module; ValueError where that fails."""
        self._log = log
        with log.open("ab") as output:
            self._process, self._channel = start_child(CALLABLE_COMMAND, output, cwd=directory)
        self._send(message | {"directory": str(directory)})

    def wait(self) -> None:
        """Until its module is imported; ValueError where that fails."""
        reply = self._receive()
        if "ready" not in reply:
            reason = str(reply.get("reason", "")) or last_output(self._log)
            raise ValueError(f"its function cannot be imported: {reason}")

    def run(self) -> ComponentEnd:
        """Call it."""
        self._send({})
        reply = self._receive()
        moment = time.perf_counter_ns()
        code, usage = reap(self._process.pid)
        self._process.returncode = code
        self._channel.close()
        if not reply:
            return end_of_command(code or 1, last_output(self._log), usage, moment=moment)
        status, reason = str(reply["status"]), str(reply["reason"])
        return ComponentEnd(status, reason, reply["usage"], moment=moment)

    def _send(self, message: Json) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its reply reports that
            self._channel.send(json.dumps(message).encode())

    def _receive(self) -> Json:
        """Return its reply; empty where it has ended, even if its child holds the channel."""
        while not self._channel.poll(_TICK_SECONDS):
            options = os.WEXITED | os.WNOWAIT | os.WNOHANG  # it is not reaped
            ended = os.waitid(os.P_PID, self._process.pid, options) is not None
            if ended and not self._channel.poll():
                return {}
        try:
            return dict(json.loads(self._channel.receive()))
        except (EOFError, OSError):
            return {}


def prepare_request(message: Json, directory: Path, seconds: float) -> Run:
    """Make a request ready to leave; ValueError where its body or its token is missing."""
    from fedperf_campaigns.campaign.http_call import HttpCall

    call = HttpCall.prepare(message["http"], directory, seconds=seconds)

    def run() -> ComponentEnd:
        response = call.send()
        extra: Json = {
            "queue_seconds": response.queue_seconds,
            "compute_seconds": response.compute_seconds,
        }
        return ComponentEnd("failed" if response.reason else "ok", response.reason, {}, extra)

    return run


def serve() -> None:
    """Run the trial that the first message describes."""
    channel = channel_to_parent()

    def reply(content: Json) -> None:
        with contextlib.suppress(OSError):  # the campaign is gone, and so is this process
            channel.send(json.dumps(content).encode())

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    die_before_parent()
    request = json.loads(requests_of_parent(channel).get())
    start = time.perf_counter()
    components = request["components"]
    try:
        ready = _prepared(components, request)
    except (OSError, ValueError) as error:
        reply({"status": "failed", "reason": str(error)[:LONGEST_REASON], "spans": []})
        end_descendants()
        return
    reply({"ready": True, "startup_seconds": time.perf_counter() - start})
    outcome = run_components(ready, {c["name"]: c["after"] for c in components})
    left = end_descendants()
    reply(outcome | {"left": left, "usage_is_seen": all("http" not in c for c in components)})


def run_components(ready: dict[str, Run], after: dict[str, list[str]]) -> Json:
    """Begin every component as soon as what it comes after has ended well; how all ended."""
    order = TopologicalSorter(after)
    order.prepare()
    ended: queue.SimpleQueue[tuple[str, float, float, ComponentEnd]] = queue.SimpleQueue()
    spans: list[Json] = []
    zero = time.perf_counter_ns()

    def run(name: str) -> None:
        start = time.perf_counter_ns()
        try:
            outcome = ready[name]()
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
    if failure:
        wall = (time.perf_counter_ns() - zero) / 1e9
    else:
        starts = [span["start_seconds"] for span in spans]
        wall = max(span["end_seconds"] for span in spans) - min(starts)
    return {"status": "ok", "reason": "", "wall_seconds": wall, "spans": spans} | failure


def reap(pid: int) -> tuple[int, Json]:
    """Wait for a child; its exit code, negative for a signal, and what it used.

    The bytes moved by it and by the children that it waited for are in /proc until it is reaped.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        io_bytes = moved_bytes(pid)
        _, status, used = os.wait4(pid, 0)
    except ChildProcessError:  # another component failed, and this one was ended and reaped
        return -signal.SIGKILL, {}
    # A child starts with the peak of its parent: a lower peak is no information.
    usage: Json = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "peak_bytes": used.ru_maxrss * 1024,
        "peak_is_exact": used.ru_maxrss * 1024 > peak_bytes() > 0,
    }
    return os.waitstatus_to_exitcode(status), usage | io_bytes


def end_of_command(code: int, words: str, usage: Json, *, moment: int) -> ComponentEnd:
    """Return the end of a command at the time `moment`, from its exit code."""
    if code == 0:
        return ComponentEnd(usage=usage, moment=moment)
    status = "killed" if code in (-signal.SIGKILL, _KILLED_IN_A_SHELL) else "failed"
    return ComponentEnd(status, f"{how_ended(code)}. {words}".strip(), usage, moment=moment)


def last_output(log: Path) -> str:
    """Return the end of what a component printed."""
    try:
        with log.open("rb") as stream:
            return last_words(stream)
    except OSError:
        return ""


def end_descendants() -> Json:
    """Kill and reap everything that is left; what it had used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    io_bytes: dict[str, float] = {}
    while True:
        for pid in descendants(os.getpid()):
            for name, count in moved_bytes(pid).items():
                io_bytes[name] = io_bytes.get(name, 0) + count
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait4(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": cpu_seconds, **io_bytes}


def _prepared(components: Sequence[Json], request: Json) -> dict[str, Run]:
    """Return, per component, the function that runs it to its end."""
    directory, logs = Path(request["directory"]), Path(request["logs"])
    ready: dict[str, Run] = {}
    importing: dict[str, Function] = {}
    for each in components:
        name, log = each["name"], logs / f"{each['name']}.log"
        with _named(name):
            if "command" in each:
                ready[name] = partial(run_command, each, directory, log)
            elif "callable" in each:
                importing[name] = Function(each, directory, log)
                ready[name] = importing[name].run
            else:
                ready[name] = prepare_request(each, directory, request["timeout_seconds"])
    for name, function in importing.items():  # after all of them began to import
        with _named(name):
            function.wait()
    return ready


@contextlib.contextmanager
def _named(component: str) -> Iterator[None]:
    """Name the component in errors raised inside."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{component}: {error}") from error


if __name__ == "__main__":
    serve()
