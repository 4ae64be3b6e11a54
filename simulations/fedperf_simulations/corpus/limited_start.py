"""The limited pretrained model, for simulations of federated learning.

The public pretrained model that ships was trained on all measurements, including the workloads of
the organizations of `organizations`. With it there would be nothing left to learn. So they begin
with a model trained on the public part alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint
from fedperf_shared.model.pretrained import PRETRAINED_VARIABLE
from fedperf_simulations.data.datasets import MEASURED_DIRECTORY

LIMITED_MODEL_PATH = MEASURED_DIRECTORY / "limited_start.safetensors"


def load_limited_model() -> Checkpoint:
    """Return the checkpoint. Raises the errors of `load_checkpoint`."""
    return load_checkpoint(LIMITED_MODEL_PATH)


@contextmanager
def limited_model_in_use(path: Path) -> Iterator[None]:
    """Use the limited model wherever this process loads the public pretrained model."""
    before = os.environ.get(PRETRAINED_VARIABLE)
    os.environ[PRETRAINED_VARIABLE] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[PRETRAINED_VARIABLE]
        else:
            os.environ[PRETRAINED_VARIABLE] = before
