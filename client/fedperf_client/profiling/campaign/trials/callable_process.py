"""The process of one Python function: imports its module, says so, waits, calls it once.

It imports little. The campaign's directory comes first on the path only when the function's module
is imported, so that no file there takes the place of a module that is needed here. A function that
has a parameter `trial_directory` is told the directory where the trial's other components leave
what it needs. What the function prints goes to standard error; what it returns is dropped.
"""

import contextlib
import inspect
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path

from fedperf_client.profiling.trials.peak_memory import peak_bytes, reset_peak

Json = dict[str, object]
_LONGEST_REASON = 500


def serve() -> None:
    """Answer the two lines of standard input: what to import, and to call it now."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(content: Json) -> None:
        replies.write(json.dumps(content) + "\n")
        replies.flush()

    message = json.loads(sys.stdin.buffer.readline())
    sys.path.insert(0, message["directory"])
    module, _, name = message["callable"].partition(":")
    try:
        function = reduce(getattr, name.split("."), import_module(module))
        if not callable(function):
            raise TypeError(f"{message['callable']} cannot be called")  # noqa: TRY301
        arguments = message["arguments"] | _directory(function, message["trial_directory"])
    except BaseException as error:
        reply(_failure(error))
        raise
    reply({"ready": True})
    if not sys.stdin.buffer.readline():
        return
    outcome: Json = {"status": "ok", "reason": ""}
    reset_peak()
    before = _usage()
    try:
        function(**arguments)
    except BaseException as error:  # also what tries to end this process: it is the outcome
        outcome = _failure(error)
    after = _usage()
    usage: Json = {name: after[name] - before[name] for name in before}
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    reply(outcome | {"usage": usage | _peak()})
    os._exit(0)  # what a function leaves behind is no part of its run, nor is ending Python


def _directory(function: Callable[..., object], directory: str) -> dict[str, str]:
    """The argument that tells a function where the trial's files are, if it wants to know."""
    try:
        wanted = "trial_directory" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C: nobody knows its parameters
        wanted = False
    return {"trial_directory": directory} if wanted else {}


def _failure(error: BaseException) -> Json:
    reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
    status = "oom" if isinstance(error, MemoryError) else "failed"
    return {"status": status, "reason": reason.encode(errors="replace").decode()}


def _usage() -> dict[str, float]:
    found: dict[str, float] = {"cpu_seconds": time.process_time(), "context_switches": 0}
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        found["context_switches"] += used.ru_nvcsw + used.ru_nivcsw
        if who == resource.RUSAGE_CHILDREN:
            found["cpu_seconds"] += used.ru_utime + used.ru_stime
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(":")
            if name in ("rchar", "wchar"):
                found["read_bytes" if name == "rchar" else "written_bytes"] = int(count)
    return found


def _peak() -> Json:
    if exact := peak_bytes():
        return {"peak_bytes": exact, "peak_is_exact": True}
    return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    serve()
