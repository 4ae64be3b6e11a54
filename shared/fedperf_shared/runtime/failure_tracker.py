"""Log repeated failures once at the start, rarely in between, and once when they are over.

A program has one `FailureTracker` for all its loops, so that a log stays readable while the
coordinator or a database is away for a week. The tracker also sets the backoff of each loop.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from fedperf_shared.errors import FedperfError

FIRST_SILENCE_SECONDS = 300.0
# Silence between two lines about one failure. Each silence is twice the one before.
LONGEST_SILENCE_SECONDS = 6 * 3600.0

FIRST_BACKOFF_SECONDS = 1.0
# Backoff before the next attempt. Each backoff is twice the one before.
LONGEST_BACKOFF_SECONDS = 30.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Failure:
    silence: float = FIRST_SILENCE_SECONDS
    backoff: float = FIRST_BACKOFF_SECONDS
    log_at: float = -float("inf")
    retry_at: float = -float("inf")


class FailureTracker:
    """The current failures of a program, by name. Several threads may use it."""

    def __init__(self, *, timer: Callable[[], float] = time.monotonic) -> None:
        """Start without failures. `timer` returns seconds that never decrease."""
        self._timer = timer
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}

    def failed(self, what: str, error: Exception | str) -> None:
        """Record that `what` failed, with the text of the error.

        An unexpected exception is logged with its traceback.
        """
        now = self._timer()
        with self._lock:
            failure = self._failures.setdefault(what, _Failure())
            failure.retry_at = now + failure.backoff
            failure.backoff = min(2 * failure.backoff, LONGEST_BACKOFF_SECONDS)
            if now < failure.log_at:
                return
            failure.log_at = now + failure.silence
            failure.silence = min(2 * failure.silence, LONGEST_SILENCE_SECONDS)
        is_expected = isinstance(error, str | FedperfError | OSError)
        log.warning(
            "failing", what=what, reason=str(error), exc_info=None if is_expected else error
        )

    def worked(self, what: str) -> None:
        """Record that `what` worked. Its failure, if there was one, is over."""
        with self._lock:
            if self._failures.pop(what, None) is None:
                return
        log.info("works again", what=what)

    def in_backoff(self, what: str) -> bool:
        """Return whether it is too early to try `what` again."""
        with self._lock:
            failure = self._failures.get(what)
            return failure is not None and self._timer() < failure.retry_at
