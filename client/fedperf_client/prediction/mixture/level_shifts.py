"""Own executions brought to the level of today, where the same work takes longer or shorter since.

Drift is looked for in what the public start was off by: it is the same for the whole history,
whatever was fetched since, and nobody outside has a say in it. Executions from before a
concept drift count with what they would take today, in the fit of every member and in the
folds that weigh them. Leaving them out instead forgets what they tell about sizes and jobs:
in made-up worlds errors were up to 6 % larger so than without looking for drift at all, with
their level mended up to two thirds smaller and never larger.
"""

from collections.abc import Iterable

import numpy as np

from fedperf_client.drift.streams import ObservedExecutions, Stream, streams_of
from fedperf_client.prediction.columns import ExecutionColumns
from fedperf_client.prediction.evidence import History, Samples
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.mixture.mixture import KnownRuns
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import SizedPlan


def observed_in(columns: ExecutionColumns) -> ObservedExecutions:
    """Own executions that ended well, in the order in which they finished."""
    return ObservedExecutions(
        columns.cell,
        columns.workload_index(),
        columns.log_seconds - columns.start,
        columns.inputs(),
        columns.moments(),
    )


def streams_known(history: History, known: KnownRuns) -> tuple[Stream, ...]:
    """The same, of what is encoded; none without moments or without the public start."""
    if history.finished_at is None or PUBLIC not in known.samples.starts:
        return ()
    return _streams(history, known.samples)


def as_of_today(log_seconds: Floats, streams: Iterable[Stream]) -> Floats:
    """What was measured, log seconds [executions], as it would be today."""
    today = log_seconds.copy()
    for stream in streams:
        today[stream.rows] += stream.lags()
    return today


def _streams(history: History, samples: Samples) -> tuple[Stream, ...]:
    return streams_of(
        ObservedExecutions(
            samples.cells,
            history.workload_index(),
            history.log_seconds - samples.starts[PUBLIC],
            _inputs(history.questions),
            history.finished_at or (),
        )
    )


def _inputs(questions: Iterable[SizedPlan]) -> Floats:
    """Logs of cores, their speed, source rows and operators, [questions, 4]."""
    rows = [
        (
            np.log(each.cluster.cores),
            np.log(each.cluster.machine_speed),
            np.log1p(each.plan.workflow.source_rows),
            np.log(len(each.plan.platforms)),
        )
        for each in questions
    ]
    return np.array(rows, np.float64).reshape(len(rows), 4)
