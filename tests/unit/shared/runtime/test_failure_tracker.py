"""Tests of the failure tracker: it logs the start, ever rarer reminders and the end."""

from collections.abc import Iterable, Mapping

import pytest
from structlog.testing import capture_logs

from fedperf_shared.runtime.failure_tracker import LONGEST_BACKOFF_SECONDS, FailureTracker


class Timer:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def lines(logs: Iterable[Mapping[str, object]]) -> list[str]:
    return [f"{each['what']} {each['event']}" for each in logs]


def test_failure_tracker_rate_limits_repeated_failures_and_logs_recovery_once() -> None:
    timer = Timer()
    failures = FailureTracker(timer=timer)
    with capture_logs() as logs:
        for _ in range(14_400):
            failures.failed("fetching", OSError("refused"))
            timer.seconds += 6
        failures.worked("fetching")
        failures.worked("fetching")
    assert lines(logs) == [*["fetching failing"] * 10, "fetching works again"]
    assert (logs[0]["reason"], logs[0]["exc_info"]) == ("refused", None)


def test_failure_tracker_logs_unexpected_error_with_traceback() -> None:
    error = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        FailureTracker(timer=Timer()).failed("looking", error)
    assert logs[0]["exc_info"] is error


def test_failure_tracker_backoff_doubles_and_resets_after_success() -> None:
    timer = Timer()
    failures = FailureTracker(timer=timer)
    tried = 0
    for _ in range(3600):
        if not failures.in_backoff("fetching"):
            tried += 1
            failures.failed("fetching", OSError("refused"))
        timer.seconds += 1
    assert tried == pytest.approx(6 + 3600 / LONGEST_BACKOFF_SECONDS, abs=2)
    failures.worked("fetching")
    assert not failures.in_backoff("fetching")
    assert not failures.in_backoff("anything else")
