"""Notes which functions of fedperf a program calls; `walks` puts it on PYTHONPATH."""

import atexit
import json
import os
import sys
import threading
from collections import Counter
from multiprocessing import util
from pathlib import Path
from types import CodeType, FrameType

_OUT = os.environ.get("WALKS_OUT")
_PACKAGES = tuple(os.environ.get("WALKS_PACKAGES", "").split(os.pathsep))
_calls: "Counter[CodeType]" = Counter()


_importing = threading.local()


def _note(frame: FrameType, event: str, argument: object) -> None:
    """Count calls, but for those that a module makes while it is imported."""
    del argument
    if event not in {"call", "return"}:
        return
    if frame.f_code.co_name == "<module>":
        is_imported = frame.f_globals.get("__name__") != "__main__"
        if is_imported and frame.f_code.co_filename.startswith(_PACKAGES):
            _importing.depth = getattr(_importing, "depth", 0) + (1 if event == "call" else -1)
    elif event == "call" and not getattr(_importing, "depth", 0):
        _calls[frame.f_code] += 1


def _write() -> None:
    sys.setprofile(None)
    found = [
        (code.co_filename, code.co_qualname, code.co_firstlineno, count)
        for code, count in _calls.copy().items()
        if code.co_filename.startswith(_PACKAGES)
    ]
    Path(f"{_OUT}/{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")


if _OUT:
    atexit.register(_write)
    util.Finalize(None, _write, exitpriority=0)
    os.register_at_fork(after_in_child=_calls.clear)
    threading.setprofile(_note)
    sys.setprofile(_note)
