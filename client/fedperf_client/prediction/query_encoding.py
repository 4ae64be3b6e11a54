"""Evidence that predictors learn from: own executions, and questions encoded once for all of them.

`EncodedQueries` holds everything that any predictor reads of a question. So features and neural
networks are evaluated once, however many predictors and folds there are.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats, PredictLog, checked_log
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionWarning, PlanOnCluster
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.workflow.features import FLAT_FEATURES, PLAN_COLUMNS, flatten
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform

_COUNTS = len(OperatorKind) * len(NAMED_PLATFORMS)
_AT_ONCE = 128

UNNAMED = 1 << 2 * len(NAMED_PLATFORMS)
"""The engine of all platforms without a name, see `engine_of`."""


class InvalidHistoryError(InvalidInputError):
    """Questions, workloads and run times of a history do not go together."""


@dataclass(frozen=True, slots=True)
class History:
    """Own executions as questions with answers.

    Attributes:
        questions: what ran where, [executions].
        workloads: the workload of each execution; folds never split one.
        log_seconds: natural log of the measured wall seconds, float64 [executions].
        finished_at: with time zone, [executions]; None where it is not known or does not matter.
        cut_short: what failed or was stopped, and the natural log of the wall seconds until then:
            it would have taken longer.
    """

    questions: tuple[PlanOnCluster, ...]
    workloads: tuple[str, ...]
    log_seconds: Floats
    finished_at: tuple[datetime, ...] | None = None
    cut_short: tuple[tuple[PlanOnCluster, float], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.questions)
        if self.finished_at is not None and len(self.finished_at) != count:
            raise InvalidHistoryError(
                f"a history of {count} questions has {len(self.finished_at)} moments"
            )
        if len(self.workloads) != count or self.log_seconds.shape != (count,):
            raise InvalidHistoryError(
                f"a history of {count} questions has {len(self.workloads)} workloads and run "
                f"times of shape {self.log_seconds.shape}"
            )
        bounds = np.array([bound for _, bound in self.cut_short])
        if not (np.isfinite(self.log_seconds).all() and np.isfinite(bounds).all()):
            raise InvalidHistoryError("a history holds finite run times only")

    def __len__(self) -> int:
        return len(self.questions)

    @classmethod
    def from_executions(cls, executions: Iterable[Execution]) -> Self:
        """The history of those that ended well; the times of others are lower bounds.

        Executions that teach nothing of other jobs are left out, see `teaches`.
        """
        told = [
            (
                PlanOnCluster(each.plan, each.cluster),
                each.workload,
                math.log(each.measurement.runtime_seconds),
                each.finished_at,
                each.is_ok,
            )
            for each in executions
            if each.measurement is not None and teaches(each)
        ]
        kept = [row for row in told if row[4]]
        return cls(
            tuple(row[0] for row in kept),
            tuple(row[1] for row in kept),
            np.array([row[2] for row in kept], dtype=np.float64),
            tuple(row[3] for row in kept),
            tuple((row[0], row[2]) for row in told if not row[4]),
        )

    def take(self, rows: NDArray[np.int64]) -> "History":
        """Those rows, without what was cut short."""
        return History(
            tuple(self.questions[row] for row in rows),
            tuple(self.workloads[row] for row in rows),
            self.log_seconds[rows],
            None if self.finished_at is None else tuple(self.finished_at[row] for row in rows),
        )


@dataclass(frozen=True, slots=True)
class EncodedQueries:
    """Questions as numbers.

    Attributes:
        features: flat features of plans [questions, FLAT_FEATURES], or those of a table's
            layout; float64.
        cells: cell of the public basis, or number of the public point; int64 [questions].
        starts: log seconds that each start model (shared, public) predicts, float64 [questions].
        shares: of an execution that each counts as where a learner is fitted, float64
            [questions]; None where all count fully.
    """

    features: Floats
    cells: NDArray[np.int64]
    starts: Mapping[str, Floats]
    shares: Floats | None = None

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def weights(self) -> Floats:
        """How much each counts where a learner is fitted, [questions]."""
        return np.ones(len(self)) if self.shares is None else self.shares

    def take(self, rows: NDArray[np.int64]) -> "EncodedQueries":
        """Those rows."""
        starts = {name: values[rows] for name, values in self.starts.items()}
        shares = None if self.shares is None else self.shares[rows]
        return EncodedQueries(self.features[rows], self.cells[rows], starts, shares)

    def configurations(self) -> NDArray[np.int64]:
        """For each question a number, the same for two that no feature tells apart."""
        features = self.features.astype(np.float32)  # as they are kept in a file
        rows = zip(features, self.cells.tolist(), strict=True)
        return np.array([configuration_of(row, cell) for row, cell in rows], np.int64)

    def plans(self) -> NDArray[np.int64]:
        """For each question a number, the same for one plan on any resources.

        Plans are told apart by every feature that does not follow from resources.
        """
        of_plans = self.features[:, PLAN_COLUMNS].astype(np.float32)
        return np.array([number_of(row.tobytes()) for row in of_plans], np.int64)

    def platforms(self) -> NDArray[np.bool_]:
        """Mask of the named platforms that each plan uses, [questions, NAMED_PLATFORMS]."""
        counts = self.features[:, :_COUNTS].reshape(-1, len(OperatorKind), len(NAMED_PLATFORMS))
        return np.asarray(counts.sum(axis=1) > 0)


class Identity(NamedTuple):
    """What tells the runs of exactly one job, on exactly its resources.

    Most plans are told by all of their features. Where these say nothing of the size of the job,
    or of the engine that did the work, its runs answer for it alone: `job` tells them. Of unknown
    rows, runs of one workload are alike where they read as many bytes, within a tenth. Where the
    engine counted none, they have as many tasks and the same description.

    Attributes:
        configuration: the same for a job on the same resources.
        job: the same for a job on any resources, of those that answer alone; 0 of others.
        read_bytes: 0 where none were counted, or where rows are known.
        mark: of tasks and description; 0 where rows are known.
    """

    configuration: int
    job: int = 0
    read_bytes: float = 0.0
    mark: int = 0


def teaches(execution: Execution) -> bool:
    """Whether an execution says something of other jobs.

    One of which no rows are known, such as a job in which Spark lists files, would be taken for one
    of 0 rows; one that another engine ran, for one of the plain engine.
    """
    return (
        execution.origin.rows_known > 0
        and ExecutionWarning.ACCELERATED not in execution.origin.remarks
    )


def identities(questions: Sequence[PlanOnCluster], samples: EncodedQueries) -> list[Identity]:
    """The identity of each question, of which `samples` holds the numbers."""
    features = samples.features.astype(np.float32)  # as they are kept in a file
    return [
        _identity(question, *row)
        for question, *row in zip(questions, features, samples.cells.tolist(), strict=True)
    ]


def _identity(question: PlanOnCluster, features: NDArray[np.float32], cell: int) -> Identity:
    job = question.job
    if job is None or not job.answers_alone:
        return Identity(configuration_of(features, cell))
    cluster = question.cluster
    resources = (cluster.nodes, cluster.cores, cluster.memory_bytes, cluster.machine_speed)
    platforms = sorted({each.name for each in question.plan.platforms})
    told = features[PLAN_COLUMNS].tobytes() if job.has_rows else job.workload.encode()
    of_job = b"".join([told, repr((platforms, job.is_accelerated, job.has_rows)).encode()])
    numbers = number_of(of_job + repr(resources).encode()), number_of(of_job)
    if job.has_rows:
        return Identity(*numbers)
    mark = number_of(f"{job.tasks} {job.description}".encode())
    return Identity(*numbers, float(job.read_bytes), mark)


def engine_of(pair: tuple[OperatorKind, Platform]) -> int:
    """The bit of whatever engine runs a kind on a platform.

    Commands that are run as a whole say nothing of operators, nor these of them. Platforms without
    a name share one bit.
    """
    kind, platform = pair
    if platform not in NAMED_PLATFORMS:
        return UNNAMED
    return 1 << platform + (len(NAMED_PLATFORMS) if kind is OperatorKind.COMMAND else 0)


def engines_of(plan: Plan) -> int:
    """The bits of all engines of a plan."""
    kinds = (operator.kind for operator in plan.workflow.operators)
    pairs = zip(kinds, plan.platforms, strict=True)
    return reduce(or_, map(engine_of, pairs))


def configuration_of(features: NDArray[np.float32], cell: int) -> int:
    """A number for a flat vector and its cell, see `number_of`."""
    return number_of(features.tobytes() + int(cell).to_bytes(8, "little", signed=True))


def number_of(content: bytes) -> int:
    """A hash of 64 bits, so long that no two contents of a home share one."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def encode(questions: Sequence[PlanOnCluster], starts: Mapping[str, PredictLog]) -> EncodedQueries:
    """The numbers of `questions`; evaluates every start model once.

    Raises:
        PredictorFailedError: a start model gave a wrong number of values or non-finite ones.
    """
    for begin in range(0, len(questions), _AT_ONCE):
        PlanOnCluster.featurize(questions[begin : begin + _AT_ONCE])
    features = np.zeros((len(questions), FLAT_FEATURES))
    for row, question in enumerate(questions):
        features[row] = flatten(question.features)
    cells = np.array([cell_of(question.plan).index for question in questions], np.int64)
    return EncodedQueries(features, cells, checked_answers(questions, starts))


def checked_answers(
    questions: Sequence[PlanOnCluster], starts: Mapping[str, PredictLog]
) -> dict[str, Floats]:
    """The answers of each start model, evaluated once; errors as `encode`."""
    answers: dict[PredictLog, Floats] = {}  # two names may stand for one model
    for name, start in starts.items():
        if start not in answers:
            answers[start] = checked_log(name, start(questions), len(questions))
    return {name: answers[start] for name, start in starts.items()}
