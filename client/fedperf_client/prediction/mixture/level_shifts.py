"""Own executions brought to the level of today, where the same work takes longer or shorter since.

Drift is looked for in what the public start was off by: it is the same for the whole history,
whatever was fetched since, and nobody outside has a say in it. Executions from before a
concept drift count with what they would take today, in the fit of every member and in the
folds that weigh them. Leaving them out instead forgets what they tell about sizes and jobs:
in made-up worlds errors were up to 6 % larger so than without looking for drift at all, with
their level mended up to two thirds smaller and never larger.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fedperf_client.drift.streams import Observed, Stream, streams_of
from fedperf_client.prediction.evidence import History, Samples, encode
from fedperf_client.prediction.learners.residual_learners import PUBLIC
from fedperf_client.prediction.mixture.mixture import Known
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import SizedPlan


def streams_in(history: History, public: PredictLog) -> tuple[Stream, ...]:
    """The streams of a history with moments; errors as `encode`."""
    return _streams(history, encode(history.questions, {PUBLIC: public}))


def streams_known(history: History, known: Known) -> tuple[Stream, ...]:
    """The same, of what is encoded; none without moments or without the public start."""
    if history.finished_at is None or PUBLIC not in known.samples.starts:
        return ()
    return _streams(history, known.samples)


def as_of_today(known: Known, streams: Iterable[Stream]) -> Known:
    """What is known, as it would be measured today."""
    log_seconds = known.log_seconds.copy()
    for stream in streams:
        log_seconds[stream.rows] += stream.lags()
    return replace(known, log_seconds=log_seconds)


def _streams(history: History, samples: Samples) -> tuple[Stream, ...]:
    return streams_of(
        Observed(
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
