"""What the coordinator's loops do while the database fails: try again, and say so once."""

import threading
from collections.abc import Callable

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from fedperf_server.database import DatabaseError

DATABASE = "the database"
_LONGEST_PAUSE_SECONDS = 10.0

Retry = Callable[[threading.Event, Callable[[RetryCallState], None]], Retrying]
"""How to try again until the event is set; the callable hears of every failure."""

log = structlog.get_logger()


def with_back_off(stop: threading.Event, heard: Callable[[RetryCallState], None]) -> Retrying:
    """Until `stop`, after growing pauses of at most ten seconds."""
    return Retrying(
        retry=retry_if_exception_type(DatabaseError),
        wait=wait_random_exponential(multiplier=0.5, max=_LONGEST_PAUSE_SECONDS),
        sleep=sleep_using_event(stop),
        stop=stop_when_event_set(stop),
        before_sleep=heard,
    )


class LogTroubles:
    """Says troubles in the log."""

    def failing(self, what: str, reason: str) -> None:
        """As `Say`."""
        log.warning("failing", what=what, reason=reason)

    def over(self, what: str) -> None:
        """As `Say`."""
        log.info("works again", what=what)
