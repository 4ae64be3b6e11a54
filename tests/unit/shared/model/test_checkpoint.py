"""Tests of checkpoints: exact round trips, clear refusals and no half-written files."""

import errno
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from fedperf_shared.errors import FedperfError
from fedperf_shared.model.architecture import ARCHITECTURE, ARRAY_SHAPES, InvalidModelStateError
from fedperf_shared.model.checkpoint import (
    MAX_CHECKPOINT_BYTES,
    Checkpoint,
    CheckpointStorageError,
    InvalidCheckpointError,
    NamedArrays,
    decode_checkpoint,
    encode_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION
from fedperf_simulations.model.ggfn import (
    GGFN,
    load_model,
    model_from_arrays,
    save_model,
    state_to_arrays,
)

ARRAYS = state_to_arrays(GGFN(seed=7))
ENCODED = encode_checkpoint(Checkpoint(ARRAYS, 4))
METADATA = {
    "architecture": ARCHITECTURE,
    "feature_schema_version": str(FEATURE_SCHEMA_VERSION),
    "model_version": "4",
}


def same(first: NamedArrays, second: NamedArrays) -> bool:
    return list(first) == list(second) and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def test_saved_model_loads_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = GGFN(seed=1)
    save_model(path, model, model_version=12)
    checkpoint = load_checkpoint(path)
    assert checkpoint.model_version == 12
    again = load_model(path)
    assert not again.training
    assert same(state_to_arrays(again), state_to_arrays(model))
    assert {name: a.tobytes() for name, a in checkpoint.arrays.items()} == {
        name: a.tobytes() for name, a in state_to_arrays(model).items()
    }


def test_checkpoint_encoding_is_deterministic_for_any_array_order() -> None:
    turned = dict(reversed(ARRAYS.items()))
    assert all(encode_checkpoint(Checkpoint(turned, 4)) == ENCODED for _ in range(10))
    assert same(decode_checkpoint(ENCODED).arrays, ARRAYS)


def test_checkpoint_with_oversized_header_is_refused() -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({str(number): entry for number in range(30_000)}).encode()
    data = struct.pack("<Q", len(header)) + header
    assert len(data) <= MAX_CHECKPOINT_BYTES
    with pytest.raises(InvalidCheckpointError, match="header has more than 65536 bytes"):
        decode_checkpoint(data)


def test_model_state_arrays_own_their_memory_and_are_writable() -> None:
    model = GGFN(seed=7)
    arrays = state_to_arrays(model)
    again = model_from_arrays(arrays)
    with torch.no_grad():
        model.get_parameter("dense.0.weight").zero_()
        again.get_parameter("dense.1.weight").zero_()
    assert same(arrays, ARRAYS)
    decoded = decode_checkpoint(ENCODED).arrays
    decoded["dense.0.weight"][0, 0] = 1  # writable


@pytest.mark.parametrize("length", [0, 4, 8, 100, len(ENCODED) // 2, len(ENCODED) - 1])
def test_checkpoint_truncated_is_refused(length: int) -> None:
    with pytest.raises(InvalidCheckpointError, match="cut short"):
        decode_checkpoint(ENCODED[:length])


def test_checkpoint_with_pickle_content_is_refused() -> None:
    with pytest.raises(InvalidCheckpointError, match="not safetensors"):
        decode_checkpoint(pickle.dumps(ARRAYS["dense.3.bias"]))


def test_checkpoint_file_above_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(MAX_CHECKPOINT_BYTES + 10_000_000)
    with pytest.raises(InvalidCheckpointError, match=f"at most {MAX_CHECKPOINT_BYTES}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architecture", "ggfn-1"),
        ("feature_schema_version", "1"),
        ("model_version", "-1"),
        ("model_version", "four"),
        ("model_version", ""),
        ("model_version", "9" * 30),
    ],
)
def test_checkpoint_with_wrong_or_missing_metadata_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidCheckpointError, match=key.replace("_", ".")):
        decode_checkpoint(save(ARRAYS, metadata={**METADATA, key: value}))
    without = {name: text for name, text in METADATA.items() if name != key}
    with pytest.raises(InvalidCheckpointError):
        decode_checkpoint(save(ARRAYS, metadata=without))
    with pytest.raises(InvalidCheckpointError):
        decode_checkpoint(save(ARRAYS))


def _with(name: str, change: Callable[[NamedArrays], object]) -> object:
    return pytest.param(change, id=name)


def _spoil(arrays: NamedArrays, value: float) -> None:
    arrays["dense.3.bias"] = np.array([value], dtype=np.float32)


@pytest.mark.parametrize(
    "change",
    [
        _with("missing", lambda arrays: arrays.pop("dense.3.bias")),
        _with("foreign", lambda arrays: arrays.update(extra=np.zeros(1, np.float32))),
        _with("shape", lambda arrays: arrays.update({"dense.3.bias": np.zeros(2, np.float32)})),
        _with("nan", lambda arrays: _spoil(arrays, np.nan)),
        _with("infinity", lambda arrays: _spoil(arrays, -np.inf)),
        _with(
            "float64",
            lambda arrays: arrays.update({"dense.3.bias": np.zeros(1)}),  # type: ignore[dict-item]
        ),
    ],
)
def test_checkpoint_with_wrong_names_shapes_types_or_values_is_refused(
    change: Callable[[NamedArrays], object],
) -> None:
    arrays = dict(ARRAYS)
    change(arrays)
    with pytest.raises(InvalidModelStateError):
        decode_checkpoint(save(arrays, metadata=METADATA))


@settings(max_examples=60, deadline=None)
@example(position=ENCODED.index(b'"model_version":"4"') + 17, value=ord("5"))
@given(position=st.integers(0, 4000), value=st.integers(0, 255))
def test_checkpoint_with_damaged_header_raises_only_fedperf_errors(
    position: int, value: int
) -> None:
    damaged = bytearray(ENCODED)
    damaged[position] = value
    try:
        found = decode_checkpoint(bytes(damaged))
    except FedperfError:
        return
    assert found.model_version in range(10)
    assert {name: array.shape for name, array in found.arrays.items()} == ARRAY_SHAPES
    assert all(np.isfinite(array).all() for array in found.arrays.values())


@given(st.binary(max_size=200))
def test_checkpoint_of_random_bytes_raises_named_error(data: bytes) -> None:
    header = json.dumps({"__metadata__": METADATA}).encode()
    for each in (data, struct.pack("<Q", len(header)) + header + data):
        with pytest.raises((InvalidCheckpointError, InvalidModelStateError)):
            decode_checkpoint(each)


def test_save_checkpoint_failing_on_full_disk_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, Checkpoint(ARRAYS, 4))

    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointStorageError, match="No space left"):
        save_checkpoint(path, Checkpoint(ARRAYS, 5))
    assert list(tmp_path.iterdir()) == [path]
    assert load_checkpoint(path).model_version == 4


def test_checkpoint_with_missing_file_or_folder_raises_storage_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointStorageError, match="nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointStorageError, match="No such file"):
        save_checkpoint(tmp_path / "no" / "model", Checkpoint(ARRAYS, 4))


def test_checkpoint_and_feature_modules_import_without_torch() -> None:
    code = (
        "import sys, fedperf_shared.model.checkpoint, fedperf_shared.model.metrics,"
        "fedperf_shared.workflow.features; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'torch_geometric', 'flwr')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
