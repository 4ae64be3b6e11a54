"""What goes wrong again and again, said once when it begins, rarely in between, once at its end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

FIRST_PAUSE_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 6 * 3600.0


class Say(Protocol):
    """Where to say it: a line that something fails, and one that it works again."""

    def failing(self, what: str, reason: str) -> None:
        """Something does not work."""

    def over(self, what: str) -> None:
        """It works again."""


@dataclass
class _Trouble:
    sources: set[str]
    pause: float
    again_at: float


class Troubles:
    """Keeps a log readable while something is down; may be used from several threads."""

    def __init__(self, say: Say, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._timer = timer
        self._lock = threading.Lock()
        self._open: dict[str, _Trouble] = {}

    def failed(self, what: str, reason: str, *, source: str = "") -> None:
        """`source` met the trouble `what`: said the first time, and again after growing pauses."""
        now = self._timer()
        with self._lock:
            trouble = self._open.get(what)
            if trouble is None:
                trouble = self._open[what] = _Trouble(set(), FIRST_PAUSE_SECONDS, now)
            trouble.sources.add(source)
            if now < trouble.again_at:
                return
            trouble.again_at = now + trouble.pause
            trouble.pause = min(2 * trouble.pause, LONGEST_PAUSE_SECONDS)
        self._say.failing(what, reason)

    def worked(self, what: str, *, source: str = "") -> None:
        """`source` got through; said when no source has the trouble any more."""
        with self._lock:
            trouble = self._open.get(what)
            if trouble is None or source not in trouble.sources:
                return
            trouble.sources.remove(source)
            if trouble.sources:
                return
            del self._open[what]
        self._say.over(what)
