"""The process of one Python function: it imports the module, waits, and calls the function once.

It imports little. The campaign's directory comes first on the path only when the function's module
is imported, so that no file there replaces a module that is needed here. A function with a
parameter `trial_directory` receives the directory in which the trial's other components leave
files. Its prints go to standard error, and its result is dropped.
"""

import contextlib
import inspect
import json
import os
import resource
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module

from fedperf_client.workers.child_side import channel_to_parent, failure, measured, used_besides


def serve() -> None:
    """Answer two messages: what to import, and to call it now."""
    channel = channel_to_parent()

    def reply(content: dict[str, object]) -> None:
        channel.send(json.dumps(content).encode())

    message = json.loads(channel.receive())
    sys.path.insert(0, message["directory"])
    module, _, name = message["callable"].partition(":")
    try:
        function = reduce(getattr, name.split("."), import_module(module))
        if not callable(function):
            raise TypeError(f"{message['callable']} cannot be called")  # noqa: TRY301
        arguments = message["arguments"] | _directory(function, message["trial_directory"])
    except BaseException as error:
        reply(failure(error))
        raise
    reply({"ready": True})
    try:
        channel.receive()
    except EOFError:
        return
    _, outcome, used = measured(lambda: function(**arguments), used_besides)
    exact = outcome["peak_bytes"]
    peak = exact or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    reply(outcome | {"usage": used | {"peak_bytes": peak, "peak_is_exact": bool(exact)}})
    os._exit(0)  # what a function leaves behind is no part of its run, nor is ending Python


def _directory(function: Callable[..., object], directory: str) -> dict[str, str]:
    """Return the argument `trial_directory` where the function has such a parameter."""
    try:
        takes_directory = "trial_directory" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C: its parameters are unknown
        takes_directory = False
    return {"trial_directory": directory} if takes_directory else {}


if __name__ == "__main__":
    serve()
