"""Stored executions as the columns that learning reads, encoded when they are taken in, and kept.

Columns of other code, or of another public start, are made anew.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedperf_shared
from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction import columns, evidence
from fedperf_client.prediction.base_models import predictor
from fedperf_client.prediction.columns import ExecutionColumns, encoded
from fedperf_client.prediction.evidence import History
from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.execution import Execution
from fedperf_shared.model import inference
from fedperf_shared.model.public_start import load_public_start, public_start_path
from fedperf_shared.releases import basis


@cache
def home_encoder() -> Encoder:
    """The encoder of executions into columns at home; can be pickled."""
    found = hashlib.sha256(public_start_path().read_bytes())
    [shared] = fedperf_shared.__path__
    sources = sorted(each for each in Path(shared, "workflow").iterdir() if each.is_file())
    for path in (
        *sources,
        *(Path(str(each.__file__)) for each in (columns, evidence, inference, basis)),
    ):
        found.update(path.read_bytes())
    return Encoder(found.digest(), _encoded)


def columns_at_home(store: ExecutionStore, *, keep: bool = True) -> ExecutionColumns:
    """The columns of all stored executions that tell something, in the order of their finish.

    Args:
        store: own executions.
        keep: store what has to be encoded for it.

    Raises:
        StorageError: the store cannot be read, or what was missing not be written.
    """
    found = ExecutionColumns.of(store.columns(home_encoder(), keep=keep))
    order = store.in_order()
    place = np.searchsorted(found.number, order)
    place[place == len(found)] = 0
    known = found.number[place] == order if len(found) else np.zeros(len(order), bool)
    return found.take(place[known])


def history_at_home(store: ExecutionStore, columns: ExecutionColumns) -> History:
    """The executions of these columns as questions; errors as `columns_at_home`."""
    return History.from_executions(store.numbered(columns.number.tolist()))


def _encoded(executions: Sequence[Execution]) -> dict[str, NDArray[Any]]:
    return encoded(executions, _start())


@cache
def _start() -> PredictLog:
    return predictor(load_public_start())
