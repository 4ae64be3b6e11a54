"""Stored executions as the columns that learning reads, encoded when they are ingested, and kept.

Columns of another `ENCODER_VERSION`, or of another public start, are made anew.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_client.drift.streams import Stream, streams_of
from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.execution_table import (
    ENCODER_VERSION,
    ExecutionTable,
    encode_executions,
)
from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import PredictLog
from fedperf_client.prediction.query_encoding import History
from fedperf_shared.execution import Execution
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.pretrained_model import public_start_path


def home_encoder() -> Encoder:
    """The encoder of executions into columns at home, by the public start; can be pickled."""
    path = public_start_path()
    found = path.stat()
    return _encoder(path, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=4)
def _encoder(path: Path, modified_ns: int, inode: int) -> Encoder:
    """Read once for each start: one process may meet several, as simulations and tests do."""
    del modified_ns, inode
    found = hashlib.sha256(path.read_bytes())
    found.update(f"encoder {ENCODER_VERSION}".encode())
    digest = found.digest()
    return Encoder(digest, partial(_encoded, path, digest))


def load_encoded_executions(store: ExecutionStore, *, keep: bool = True) -> ExecutionTable:
    """The columns of all stored executions that were measured, in the order of their finish.

    Args:
        store: own executions.
        keep: store what has to be encoded for it.

    Raises:
        StorageError: the store cannot be read, or what was missing not be written.
    """
    found = ExecutionTable.from_columns(store.columns(home_encoder(), keep=keep))
    order = store.in_order()
    place = np.searchsorted(found.number, order)
    place[place == len(found)] = 0
    known = found.number[place] == order if len(found) else np.zeros(len(order), bool)
    return found.take(place[known])


def load_drift_streams(store: ExecutionStore, *, keep: bool = True) -> tuple[Stream, ...]:
    """The streams of all that ended well and teach something, by the public start.

    What has to be encoded is kept unless unwanted.

    Raises:
        StorageError: store or start cannot be read.
    """
    columns = load_encoded_executions(store, keep=keep)
    return streams_of(columns.take(columns.is_ok & columns.teaches).drift_observations())


def history_at_home(store: ExecutionStore, columns: ExecutionTable) -> History:
    """The executions of these columns as questions; errors as `load_encoded_executions`."""
    return History.from_executions(store.numbered(columns.number.tolist()))


def _encoded(path: Path, digest: bytes, executions: Sequence[Execution]) -> dict[str, NDArray[Any]]:
    return encode_executions(executions, _start(path, digest))


@lru_cache(maxsize=4)
def _start(path: Path, digest: bytes) -> PredictLog:
    del digest  # of another file another start
    return predictor(load_checkpoint(path))
