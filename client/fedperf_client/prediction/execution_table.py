"""The table of local executions: the columns that prediction reads, and the training sample.

A row is a measured execution. It is encoded once, when the execution is ingested. Executions that
are no evidence for other jobs (`query_encoding.is_training_example`) predict their own jobs only.
Plans are not needed any more, except to evaluate another pretrained model.

Learners are weighted and fitted on at most `MOST_LEARNT` executions, so a prediction costs the same
however many there are. Fixed rules choose the training sample. It holds a few of the newest
executions of as many workloads as possible, in an order that is independent of run times. It holds
some executions of every cell of the basis, so that rare work is represented, and those at the ends
of scales and sizes. Runs of exactly the job of a query are looked up among all executions.

The sample is chosen again when a tenth more executions arrived, or a drift was detected. Only the
executions that finished before then decide, so the same query gets the same prediction.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_client.prediction.query_encoding import (
    EncodedQueries,
    History,
    encode,
    hash64,
    identify,
    is_training_example,
)
from fedperf_shared.execution import ClusterConfig, Execution, KnownJob, PlanOnCluster
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import pretrained_model_path
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

ENCODER_VERSION = 2
"""Version of all code between an execution and its columns: features, the model that ships, cells
of the basis and this module. Columns of another version are encoded again. A test compares the
columns of some executions (`test_cached_answers`). A change of columns raises this version."""

MOST_LEARNT = 3_000
"""Executions in the training sample."""

STEP = 1.1
TOGETHER = 3
"""Newest executions of a workload that are taken before those of another workload."""

LEAST_OF_CELL = 20

START = "start"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAIRS = len(OperatorKind) * len(Platform)


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionTable:
    """Columns of local executions, [executions] each.

    Attributes:
        number: key in the store.
        finished_at: microseconds since 1970.
        workload: equal for executions of one workload.
        source: equal for executions that one program in one version recorded.
        is_ok: whether it ended well; the others are right-censored.
        log_seconds: natural log of the measured wall seconds.
        cell: of the public basis.
        start: log seconds that the public pretrained model predicts.
        source_rows: rows of all sources.
        largest_rows: rows of the largest output.
        operators: of the plan.
        cores, nodes, memory_bytes, machine_speed, queries_before: of the cluster.
        configuration, job, read_bytes, mark: see `Identity`.
        teaches: whether it is evidence for other jobs.
        pairs: packed bits: which kinds of operators ran on which platforms, [executions, bytes].
    """

    number: Ints
    finished_at: Ints
    workload: Ints
    source: Ints
    is_ok: Mask
    log_seconds: Floats
    cell: Ints
    start: Floats
    source_rows: Floats
    largest_rows: Floats
    operators: Ints
    cores: Ints
    nodes: Ints
    memory_bytes: Ints
    machine_speed: Floats
    queries_before: Ints
    configuration: Ints
    job: Ints
    read_bytes: Floats
    mark: Ints
    teaches: Mask
    pairs: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.number)

    @classmethod
    def from_columns(cls, columns: Mapping[str, NDArray[Any]]) -> Self:
        """Return the table of the columns that `encode_executions` made and the store holds."""
        return cls(**{each.name: columns[each.name] for each in fields(cls)})

    @classmethod
    def from_history(
        cls, history: History, samples: EncodedQueries, start: Floats | None = None
    ) -> Self:
        """Return the table of executions that no store holds, the censored ones at the end.

        Args:
            history: local executions.
            samples: its encoded queries.
            start: log seconds that the public pretrained model predicts, [executions]; 0 if None.
        """
        censored = [query for query, _ in history.censored]
        encoded, ended, count = encode(censored, {}), len(history), len(history) + len(censored)
        both = EncodedQueries(
            np.concatenate([samples.features, encoded.features]),
            np.concatenate([samples.cells, encoded.cells]),
            {},
        )
        predicted, finished_at = np.zeros(count), np.zeros(count, np.int64)
        if start is not None:
            predicted[:ended] = start
        if history.finished_at is not None:
            finished_at[:ended] = [_micros(each) for each in history.finished_at]
        workloads = [hash64(each.encode()) for each in history.workloads]
        bounds = [bound for _, bound in history.censored]
        return cls(
            number=np.arange(count),
            finished_at=finished_at,
            workload=np.array(workloads + [0] * len(censored), np.int64),
            source=np.zeros(count, np.int64),
            is_ok=np.arange(count) < ended,
            log_seconds=np.concatenate([history.log_seconds, np.array(bounds, np.float64)]),
            start=predicted,
            teaches=np.ones(count, np.bool_),
            **_query_columns([*history.queries, *censored], both),
        )

    def take(self, rows: Ints | Mask) -> Self:
        """Return these rows."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    def timestamps(self) -> list[datetime]:
        """Return when each execution finished."""
        return [_EPOCH + timedelta(microseconds=each) for each in self.finished_at.tolist()]

    def clusters(self) -> tuple[Ints, list[ClusterConfig]]:
        """Return the number of each execution's cluster, and the clusters by number."""
        columns = (self.nodes, self.cores, self.memory_bytes, self.machine_speed)
        number = numbered_together(*columns, self.queries_before)
        first = np.unique(number, return_index=True)[1]
        rows = zip(*(each[first].tolist() for each in (*columns, self.queries_before)), strict=True)
        return number, [ClusterConfig(*row) for row in rows]


def numbered(values: NDArray[Any]) -> Ints:
    """Return numbers from 0 that are equal for equal values, in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def numbered_together(*columns: NDArray[Any]) -> Ints:
    """Return numbers as `numbered`, equal for executions that agree in all columns."""
    number = np.zeros(len(columns[0]), np.int64)
    for values in map(numbered, columns):
        number = numbered(number * (values.max(initial=0) + 1) + values)
    return number


def encode_executions(
    executions: Sequence[Execution], start: PredictLog
) -> dict[str, NDArray[Any]]:
    """Return the columns of the measured executions, and their flat `features`.

    Args:
        executions: any number; `number` is their index.
        start: the public pretrained model.

    Raises:
        PredictorFailedError: The model returned values that cannot be used.
    """
    numbers = [n for n, each in enumerate(executions) if each.measurement is not None]
    measured = [executions[number] for number in numbers]
    queries = [PlanOnCluster(each.plan, each.cluster, KnownJob.of(each)) for each in measured]
    samples = encode(queries, {START: start})
    return {
        "number": np.array(numbers, np.int64),
        "finished_at": np.array([_micros(each.finished_at) for each in measured], np.int64),
        "workload": np.array([hash64(each.workload.encode()) for each in measured], np.int64),
        "source": np.array([hash64(each.origin.source.encode()) for each in measured], np.int64),
        "is_ok": np.array([each.is_ok for each in measured], np.bool_),
        "log_seconds": np.array([math.log(each.runtime_seconds) for each in measured], np.float64),
        "start": samples.starts[START],
        "teaches": np.array([is_training_example(each) for each in measured], np.bool_),
        **_query_columns(queries, samples),
        "features": samples.features.astype(np.float32),
    }


def training_limit(count: int, detected: int) -> int:
    """Return the number of oldest executions among which the training sample is chosen.

    Args:
        count: of all executions.
        detected: of the executions up to the last detected drift; 0 without one.
    """
    if count <= MOST_LEARNT:
        return count
    steps = int(np.log(count / MOST_LEARNT) / np.log(STEP))
    return max(detected, min(count, int(MOST_LEARNT * STEP**steps)))


def training_sample(table: ExecutionTable) -> Ints:
    """Return the rows of the training sample, ascending."""
    count = len(table)
    if count <= MOST_LEARNT:
        return np.arange(count)
    rank = _rank_in_group(table.workload[::-1])[::-1]  # how many of its workload are newer
    # Hashes of names: as good as random, and independent of what else is stored.
    order = np.lexsort((rank, table.workload, rank // TOGETHER))
    of_cell = np.empty(count, np.int64)
    of_cell[order] = _rank_in_group(table.cell[order])
    ends = [
        each(values)
        for values in (table.cores, table.source_rows)
        for each in (np.argmin, np.argmax)
    ]
    first = np.zeros(count, np.bool_)
    first[ends] = True
    first |= of_cell < LEAST_OF_CELL
    sample = np.concatenate([order[first[order]], order[~first[order]]])[:MOST_LEARNT]
    return np.sort(sample)


def _rank_in_group(groups: Ints) -> Ints:
    """Return how many members of its group precede each value."""
    numbers = numbered(groups)
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - begins
    return rank


def _query_columns(
    queries: Sequence[PlanOnCluster], samples: EncodedQueries
) -> dict[str, NDArray[Any]]:
    """Return the columns that follow from queries, which `samples` encodes."""
    identities = identify(queries, samples)
    operators = [each.plan.workflow.operators for each in queries]
    clusters = [each.cluster for each in queries]
    pairs = np.zeros((len(queries), _PAIRS), np.bool_)
    for row, each in enumerate(queries):
        placed = zip(operators[row], each.plan.platforms, strict=True)
        pairs[row, [one.kind * len(Platform) + platform for one, platform in placed]] = True
    integers = {
        "operators": [len(each) for each in operators],
        "cores": [each.cores for each in clusters],
        "nodes": [each.nodes for each in clusters],
        "memory_bytes": [each.memory_bytes for each in clusters],
        "queries_before": [each.queries_before for each in clusters],
        "configuration": [each.configuration for each in identities],
        "job": [each.job for each in identities],
        "mark": [each.mark for each in identities],
    }
    numbers = {
        "source_rows": [each.plan.workflow.source_rows for each in queries],
        "largest_rows": [max(one.output_rows for one in each) for each in operators],
        "machine_speed": [each.machine_speed for each in clusters],
        "read_bytes": [each.read_bytes for each in identities],
    }
    return {
        "cell": samples.cells,
        **{name: np.array(values, np.int64) for name, values in integers.items()},
        **{name: np.array(values, np.float64) for name, values in numbers.items()},
        "pairs": np.packbits(pairs, axis=1),
    }


def _micros(timestamp: datetime) -> int:
    return (timestamp - _EPOCH) // timedelta(microseconds=1)


def home_encoder() -> Encoder:
    """Return the encoder of executions into columns, by the pretrained model. It can be pickled."""
    path = pretrained_model_path()
    status = path.stat()
    return _encoder(path, status.st_mtime_ns, status.st_ino)


def load_encoded_executions(store: ExecutionStore, *, keep: bool = True) -> ExecutionTable:
    """Load the table of all stored executions that were measured, in the order of their finish.

    Columns of another `ENCODER_VERSION`, or of another pretrained model, are made anew.

    Args:
        store: own executions.
        keep: store what has to be encoded for it.

    Raises:
        StorageError: the store cannot be read, or missing columns cannot be written.
    """
    table = ExecutionTable.from_columns(store.columns(home_encoder(), keep=keep))
    order = store.in_order()
    place = np.searchsorted(table.number, order)
    place[place == len(table)] = 0
    is_encoded = table.number[place] == order if len(table) else np.zeros(len(order), bool)
    return table.take(place[is_encoded])


@lru_cache(maxsize=4)
def _encoder(path: Path, modified_ns: int, inode: int) -> Encoder:
    """Read each pretrained model once. One process may use several, as simulations do."""
    del modified_ns, inode
    hasher = hashlib.sha256(path.read_bytes())
    hasher.update(f"encoder {ENCODER_VERSION}".encode())
    digest = hasher.digest()
    return Encoder(digest, partial(_encode_at_home, path, digest))


def _encode_at_home(
    path: Path, digest: bytes, executions: Sequence[Execution]
) -> dict[str, NDArray[Any]]:
    network = _network(path, digest)
    return encode_executions(
        executions, lambda each: network.log_seconds([one.features for one in each])
    )


@lru_cache(maxsize=4)
def _network(path: Path, digest: bytes) -> GgfnArrays:
    del digest  # another file has another network
    return GgfnArrays.of(load_checkpoint(path))
