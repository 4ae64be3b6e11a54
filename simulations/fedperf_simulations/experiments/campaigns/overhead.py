"""The overhead of a job that is a trial of a campaign, in two parts: seconds added, and slowdown.

Each part is far smaller than the difference between one run and the next on a shared machine. So
bare and profiled runs of a whole job tell nothing. Therefore:

- `added_seconds`: wall seconds that starting, watching and noticing the end add to a job that only
  waits, bare and as a trial in turns. A waiting job takes the same time on a slow machine.
- `slowdown`: the share by which a computing job gets slower while it is watched. One job counts
  what it gets done; in every other window its process tree is sampled as that of a trial. Windows
  change so quickly that the machine's own changes of speed hit both kinds alike.
"""

import math
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedperf_campaigns.campaign.definition import Component, RunSettings
from fedperf_campaigns.campaign.trial_runner import TICK_SECONDS, TrialRunner
from fedperf_client.workers.child_process import ProcessTree
from fedperf_shared.errors import FedperfError

WINDOW_SECONDS = 2 * TICK_SECONDS

_MAD_TO_DEVIATION = 1.4826
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, of normal values."""

_WAIT = "import time; time.sleep({seconds})"
_COUNT = """
import sys, time
from array import array
moments = array("d")
end = time.monotonic() + {seconds}
while not moments or moments[-1] < end:
    n = 0
    while n < 10000: n += 1
    moments.append(time.monotonic())
moments.tofile(sys.stdout.buffer)
"""


class TrialFailedError(FedperfError):
    """A trial of the overhead measurement did not end well."""


def added_seconds(seconds: float, trials: int) -> float:
    """Median wall seconds that a trial adds to a job that waits for `seconds`.

    Args:
        seconds: to wait for.
        trials: pairs of a bare run and a trial, at least 1.

    Raises:
        TrialFailedError: a trial failed.
    """
    command = (sys.executable, "-S", "-c", _WAIT.format(seconds=seconds))
    added = []
    with tempfile.TemporaryDirectory() as directory:
        runner = TrialRunner(Path(directory), Path(directory) / "trials", stop=threading.Event())
        for pair in range(trials):
            if pair % 2:
                bare, profiled = _bare(command), _profiled(runner, command)
            else:
                profiled, bare = _profiled(runner, command), _bare(command)
            added.append(profiled - bare)
    return statistics.median(added)


def slowdown(seconds: float) -> tuple[float, float]:
    """The share by which a computing job is slower while it is watched, and its standard error.

    Args:
        seconds: of the job, at least 4 windows.
    """
    command = (sys.executable, "-S", "-c", _COUNT.format(seconds=seconds))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        windows: list[tuple[float, float]] = []
        tree = ProcessTree(process.pid)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            while time.monotonic() < start + WINDOW_SECONDS:
                if len(windows) % 2:
                    tree.sample()
                time.sleep(TICK_SECONDS)
            windows.append((start, time.monotonic()))
        printed, _ = process.communicate()
    moments = np.array(array("d", printed))
    speeds = [_speed(moments, *window) for window in windows[1:]]  # the first has its start in it
    # Windows 1, 3, 5, ... are watched: of two neighbours, by what share is that one slower? Where
    # the machine let the job do nothing at all, nobody can tell.
    slower = np.array(
        [
            other / one - 1 if number % 2 == 0 else one / other - 1
            for number, (one, other) in enumerate(pairwise(speeds))
            if min(one, other) > 0
        ]
    )
    middle = float(np.median(slower))
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(slower - middle)))
    return middle, _MEDIAN_ERROR * spread / math.sqrt(len(slower))


def _speed(
    moments: "np.ndarray[tuple[int], np.dtype[np.float64]]", start: float, end: float
) -> float:
    return float(np.searchsorted(moments, end) - np.searchsorted(moments, start)) / (end - start)


def _bare(command: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _profiled(runner: TrialRunner, command: tuple[str, ...]) -> float:
    component = Component(name="job", command=command)
    limits = RunSettings(timeout_seconds=600)
    outcome = runner.run((component,), {}, limits=limits, token=secrets.token_hex())
    if outcome.wall_seconds is None or not outcome.status.is_data:
        raise TrialFailedError(f"a trial ended {outcome.status.value}: {outcome.reason}")
    return outcome.wall_seconds
