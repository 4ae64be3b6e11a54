"""A start that knows little, for simulations of what organizations learn together.

The public start that ships has seen everything that was measured, the workloads of the
organizations of `organizations` as well: with it there would be nothing left to learn. So
they begin with one that has seen the public part alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint
from fedperf_shared.model.pretrained import PRETRAINED_VARIABLE
from fedperf_simulations.data.datasets import MEASURED_DIRECTORY

LIMITED_START_PATH = MEASURED_DIRECTORY / "limited_start.safetensors"


def load_limited_start() -> Checkpoint:
    """Return the checkpoint; errors as `load_checkpoint`."""
    return load_checkpoint(LIMITED_START_PATH)


@contextmanager
def start_in_use(path: Path) -> Iterator[None]:
    """Whatever loads the public start in this process meanwhile gets that one."""
    before = os.environ.get(PRETRAINED_VARIABLE)
    os.environ[PRETRAINED_VARIABLE] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[PRETRAINED_VARIABLE]
        else:
            os.environ[PRETRAINED_VARIABLE] = before
