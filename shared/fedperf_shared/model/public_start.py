"""The public start: the base model that ships with fedperf.

Trained by `fedperf-sim start` on plans that the project itself measured. It is version 1
of every federation's shared model, and what an organization predicts with before, or
without, joining. The environment variable `FEDPERF_PUBLIC_START` names another checkpoint
to begin with, for simulations and for whoever has a better one.
"""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint
from fedperf_shared.workflow.vocabulary import Platform

PUBLIC_START_PATH = Path(__file__).with_name("public_start.safetensors")
PUBLIC_START_VERSION = 1
PUBLIC_START_VARIABLE = "FEDPERF_PUBLIC_START"

HALF_WIDTHS: Mapping[Platform, float] = MappingProxyType(dict.fromkeys(Platform, math.log(16.0)))
"""What is claimed of the start that ships, by platform: half widths of 90 % intervals, log seconds,
about jobs of shapes that it was not trained on. Whoever trains it measures them by leaving
shapes out; until then a factor of 16 each way, as wide as its answers have been told."""


def public_start_path() -> Path:
    """Where the public start is read from."""
    return Path(os.environ.get(PUBLIC_START_VARIABLE) or PUBLIC_START_PATH)


def load_public_start() -> Checkpoint:
    """The checkpoint to begin with; errors as `load_checkpoint`."""
    return load_checkpoint(public_start_path())


def half_width_on(platforms: Iterable[Platform]) -> float:
    """What is claimed of the start for plans on those platforms: the most for any of them."""
    return max(HALF_WIDTHS[each] for each in platforms)
