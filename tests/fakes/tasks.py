"""What a computing process is given to do instead of a slot's task; a child can import it."""

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
    """Holds its interpreter, as featurizing many workloads does."""
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
    """Does not end when it is told to, as under a load that lets it wait for a processor."""

    began: Path

    def __call__(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.began.write_text(str(os.getpid()))
        time.sleep(600)


@dataclass(frozen=True)
class KilledOnce:
    """By the kernel, the first time it is asked."""

    mark: Path

    def __call__(self) -> str:
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return "done"
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"


class Killed:
    """By the kernel, in the place of a `ReportTask`."""

    def __init__(self, *of_what: object) -> None:
        del of_what

    def __call__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
