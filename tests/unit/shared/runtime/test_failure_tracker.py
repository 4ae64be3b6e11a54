"""A trouble is said when it begins, after growing silences, and when it is over."""

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


def test_a_day_of_failures_every_six_seconds_is_a_few_lines_and_one_at_the_end() -> None:
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


def test_an_error_that_nobody_foresaw_comes_with_its_traceback() -> None:
    error = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        FailureTracker(timer=Timer()).failed("looking", error)
    assert logs[0]["exc_info"] is error


def test_what_fails_rests_twice_as_long_each_time_and_what_works_not_at_all() -> None:
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
