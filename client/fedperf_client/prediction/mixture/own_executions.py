"""Own executions as a mixture reads them: numbers, places, and groups that folds never split."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import History, encode
from fedperf_client.prediction.mixture.matched_folds import Places
from fedperf_client.prediction.mixture.mixture import KnownRuns
from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.execution import SizedPlan


def known_of(history: History, starts: Mapping[str, PredictLog]) -> KnownRuns:
    """Own executions in numbers; errors as `encode`."""
    samples = encode(history.questions, starts)
    return KnownRuns(samples, history.log_seconds, places_of(history.questions), _groups(history))


def places_of(questions: Sequence[SizedPlan]) -> Places:
    """Log of the cores over all nodes, and of the rows of all sources."""
    cores = np.array([question.cluster.cores for question in questions], dtype=np.float64)
    rows = np.array(
        [question.plan.workflow.source_rows for question in questions], dtype=np.float64
    )
    return Places(np.log(cores), np.log1p(rows))


def _groups(history: History) -> NDArray[np.int64]:
    """Workload numbers; of one workload alone its configurations, of one of these its repeats."""
    groups = history.workload_index()
    if groups.max(initial=0) == 0:
        groups = _numbered(history.questions)
    return np.arange(len(history)) if groups.max(initial=0) == 0 else groups


def _numbered(questions: Sequence[SizedPlan]) -> NDArray[np.int64]:
    numbers: dict[SizedPlan, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in questions], np.int64)
