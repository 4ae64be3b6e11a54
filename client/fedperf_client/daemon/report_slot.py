"""Releases of report slots: noise, to which a sum is added that another process computed.

A residual report is asked by the schedule alone, a directed one by a question of the coordinator as
well (`release.questions`). Either is about executions of one epoch only, each in the reports of one
group (`release.report_slots`). A report begins as noise alone, and a sum that is there in time is
added. A sum that fails or takes too long counts as nothing. Nothing that takes long is left to do
then, so the report leaves at its time as noise alone.
"""

import numpy as np
import structlog
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import ReportTask
from fedperf_client.contributions.mechanisms import (
    NoiseSource,
    SumWorkloads,
    noise_alone,
    report_sum,
    with_sum,
)
from fedperf_client.federation.request import RequestRefusedError
from fedperf_client.home.config import Home
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.query_store import FetchQuestion, QueryStore
from fedperf_client.release.schedule import span_covered
from fedperf_client.workers.worker_process import ComputationFailedError, TaskRunner
from fedperf_shared.exchange import Refusal
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import NoisySum, Schedule, Slot

log = structlog.get_logger()


class ReportMaker:
    """Makes the releases of one schedule's report slots."""

    def __init__(
        self,
        home: Home,
        schedule: Schedule,
        *,
        ask: FetchQuestion,
        compute: TaskRunner,
    ) -> None:
        """Read executions and models from `home`, questions by `ask`; `compute` elsewhere."""
        self._store = home.store
        self._models = FetchedModels(home.models)
        self._schedule = schedule
        self._questions = QueryStore(home.questions, schedule.calendar.period, ask)
        self._compute = compute

    def fetch_question(self, slot: Slot) -> None:
        """Ask what a directed slot wants to know, once; errors as `QueryStore.fetch`."""
        if kind_of(slot.parameters).has_question:
            self._questions.fetch(slot.key)

    def has_query(self, slot: Slot) -> bool:
        """Whether the report has the question that it needs; one that is not directed needs none.

        Raises:
            RefusedQuestionError: the question is about another model; said once.
        """
        is_told = not kind_of(slot.parameters).has_question
        return is_told or self._question(slot, self._models.reference()) is not None

    def release(self, slot: Slot, noise: NoiseSource, *, seconds: float) -> NoisySum:
        """The slot's report, noise and its sum; one that takes longer than `seconds` is nothing.

        Raises:
            RequestRefusedError: not the slot of a report, or nothing was asked.
        """
        reference, kind = self._models.reference(), kind_of(slot.parameters)
        question = self._question(slot, reference) if kind.has_question else None
        if not kind.is_report or kind.has_question is (question is None):
            raise RequestRefusedError(
                "not the slot of a report that was asked for", Refusal.NOT_DUE
            )
        version = reference.model_version if question is None else question.version
        report = noise_alone(noise, slot, version=version)
        task = self._task(slot, reference, report_sum(slot, question))
        return with_sum(report, self._sum(task, len(report.values), seconds))

    def _question(self, slot: Slot, reference: Checkpoint) -> CellQuery | None:
        version = reference.model_version
        return self._questions.answerable(slot.key, reference_version=version)

    def _task(self, slot: Slot, reference: Checkpoint, summed: SumWorkloads) -> ReportTask:
        covered = span_covered(self._schedule, slot.key, self._models.epoch_starts())
        return ReportTask(self._store, reference, covered.since, covered.until, summed)

    def _sum(self, task: ReportTask, size: int, seconds: float) -> NDArray[np.int64]:
        """Return the task's result, or nothing if it fails or takes too long, as if nothing ran."""
        try:
            return self._compute(task, seconds=seconds)
        except ComputationFailedError as error:
            log.warning("a report leaves as noise alone", reason=str(error))
            return np.zeros(size, dtype=np.int64)
