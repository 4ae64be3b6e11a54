"""What it costs a job to be a trial of a campaign: its wall time bare and profiled.

The job is a command that does a fixed amount of work, about as many seconds as asked for
on an idle core. Bare and profiled runs take turns, in an order that changes from pair to
pair, so that a machine that is disturbed for a while disturbs both alike.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from fedperf_client.profiling.campaign.components import Component
from fedperf_client.profiling.campaign.trial_runner import Limits, TrialRunner
from fedperf_shared.errors import FedperfError

_PROBE_ROUNDS = 2_000_000
_PATIENCE_FACTOR = 60.0
_LOOP = "n = 0\nwhile n < {rounds}: n += 1"


class TrialFailedError(FedperfError):
    """A trial of the overhead measurement did not end well."""


def overhead(seconds: float, trials: int) -> tuple[float, float]:
    """Median wall seconds of a busy loop of about `seconds`: bare, and through the runner.

    Args:
        seconds: of one run on an idle core.
        trials: runs of each kind, at least 1.

    Raises:
        TrialFailedError: a trial failed.
    """
    command = _busy_loop(seconds)
    bare, profiled = [], []
    with tempfile.TemporaryDirectory() as directory:
        runner = TrialRunner(Path(directory), Path(directory) / "trials", stop=threading.Event())
        limits = Limits(timeout_seconds=_PATIENCE_FACTOR * max(seconds, 1.0))
        for pair in range(trials):
            for turn in (pair, pair + 1):
                if turn % 2:
                    profiled.append(_profiled(runner, command, limits))
                else:
                    bare.append(_bare(command))
    return statistics.median(bare), statistics.median(profiled)


def _busy_loop(seconds: float) -> tuple[str, ...]:
    """A command that does the same work however busy the machine is."""
    probe = (sys.executable, "-S", "-c", _LOOP.format(rounds=_PROBE_ROUNDS))
    empty = (sys.executable, "-S", "-c", _LOOP.format(rounds=0))
    start = min(_cpu_seconds(empty) for _ in range(3))
    pace = (min(_cpu_seconds(probe) for _ in range(3)) - start) / _PROBE_ROUNDS
    rounds = max(1, int(max(seconds - start, 0.0) / pace))
    return (sys.executable, "-S", "-c", _LOOP.format(rounds=rounds))


def _cpu_seconds(command: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _bare(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _bare(command: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _profiled(runner: TrialRunner, command: tuple[str, ...], limits: Limits) -> float:
    component = Component(name="loop", command=command)
    outcome = runner.run((component,), {}, limits=limits, token="overhead")
    if outcome.wall_seconds is None or not outcome.status.is_data:
        raise TrialFailedError(f"a trial ended {outcome.status.value}: {outcome.reason}")
    return outcome.wall_seconds
