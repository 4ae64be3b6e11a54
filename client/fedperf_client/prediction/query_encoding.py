"""Executions and queries as numbers, encoded once for all learners.

`EncodedQueries` holds everything that a learner reads of a query. So features and neural networks
are evaluated once, however many learners and folds there are.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats, PredictLog, checked_log
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionWarning, PlanOnCluster
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.workflow.features import FLAT_FEATURES, PLAN_COLUMNS, flatten
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform

_BATCH = 128

UNNAMED = 1 << 2 * len(NAMED_PLATFORMS)
"""The bit of all platforms without a name, see `engine_bit`."""


class InvalidHistoryError(InvalidInputError):
    """Raised when queries, workloads and run times of a history do not fit together."""


@dataclass(frozen=True, slots=True)
class History:
    """Local executions as queries with measured run times.

    Attributes:
        queries: the plans and their resources, [executions].
        workloads: the workload of each execution; folds never split one.
        log_seconds: natural log of the measured wall seconds, float64 [executions].
        finished_at: with time zone, [executions]; None if unknown or irrelevant.
        censored: right-censored executions, which failed or were stopped, and the natural log of
            the wall seconds until then.
    """

    queries: tuple[PlanOnCluster, ...]
    workloads: tuple[str, ...]
    log_seconds: Floats
    finished_at: tuple[datetime, ...] | None = None
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
    """Queries as the numbers that learners read.

    Attributes:
        features: flat features of plans [queries, FLAT_FEATURES], or of a table's layout; float64.
        cells: cell of the public basis, or number of the public point; int64 [queries].
        starts: log seconds that each pretrained model predicts, by name, float64 [queries].
        shares: weight of each where a learner is fitted, float64 [queries]; None if all are 1.
    """

    features: Floats
    cells: NDArray[np.int64]
    starts: Mapping[str, Floats]
    shares: Floats | None = None

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def weights(self) -> Floats:
        """Weight of each where a learner is fitted, [queries]."""
        return np.ones(len(self)) if self.shares is None else self.shares

    def take(self, rows: NDArray[np.int64]) -> "EncodedQueries":
        """Return these rows."""
        starts = {name: values[rows] for name, values in self.starts.items()}
        shares = None if self.shares is None else self.shares[rows]
        return EncodedQueries(self.features[rows], self.cells[rows], starts, shares)

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

    The features identify most plans. If they say nothing of the size of the job, or of the engine
    that did the work, only its own runs predict it, and `job` identifies them. Without row counts,
    runs of one workload are of one size if they read as many bytes within a tenth. If the engine
    counted no bytes either, they need as many tasks and the same description.

    Attributes:
        configuration: equal for runs of a job on the same resources.
        job: equal for runs of a job on any resources, if only its own runs predict it; else 0.
        read_bytes: 0 if not counted, or if rows are known.
        mark: of tasks and description; 0 if rows are known.
    """

    configuration: int
    job: int = 0
    read_bytes: float = 0.0
    mark: int = 0


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
        if job is None or not job.answers_alone:
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

    Commands that run as a whole are an engine of their own: they say nothing of operators, nor
    operators of them. Platforms without a name share one bit.
    """
    kind, platform = pair
    if platform not in NAMED_PLATFORMS:
        return UNNAMED
    return 1 << platform + (len(NAMED_PLATFORMS) if kind is OperatorKind.COMMAND else 0)


def hash64(content: bytes) -> int:
    """Return a signed hash of 64 bits; collisions within one data directory are negligible."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def encode(queries: Sequence[PlanOnCluster], starts: Mapping[str, PredictLog]) -> EncodedQueries:
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
    return EncodedQueries(features, cells, predict_pretrained(queries, starts))


def predict_pretrained(
    queries: Sequence[PlanOnCluster], starts: Mapping[str, PredictLog]
) -> dict[str, Floats]:
    """Return the predictions of each pretrained model; errors as of `encode`."""
    predictions: dict[PredictLog, Floats] = {}  # two names may refer to one model
    for name, start in starts.items():
        if start not in predictions:
            predictions[start] = checked_log(name, start(queries), len(queries))
    return {name: predictions[start] for name, start in starts.items()}
