"""The public start: the base model that ships with fedperf.

Trained by `fedperf-sim start` on the public part of the measured set, and on nothing
else. It is version 1 of every federation's shared model, and what an organization
predicts with before, or without, joining.
"""

from pathlib import Path

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint

PUBLIC_START_PATH = Path(__file__).with_name("public_start.safetensors")
PUBLIC_START_VERSION = 1


def load_public_start() -> Checkpoint:
    """The shipped checkpoint; errors as `load_checkpoint`."""
    return load_checkpoint(PUBLIC_START_PATH)
