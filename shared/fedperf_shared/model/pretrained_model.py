"""The public start: the base model that ships with fedperf.

Trained by `fedperf-sim train-base` on plans that the project itself measured. It is version 1
of every federation's shared model, and what an organization predicts with before, or
without, joining. The environment variable `FEDPERF_BASE_MODEL` names another checkpoint
to begin with, for simulations and for whoever has a better one.
"""

import os
import sys
from functools import cache
from pathlib import Path

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint

PUBLIC_START_PATH = Path(__file__).with_name("public_start.safetensors")
PUBLIC_START_VERSION = 1
PUBLIC_START_VARIABLE = "FEDPERF_BASE_MODEL"
OLD_VARIABLE = "FEDPERF_PUBLIC_START"


def public_start_path() -> Path:
    """The path of the public start."""
    if path := os.environ.get(PUBLIC_START_VARIABLE):
        return Path(path)
    if path := os.environ.get(OLD_VARIABLE):
        _warn_of_old_variable()
    return Path(path or PUBLIC_START_PATH)


@cache
def _warn_of_old_variable() -> None:
    print(f"warning: {OLD_VARIABLE} is now {PUBLIC_START_VARIABLE}", file=sys.stderr)


def load_pretrained_model() -> Checkpoint:
    """The checkpoint to begin with; errors as `load_checkpoint`."""
    return load_checkpoint(public_start_path())
