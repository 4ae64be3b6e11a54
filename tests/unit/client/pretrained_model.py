"""A pretrained model for tests: a seeded, untrained GGFN."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_shared.model import pretrained
from fedperf_shared.model.checkpoint import Checkpoint, encode_checkpoint
from fedperf_simulations.model.ggfn import GGFN, state_to_arrays


@cache
def _arrays(seed: int) -> Mapping[str, NDArray[np.float32]]:
    return state_to_arrays(GGFN(seed=seed))


def seeded_checkpoint(seed: int = 7, version: int = 1) -> Checkpoint:
    return Checkpoint({name: array.copy() for name, array in _arrays(seed).items()}, version)


def garbage_checkpoint(version: int) -> Checkpoint:
    """Return a useless model: ten times the seeded weights, and a wrong level."""
    arrays = {
        name: np.asarray(array * (10 if "weight" in name else 1), np.float32)
        for name, array in seeded_checkpoint(99).arrays.items()
    }
    return Checkpoint(arrays, version)


def install_start(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let fedperf load the seeded model instead of the pretrained model that ships with it."""
    path = directory / "public_start.safetensors"
    path.write_bytes(encode_checkpoint(seeded_checkpoint()))
    monkeypatch.setattr(pretrained, "PRETRAINED_PATH", path)
    return path
