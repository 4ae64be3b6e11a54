"""Own executions as a mixture reads them: numbers, places, and groups that folds never split."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedperf_client.prediction.evidence import History, encode, number_of
from fedperf_client.prediction.mixture.matched_folds import Places
from fedperf_client.prediction.mixture.mixture import KnownRuns, groups_of
from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.execution import SizedPlan


def known_of(history: History, starts: Mapping[str, PredictLog]) -> KnownRuns:
    """Own executions in numbers; errors as `encode`."""
    samples = encode(history.questions, starts)
    workloads = np.array([number_of(each.encode()) for each in history.workloads], np.int64)
    groups = groups_of(workloads, samples.configurations())
    return KnownRuns(samples, history.log_seconds, places_of(history.questions), groups)


def places_of(questions: Sequence[SizedPlan]) -> Places:
    """Log of the cores over all nodes, and of the rows of all sources."""
    cores = np.array([question.cluster.cores for question in questions], dtype=np.float64)
    rows = np.array(
        [question.plan.workflow.source_rows for question in questions], dtype=np.float64
    )
    return Places(np.log(cores), np.log1p(rows))
