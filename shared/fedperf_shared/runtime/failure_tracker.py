"""Log lines of repeated failures: when one begins, rarely in between, and when it is over.

A program has one `FailureTracker` for all its loops, so that a log stays readable while the
coordinator or a database is away for a week. It also tells a loop how long to rest.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from fedperf_shared.errors import FedperfError

FIRST_SILENCE_SECONDS = 300.0
LONGEST_SILENCE_SECONDS = 6 * 3600.0
"""Between two lines about one trouble; each silence is twice the one before."""

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0
"""Before something that failed is tried again; likewise."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Trouble:
    silence: float = FIRST_SILENCE_SECONDS
    rest: float = FIRST_REST_SECONDS
    say_at: float = -float("inf")
    try_at: float = -float("inf")


class FailureTracker:
    """The troubles that a program has now, by name; may be used from several threads."""

    def __init__(self, *, timer: Callable[[], float] = time.monotonic) -> None:
        """No troubles yet; `timer` gives seconds that never go back."""
        self._timer = timer
        self._lock = threading.Lock()
        self._open: dict[str, _Trouble] = {}

    def failed(self, what: str, error: Exception | str) -> None:
        """Note that `what` failed.

        The line gives the error's text, and its traceback where nobody foresaw it.
        """
        now = self._timer()
        with self._lock:
            trouble = self._open.setdefault(what, _Trouble())
            trouble.try_at = now + trouble.rest
            trouble.rest = min(2 * trouble.rest, LONGEST_REST_SECONDS)
            if now < trouble.say_at:
                return
            trouble.say_at = now + trouble.silence
            trouble.silence = min(2 * trouble.silence, LONGEST_SILENCE_SECONDS)
        foreseen = isinstance(error, str | FedperfError | OSError)
        log.warning("failing", what=what, reason=str(error), exc_info=None if foreseen else error)

    def worked(self, what: str) -> None:
        """Note that `what` worked: its trouble, if there was one, is over."""
        with self._lock:
            if self._open.pop(what, None) is None:
                return
        log.info("works again", what=what)

    def rests(self, what: str) -> bool:
        """Whether it is too early to try `what` again."""
        with self._lock:
            trouble = self._open.get(what)
            return trouble is not None and self._timer() < trouble.try_at
