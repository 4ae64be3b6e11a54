"""The table of own executions: what prediction reads of each, and the sample to learn from.

A row stands for an execution that was measured; it is encoded once, when the execution is ingested.
Executions that teach nothing of other jobs (`evidence.teaches`) answer for their own jobs alone.
Plans are not needed any more, except to ask another start model.

Learners are weighed and fitted on at most `MOST_LEARNT` executions, so an answer costs the same
however many there are. Fixed rules choose the training sample. It holds a few of the newest
executions of as many workloads as possible, in an order that has nothing to do with their times. It
holds some executions of every cell of the basis, so that rare work is there, and those at the ends
of scales and sizes. Runs of exactly the job that is asked about are looked up among all executions.

The sample is chosen again when a tenth more executions came, or a drift was noticed. Only the
executions that finished before then decide, so the same question gets the same answer.
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
    identities,
    number_of,
    teaches,
)
from fedperf_shared.execution import ClusterConfig, Execution, KnownJob, PlanOnCluster
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import pretrained_model_path
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

ENCODER_VERSION = 2
"""Of all code between an execution and its columns: features, the model that ships, cells of the
basis and this module. Columns that another version encoded are made anew. A test holds what this
version makes of some executions (`test_cached_answers`): whoever changes that raises it."""

MOST_LEARNT = 3_000
"""Executions; of fewer all are learnt from."""

STEP = 1.1
TOGETHER = 3
"""Newest executions of a workload that are taken before another workload's."""

LEAST_OF_CELL = 20

START = "start"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAIRS = len(OperatorKind) * len(Platform)


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionTable:
    """Own executions in numbers, [executions] each.

    Attributes:
        number: by which the store finds it.
        finished_at: whole microseconds since 1970.
        workload: the same for executions of one workload.
        source: the same for those that one program in one version recorded.
        is_ok: whether it ended well; others are lower bounds.
        log_seconds: natural log of the measured wall seconds.
        cell: of the public basis.
        start: log seconds that the public start predicts.
        source_rows: of all sources.
        largest_rows: of the largest output.
        operators: of the plan.
        cores, nodes, memory_bytes, machine_speed, queries_before: of the cluster.
        configuration, job, read_bytes, mark: which runs are of exactly one job, see `Identity`.
        teaches: whether it says something of other jobs.
        pairs: which kinds of operators ran on which platforms, bits, [executions, bytes].
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
    def of(cls, columns: Mapping[str, NDArray[Any]]) -> Self:
        """The table of what `encoded` gave and the store holds."""
        return cls(**{each.name: columns[each.name] for each in fields(cls)})

    @classmethod
    def of_history(
        cls, history: History, samples: EncodedQueries, start: Floats | None = None
    ) -> Self:
        """The table of executions that no store holds, those that were cut short at the end.

        Args:
            history: executions as questions with answers.
            samples: the numbers of its questions.
            start: log seconds that the public start predicts of them; 0 where it was not asked.
        """
        cut = [question for question, _ in history.cut_short]
        of_cut, ended, count = encode(cut, {}), len(history), len(history) + len(cut)
        both = EncodedQueries(
            np.concatenate([samples.features, of_cut.features]),
            np.concatenate([samples.cells, of_cut.cells]),
            {},
        )
        predicted = np.zeros(count)
        if start is not None:
            predicted[:ended] = start
        moments = np.array([_micros(each) for each in history.finished_at or ()], np.int64)
        finished_at = np.zeros(count, np.int64)
        finished_at[: len(moments)] = moments
        workloads = [number_of(each.encode()) for each in history.workloads]
        bounds = [bound for _, bound in history.cut_short]
        return cls(
            number=np.arange(count),
            finished_at=finished_at,
            workload=np.array(workloads + [0] * len(cut), np.int64),
            source=np.zeros(count, np.int64),
            is_ok=np.arange(count) < ended,
            log_seconds=np.concatenate([history.log_seconds, np.array(bounds, np.float64)]),
            start=predicted,
            teaches=np.ones(count, np.bool_),
            **_columns([*history.questions, *cut], both),
        )

    def take(self, rows: Ints | Mask) -> Self:
        """Those rows."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    def workload_index(self) -> Ints:
        """The number of each execution's workload, in order of first appearance."""
        return numbered(self.workload)

    def moments(self) -> list[datetime]:
        """When each finished."""
        return [_EPOCH + timedelta(microseconds=each) for each in self.finished_at.tolist()]

    def cluster_columns(self) -> tuple[NDArray[Any], ...]:
        """What a cluster is told by."""
        machine = (self.nodes, self.cores, self.memory_bytes)
        return (*machine, self.machine_speed, self.queries_before)

    def cluster(self, row: int) -> ClusterConfig:
        """The resources of one."""
        return ClusterConfig(
            int(self.nodes[row]),
            int(self.cores[row]),
            int(self.memory_bytes[row]),
            float(self.machine_speed[row]),
            int(self.queries_before[row]),
        )


def numbered(values: NDArray[Any]) -> Ints:
    """Numbers from 0 for equal values, in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def unpacked_pairs(pairs: NDArray[np.uint8]) -> Mask:
    """Which kinds ran on which platforms, [executions, kinds x platforms]."""
    return np.unpackbits(pairs, axis=1, count=_PAIRS).view(np.bool_)


def encoded(executions: Sequence[Execution], start: PredictLog) -> dict[str, NDArray[Any]]:
    """The columns of those that were measured, `number` their place, and flat `features`.

    Args:
        executions: any number.
        start: the public start.

    Raises:
        PredictorFailedError: it gave values that cannot be used.
    """
    told = [
        (place, each, each.measurement)
        for place, each in enumerate(executions)
        if each.measurement is not None
    ]
    questions = [PlanOnCluster(each.plan, each.cluster, KnownJob.of(each)) for _, each, _ in told]
    samples = encode(questions, {START: start})
    return {
        "number": np.array([place for place, _, _ in told], np.int64),
        "finished_at": np.array([_micros(each.finished_at) for _, each, _ in told], np.int64),
        "workload": np.array([number_of(each.workload.encode()) for _, each, _ in told], np.int64),
        "source": np.array(
            [number_of(each.origin.source.encode()) for _, each, _ in told], np.int64
        ),
        "is_ok": np.array([each.is_ok for _, each, _ in told], np.bool_),
        "log_seconds": np.array([math.log(of.runtime_seconds) for _, _, of in told], np.float64),
        "start": samples.starts[START],
        "teaches": np.array([teaches(each) for _, each, _ in told], np.bool_),
        **_columns(questions, samples),
        "features": samples.features.astype(np.float32),
    }


def training_limit(count: int, noticed: int) -> int:
    """The number of oldest executions among which the training sample is chosen.

    Args:
        count: all of them.
        noticed: of them up to the last alarm of drift; 0 without one.
    """
    if count <= MOST_LEARNT:
        return count
    steps = int(np.log(count / MOST_LEARNT) / np.log(STEP))
    return max(noticed, min(count, int(MOST_LEARNT * STEP**steps)))


def training_sample(table: ExecutionTable) -> Ints:
    """Rows to learn from, ascending."""
    count = len(table)
    if count <= MOST_LEARNT:
        return np.arange(count)
    rank = _place_in(table.workload[::-1])[::-1]  # how many of its workload are newer
    # Hashes of names: as good as drawn, and the same whatever else is stored.
    order = np.lexsort((rank, table.workload, rank // TOGETHER))
    of_cell = np.empty(count, np.int64)
    of_cell[order] = _place_in(table.cell[order])
    ends = [
        each(values)
        for values in (table.cores, table.source_rows)
        for each in (np.argmin, np.argmax)
    ]
    first = np.zeros(count, np.bool_)
    first[ends] = True
    first |= of_cell < LEAST_OF_CELL
    chosen = np.concatenate([order[first[order]], order[~first[order]]])[:MOST_LEARNT]
    return np.sort(chosen)


def _place_in(groups: Ints) -> Ints:
    """How many of its group stand before it, of each."""
    numbers = numbered(groups)
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.empty(len(groups), np.int64)
    place[order] = np.arange(len(groups)) - begins
    return place


def _columns(
    questions: Sequence[PlanOnCluster], samples: EncodedQueries
) -> dict[str, NDArray[Any]]:
    """The columns that follow from what ran where, of which `samples` holds the numbers."""
    known_as = identities(questions, samples)
    operators = [each.plan.workflow.operators for each in questions]
    clusters = [each.cluster for each in questions]

    def whole(values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)

    def floats(values: Sequence[float]) -> Floats:
        return np.array(values, np.float64)

    return {
        "cell": samples.cells,
        "source_rows": floats([each.plan.workflow.source_rows for each in questions]),
        "largest_rows": floats([max(one.output_rows for one in each) for each in operators]),
        "operators": whole([len(each) for each in operators]),
        "cores": whole([each.cores for each in clusters]),
        "nodes": whole([each.nodes for each in clusters]),
        "memory_bytes": whole([each.memory_bytes for each in clusters]),
        "machine_speed": floats([each.machine_speed for each in clusters]),
        "queries_before": whole([each.queries_before for each in clusters]),
        "configuration": whole([each.configuration for each in known_as]),
        "job": whole([each.job for each in known_as]),
        "read_bytes": floats([each.read_bytes for each in known_as]),
        "mark": whole([each.mark for each in known_as]),
        "pairs": _pairs(questions),
    }


def _pairs(questions: Sequence[PlanOnCluster]) -> NDArray[np.uint8]:
    bits = np.zeros((len(questions), _PAIRS), np.bool_)
    for row, each in enumerate(questions):
        operators = zip(each.plan.workflow.operators, each.plan.platforms, strict=True)
        bits[row, [one.kind * len(Platform) + where for one, where in operators]] = True
    return np.packbits(bits, axis=1)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


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
    table = ExecutionTable.of(store.columns(home_encoder(), keep=keep))
    order = store.in_order()
    place = np.searchsorted(table.number, order)
    place[place == len(table)] = 0
    is_encoded = table.number[place] == order if len(table) else np.zeros(len(order), bool)
    return table.take(place[is_encoded])


@lru_cache(maxsize=4)
def _encoder(path: Path, modified_ns: int, inode: int) -> Encoder:
    """Read each pretrained model once. One process may use several, as simulations do."""
    del modified_ns, inode
    found = hashlib.sha256(path.read_bytes())
    found.update(f"encoder {ENCODER_VERSION}".encode())
    digest = found.digest()
    return Encoder(digest, partial(_encode_at_home, path, digest))


def _encode_at_home(
    path: Path, digest: bytes, executions: Sequence[Execution]
) -> dict[str, NDArray[Any]]:
    network = _network(path, digest)
    return encoded(executions, lambda each: network.log_seconds([one.features for one in each]))


@lru_cache(maxsize=4)
def _network(path: Path, digest: bytes) -> GgfnArrays:
    del digest  # another file has another network
    return GgfnArrays.of(load_checkpoint(path))
