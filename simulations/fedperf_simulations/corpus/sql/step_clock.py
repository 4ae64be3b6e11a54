"""Takes the steps of a session and records of each when it ran, beside what, and how it ended."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from fedperf_client.workers.machine import InterferenceMonitor
from fedperf_simulations.corpus.sql.sessions import (
    LONGEST_SECONDS,
    SqlSession,
    SqlStep,
    StepRecord,
)


def records_of(
    session: SqlSession,
    take: Callable[[int, SqlStep, int], None],
    call_off: Callable[[], None],
    *,
    is_alive: Callable[[], bool] = lambda: True,
    longest_seconds: float = LONGEST_SECONDS,
) -> Iterator[StepRecord]:
    """Take every step, run by run, while the engine lives; a step that fails ends alone.

    Args:
        session: whose steps.
        take: carries out the run of a step: its position, the step, the number of the run.
        call_off: ends what runs in another thread.
        is_alive: whether the engine can take another step.
        longest_seconds: after which a run is called off.
    """
    watch = InterferenceMonitor(_own_seconds)
    for position, step in enumerate(session.steps):
        watch.begin()
        began, done, error = time.time(), 0, ""
        try:
            for run in range(step.runs):
                with _time_limit(longest_seconds, call_off):
                    take(position, step, run)
                done += 1
        except Exception as failure:  # whatever an engine raises
            error = type(failure).__name__
        ended = time.time()
        busy = watch.busy_cores_since_begin()
        yield StepRecord(began, ended, busy, done, error)
        if not is_alive():
            return


@contextmanager
def _time_limit(seconds: float, call_off: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, call_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _own_seconds() -> float:
    """CPU time of this process and of all below it."""
    root = psutil.Process(os.getpid())
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended: its parent counts it
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
