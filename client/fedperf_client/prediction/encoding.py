"""Executions and queries as numbers, encoded once for all learners.

`EncodedQueries` holds everything that a learner reads of a query. So features and neural networks
are evaluated once, however many learners and folds there are.

`ExecutionTable` holds the columns that prediction reads of local executions. A row is a measured
execution. It is encoded once, when the execution is ingested. Executions that are no evidence for
other jobs (`is_training_example`) predict their own jobs only. Plans are not needed any more,
except to evaluate another pretrained model.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.home.segments import Encoder
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.prediction import Floats, PredictLog, checked_log
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionWarning,
    KnownJob,
    PlanOnCluster,
)
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import pretrained_model_path
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.workflow.features import FLAT_FEATURES, PLAN_COLUMNS, flatten
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BATCH = 128

UNNAMED = 1 << 2 * len(NAMED_PLATFORMS)  # the bit of all platforms without a name, see `engine_bit`


class InvalidHistoryError(InvalidInputError):
    """Raised when queries, workloads and run times of a history do not fit together."""


@dataclass(frozen=True, slots=True)
class History:
    """Local executions as queries with measured run times."""

    queries: tuple[PlanOnCluster, ...]  # the plans and their resources, [executions]
    workloads: tuple[str, ...]  # the workload of each execution; folds never split one
    log_seconds: Floats  # natural log of the measured wall seconds, float64 [executions]
    # With time zone, [executions]; None if unknown or irrelevant.
    finished_at: tuple[datetime, ...] | None = None
    # Right-censored executions, which failed or were stopped, and the natural log of the wall
    # seconds until then.
    censored: tuple[tuple[PlanOnCluster, float], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.queries)
        if self.finished_at is not None and len(self.finished_at) != count:
            raise InvalidHistoryError(
                f"a history of {count} queries has {len(self.finished_at)} timestamps"
            )
        if len(self.workloads) != count or self.log_seconds.shape != (count,):
            raise InvalidHistoryError(
                f"a history of {count} queries has {len(self.workloads)} workloads and run "
                f"times of shape {self.log_seconds.shape}"
            )
        bounds = np.array([bound for _, bound in self.censored])
        if not (np.isfinite(self.log_seconds).all() and np.isfinite(bounds).all()):
            raise InvalidHistoryError("run times must be finite")

    def __len__(self) -> int:
        return len(self.queries)

    @classmethod
    def from_executions(cls, executions: Iterable[Execution]) -> Self:
        """Return the history of the executions that `is_training_example` accepts."""
        measured = [
            (each, PlanOnCluster(each.plan, each.cluster), math.log(each.runtime_seconds))
            for each in executions
            if each.measurement is not None and is_training_example(each)
        ]
        ended = [row for row in measured if row[0].is_ok]
        return cls(
            tuple(query for _, query, _ in ended),
            tuple(each.workload for each, _, _ in ended),
            np.array([seconds for _, _, seconds in ended], dtype=np.float64),
            tuple(each.finished_at for each, _, _ in ended),
            tuple((query, seconds) for each, query, seconds in measured if not each.is_ok),
        )

    def take(self, rows: NDArray[np.int64]) -> "History":
        """Return these rows, without the censored executions."""
        return History(
            tuple(self.queries[row] for row in rows),
            tuple(self.workloads[row] for row in rows),
            self.log_seconds[rows],
            None if self.finished_at is None else tuple(self.finished_at[row] for row in rows),
        )


@dataclass(frozen=True, slots=True)
class EncodedQueries:
    """Queries as the numbers that learners read."""

    # Flat features of plans [queries, FLAT_FEATURES], or of a table's layout; float64.
    features: Floats
    # Cell of the public basis, or number of the public point; int64 [queries].
    cells: NDArray[np.int64]
    # Log seconds that each pretrained model predicts, by name, float64 [queries].
    base_predictions: Mapping[str, Floats]
    # Weight of each where a learner is fitted, float64 [queries]; None if all are 1.
    shares: Floats | None = None

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def weights(self) -> Floats:
        """Weight of each where a learner is fitted, [queries]."""
        return np.ones(len(self)) if self.shares is None else self.shares

    def take(self, rows: NDArray[np.int64]) -> "EncodedQueries":
        """Return these rows."""
        predictions = {name: values[rows] for name, values in self.base_predictions.items()}
        shares = None if self.shares is None else self.shares[rows]
        return EncodedQueries(self.features[rows], self.cells[rows], predictions, shares)

    def configurations(self) -> NDArray[np.int64]:
        """Return a number per query that is equal if all features are, [queries]."""
        features = self.features.astype(np.float32)  # as stored in a file
        cells = [each.to_bytes(8, "little", signed=True) for each in self.cells.tolist()]
        rows = zip(features, cells, strict=True)
        return np.array([hash64(row.tobytes() + cell) for row, cell in rows], np.int64)

    def plans(self) -> NDArray[np.int64]:
        """Return a number per query that is equal if all features but the resources are."""
        columns = self.features[:, PLAN_COLUMNS].astype(np.float32)
        return np.array([hash64(row.tobytes()) for row in columns], np.int64)


class Identity(NamedTuple):
    """Identifies the runs of exactly one job on exactly its resources.

    The features identify most plans. If they hold neither the size of the job nor the
    engine that did the work, only its own runs predict it, and `job` identifies them. Without row
    counts, runs of one workload are of one size if they read as many bytes within a tenth. If the
    engine counted no bytes either, they need as many tasks and the same description.
    """

    configuration: int  # equal for runs of a job on the same resources
    # Equal for runs of a job on any resources, if only its own runs predict it; else 0.
    job: int = 0
    read_bytes: float = 0.0  # 0 if not counted, or if rows are known
    mark: int = 0  # of tasks and description; 0 if rows are known


def is_training_example(execution: Execution) -> bool:
    """Return whether an execution is evidence for other jobs.

    One without row counts, such as a job in which Spark lists files, would look like one of 0
    rows. One that another engine accelerated would look like one of the plain engine.
    """
    return (
        execution.origin.rows_known > 0
        and ExecutionWarning.ACCELERATED not in execution.origin.remarks
    )


def identify(queries: Sequence[PlanOnCluster], samples: EncodedQueries) -> list[Identity]:
    """Return the identity of each query, which `samples` encodes."""
    columns = samples.features[:, PLAN_COLUMNS].astype(np.float32)  # as stored in a file
    configurations, identities = samples.configurations().tolist(), []
    for query, configuration, of_plan in zip(queries, configurations, columns, strict=True):
        job, cluster = query.job, query.cluster
        if job is None or not job.needs_own_runs:
            identities.append(Identity(configuration))
            continue
        resources = (cluster.nodes, cluster.cores, cluster.memory_bytes, cluster.machine_speed)
        platforms = sorted({each.name for each in query.plan.platforms})
        content = of_plan.tobytes() if job.has_rows else job.workload.encode()
        content += repr((platforms, job.is_accelerated, job.has_rows)).encode()
        numbers = hash64(content + repr(resources).encode()), hash64(content)
        if job.has_rows:
            identities.append(Identity(*numbers))
        else:
            mark = hash64(f"{job.tasks} {job.description}".encode())
            identities.append(Identity(*numbers, float(job.read_bytes), mark))
    return identities


def engine_bit(pair: tuple[OperatorKind, Platform]) -> int:
    """Return the bit of the engine that runs a kind of operator on a platform.

    Commands that run as a whole are an engine of their own: they are no evidence for operators,
    nor operators for them. Platforms without a name share one bit.
    """
    kind, platform = pair
    if platform not in NAMED_PLATFORMS:
        return UNNAMED
    return 1 << platform + (len(NAMED_PLATFORMS) if kind is OperatorKind.COMMAND else 0)


def hash64(content: bytes) -> int:
    """Return a signed hash of 64 bits; collisions within one data directory are negligible."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def encode(
    queries: Sequence[PlanOnCluster], base_models: Mapping[str, PredictLog]
) -> EncodedQueries:
    """Encode queries; evaluate every pretrained model once.

    Raises:
        PredictorFailedError: A pretrained model returned a wrong number of values, or values that
            are not finite.
    """
    for begin in range(0, len(queries), _BATCH):
        PlanOnCluster.featurize(queries[begin : begin + _BATCH])
    features = np.zeros((len(queries), FLAT_FEATURES))
    for row, query in enumerate(queries):
        features[row] = flatten(query.features)
    cells = np.array([cell_of(query.plan).index for query in queries], np.int64)
    return EncodedQueries(features, cells, predict_pretrained(queries, base_models))


def predict_pretrained(
    queries: Sequence[PlanOnCluster], base_models: Mapping[str, PredictLog]
) -> dict[str, Floats]:
    """Return the predictions of each pretrained model; errors as of `encode`."""
    predictions: dict[PredictLog, Floats] = {}  # two names may refer to one model
    for name, model in base_models.items():
        if model not in predictions:
            predictions[model] = checked_log(name, model(queries), len(queries))
    return {name: predictions[model] for name, model in base_models.items()}


# --- the table of executions ------------------------------------------------------------------

# Version of all code between an execution and its columns: features, the model that ships, cells of
# the basis and this module. Columns of another version are encoded again. A test compares the
# columns of some executions (`test_cached_answers`). A change of columns raises this version.
ENCODER_VERSION = 2

_PRETRAINED = "pretrained"
# Fields whose columns and cached arrays have another name in files.
_STORED_NAMES = {
    "base_model": "start",
    "base_predictions": "starts",
    "is_example": "teaches",
    "pretrained_log_seconds": "start",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAIRS = len(OperatorKind) * len(Platform)


def stored_name(field: str) -> str:
    """Return the name in files of a field of a table or a fitted learner."""
    return _STORED_NAMES.get(field, field)


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionTable:
    """Columns of local executions, [executions] each."""

    number: Ints  # key in the store
    finished_at: Ints  # microseconds since 1970
    workload: Ints  # equal for executions of one workload
    source: Ints  # equal for executions that one program in one version recorded
    is_ok: Mask  # whether it ended well; the others are right-censored
    log_seconds: Floats  # natural log of the measured wall seconds
    cell: Ints  # of the public basis
    pretrained_log_seconds: Floats  # log seconds that the public pretrained model predicts
    source_rows: Floats  # rows of all sources
    largest_rows: Floats  # rows of the largest output
    # Of the plan. cores, nodes, memory_bytes, machine_speed, queries_before: of the cluster.
    # configuration, job, read_bytes, mark: see `Identity`.
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
    is_example: Mask  # whether it is evidence for other jobs
    # Packed bits: which kinds of operators ran on which platforms, [executions, bytes].
    pairs: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.number)

    @classmethod
    def from_columns(cls, columns: Mapping[str, NDArray[Any]]) -> Self:
        """Return the table of the columns that `encode_executions` made and the store holds."""
        return cls(**{each.name: columns[stored_name(each.name)] for each in fields(cls)})

    @classmethod
    def from_history(
        cls, history: History, samples: EncodedQueries, pretrained: Floats | None = None
    ) -> Self:
        """Return the table of executions that no store holds, the censored ones at the end.

        Args:
            history: local executions.
            samples: its encoded queries.
            pretrained: log seconds that the public pretrained model predicts, [executions]; None
                for 0.
        """
        censored = [query for query, _ in history.censored]
        encoded, ended, count = encode(censored, {}), len(history), len(history) + len(censored)
        both = EncodedQueries(
            np.concatenate([samples.features, encoded.features]),
            np.concatenate([samples.cells, encoded.cells]),
            {},
        )
        predicted, finished_at = np.zeros(count), np.zeros(count, np.int64)
        if pretrained is not None:
            predicted[:ended] = pretrained
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
            pretrained_log_seconds=predicted,
            is_example=np.ones(count, np.bool_),
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
    executions: Sequence[Execution], pretrained: PredictLog
) -> dict[str, NDArray[Any]]:
    """Return the columns of the measured executions, and their flat `features`.

    Args:
        executions: any number; `number` is their index.
        pretrained: the public pretrained model.

    Raises:
        PredictorFailedError: The model returned values that cannot be used.
    """
    numbers = [n for n, each in enumerate(executions) if each.measurement is not None]
    measured = [executions[number] for number in numbers]
    queries = [PlanOnCluster(each.plan, each.cluster, KnownJob.of(each)) for each in measured]
    samples = encode(queries, {_PRETRAINED: pretrained})
    return {
        "number": np.array(numbers, np.int64),
        "finished_at": np.array([_micros(each.finished_at) for each in measured], np.int64),
        "workload": np.array([hash64(each.workload.encode()) for each in measured], np.int64),
        "source": np.array([hash64(each.origin.source.encode()) for each in measured], np.int64),
        "is_ok": np.array([each.is_ok for each in measured], np.bool_),
        "log_seconds": np.array([math.log(each.runtime_seconds) for each in measured], np.float64),
        "start": samples.base_predictions[_PRETRAINED],
        "teaches": np.array([is_training_example(each) for each in measured], np.bool_),
        **_query_columns(queries, samples),
        "features": samples.features.astype(np.float32),
    }


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
