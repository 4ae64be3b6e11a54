"""The public start: the base model that ships with fedperf.

Trained by `fedperf-sim start` on plans that the project itself measured. It is version 1
of every federation's shared model, and what an organization predicts with before, or
without, joining. The environment variable `FEDPERF_PUBLIC_START` names another checkpoint
to begin with, for simulations and for whoever has a better one.
"""

import os
from pathlib import Path

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint

PUBLIC_START_PATH = Path(__file__).with_name("public_start.safetensors")
PUBLIC_START_VERSION = 1
PUBLIC_START_VARIABLE = "FEDPERF_PUBLIC_START"


def public_start_path() -> Path:
    """The path of the public start."""
    return Path(os.environ.get(PUBLIC_START_VARIABLE) or PUBLIC_START_PATH)


def load_pretrained_model() -> Checkpoint:
    """The checkpoint to begin with; errors as `load_checkpoint`."""
    return load_checkpoint(public_start_path())
