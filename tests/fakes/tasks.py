"""Tasks for a worker process that replace a slot's task. A child process can import them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import NoiseSource

BUSY_SECONDS = 0.5


def its_process() -> int:
    return os.getpid()


def failing() -> int:
    return 1 // 0


def busy() -> None:
    """Hold the interpreter, as encoding many workloads does."""
    until = time.process_time() + BUSY_SECONDS
    while time.process_time() < until:
        pass


@dataclass(frozen=True)
class Noisy:
    noise: NoiseSource

    def __call__(self) -> NDArray[np.int64]:
        return self.noise.discrete_gaussian(8, 2.0**40)


@dataclass(frozen=True)
class Hung:
    began: Path

    def __call__(self) -> None:
        self.began.touch()
        time.sleep(600)


@dataclass(frozen=True)
class Stubborn:
    """Ignores SIGTERM, like a process that gets no processor time under load."""

    began: Path

    def __call__(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.began.write_text(str(os.getpid()))
        time.sleep(600)


@dataclass(frozen=True)
class KilledOnce:
    """Is killed by SIGKILL on the first call only."""

    mark: Path

    def __call__(self) -> str:
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return "done"
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"


class Killed:
    """Replaces a `ReportTask` and is killed by SIGKILL."""

    def __init__(self, *of_what: object) -> None:
        del of_what

    def __call__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
