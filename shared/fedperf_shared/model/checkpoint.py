"""Checkpoints of the shared model: safetensors, never pickle.

Writing is atomic: a reader sees the old file or the new one. Reading checks everything first:
format, architecture, feature schema, names, shapes, dtypes and finite values. Every problem of a
checkpoint raises one clear error.
"""

import json
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.model.architecture import (
    ARCHITECTURE,
    ARRAY_SHAPES,
    PARAMETERS,
    InvalidModelStateError,
    check_arrays,
)
from fedperf_shared.workflow.features import FEATURE_SCHEMA_VERSION

# Bound on names, shapes and versions. Small parts take thirty times as much memory when parsed.
MAX_HEADER_BYTES = 65_536

# Bound on weights and header. A longer file is refused unread.
MAX_CHECKPOINT_BYTES = 4 * PARAMETERS + MAX_HEADER_BYTES

NamedArrays = dict[str, NDArray[np.float32]]
_HEADER_LENGTH = struct.Struct("<Q")


class InvalidCheckpointError(InvalidInputError):
    """Raised for a file or message that is not a checkpoint of this version."""


class CheckpointStorageError(StorageError):
    """Raised if a checkpoint file cannot be read or written."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A valid state of the shared model: float32 `arrays` and their version."""

    arrays: NamedArrays
    model_version: int

    def __post_init__(self) -> None:
        if self.model_version < 0:
            raise InvalidCheckpointError(f"model version {self.model_version} is negative")
        check_arrays(self.arrays)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint as bytes of a safetensors file. They are equal for equal states."""
    metadata = {
        "architecture": ARCHITECTURE,
        "feature_schema_version": str(FEATURE_SCHEMA_VERSION),
        "model_version": str(checkpoint.model_version),
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
    data = save(arrays, metadata=metadata)
    header = _header(data)
    # safetensors writes metadata in any order
    text = json.dumps(json.loads(header), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _HEADER_LENGTH.pack(len(text)) + text + data[_HEADER_LENGTH.size + len(header) :]


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Check and read a safetensors file's bytes.

    Raises:
        InvalidCheckpointError: not safetensors, cut short, too long, or made by a
            other architecture or feature schema.
        InvalidModelStateError: a wrong name, shape, dtype or value.
    """
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise InvalidCheckpointError(
            f"checkpoint of {len(data)} bytes, at most {MAX_CHECKPOINT_BYTES} are possible"
        )
    if int.from_bytes(data[: _HEADER_LENGTH.size], "little") > MAX_HEADER_BYTES:
        raise InvalidCheckpointError(
            "checkpoint is cut short or not safetensors, "
            f"or its header has more than {MAX_HEADER_BYTES} bytes"
        )
    try:
        entries = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise InvalidCheckpointError("checkpoint is cut short or not safetensors") from error
    model_version = _version_in(data)
    arrays: NamedArrays = {}
    for name, entry in entries:
        if entry["dtype"] != "F32":
            raise InvalidModelStateError("an array of the checkpoint is not float32")
        flat = np.frombuffer(bytes(entry["data"]), dtype="<f4")
        arrays[name] = flat.reshape(entry["shape"]).astype(np.float32)
    in_order = {name: arrays[name] for name in ARRAY_SHAPES if name in arrays}
    return Checkpoint(in_order | arrays, model_version)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint durably. On failure the old file stays.

    Raises:
        CheckpointStorageError: the file cannot be written.
    """
    data = encode_checkpoint(checkpoint)
    try:
        _replace_file(path, data)
    except OSError as error:
        raise CheckpointStorageError(f"cannot write checkpoint {path}: {error.strerror}") from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint file.

    Raises:
        CheckpointStorageError: the file cannot be read.
        InvalidCheckpointError: see `decode_checkpoint`.
        InvalidModelStateError: see `decode_checkpoint`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CHECKPOINT_BYTES + 1)
    except OSError as error:
        raise CheckpointStorageError(f"cannot read checkpoint {path}: {error.strerror}") from error
    return decode_checkpoint(data)


def _header(data: bytes) -> bytes:
    (length,) = _HEADER_LENGTH.unpack_from(data)
    return data[_HEADER_LENGTH.size :][:length]


def _version_in(data: bytes) -> int:
    """Return the model version of a header that safetensors checked."""
    metadata = json.loads(_header(data)).get("__metadata__") or {}
    for key, expected in (
        ("architecture", ARCHITECTURE),
        ("feature_schema_version", str(FEATURE_SCHEMA_VERSION)),
    ):
        if metadata.get(key) != expected:
            raise InvalidCheckpointError(
                f"checkpoint has another {key} than this version's {expected}; "
                "fetch a model made for this version"
            )
    version = metadata.get("model_version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 19):  # noqa: PLR2004
        raise InvalidCheckpointError("checkpoint carries no model version")
    return int(version)


def _replace_file(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
