"""What a coordinator makes of reports in a year with epochs: synthetic rows, and their buffer.

Questions, corrections, rows, and when rows go into the buffer with which labels are the
product's functions; noise is seeded, and nothing is stored or sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedperf_client.learning.residuals import workload_residuals
from fedperf_client.privacy.directed_report import cell_report
from fedperf_client.privacy.report_mechanism import WorkloadResiduals, residual_report
from fedperf_client.release.schedule import span_covered
from fedperf_server.desks.reports import SYNTHETIC_ROWS
from fedperf_server.inference.cell_directions import (
    CHANGE,
    AnsweredQuestion,
    DirectedAnswer,
    ask_cells,
    learn_cells,
)
from fedperf_server.inference.corrections import ReceivedReport
from fedperf_server.rehearsal.buffer import ROWS_PER_SEGMENT, Earlier
from fedperf_server.rehearsal.synthetic_batch import SyntheticBatch
from fedperf_server.rehearsal.synthetic_rows import (
    Catalogue,
    PredictLog,
    RehearsalBuffer,
)
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import SizedPlan
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    model_from_arrays,
    state_to_arrays,
)
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.releases.kinds import DIRECTED_REPORT, RESIDUAL_REPORT, kind_of
from fedperf_shared.releases.release import ReleaseKind, Schedule, Slot
from fedperf_simulations.federation.channel import SeededNoise
from fedperf_simulations.measured_set.drifting_platforms import DriftingYear


@dataclass(slots=True, eq=False)
class Reports:
    """The reports of a year, as far as it has gone.

    Attributes:
        schedule: of every organization.
        organizations: by name, what each executes.
        catalogue: public plans on public clusters, by cell.
        noise: of everybody.
        reference: that the epoch's residuals are taken against; None before the first.
        buffer: rows of earlier epochs.

    Reports lag behind by a window (`fedperf_server.state.epochs`): those of an epoch's first window
    are still about the one before.
    """

    schedule: Schedule
    organizations: Mapping[str, DriftingYear]
    catalogue: Catalogue
    noise: SeededNoise
    reference: GGFN | None = None
    buffer: RehearsalBuffer = field(default_factory=lambda: RehearsalBuffer(ROWS_PER_SEGMENT))
    _published: tuple[SyntheticRow, ...] = ()
    _plain: list[ReceivedReport] = field(default_factory=list)
    _answered: list[AnsweredQuestion] = field(default_factory=list)
    _version: int = 0
    _declared: GGFN | None = None

    def begin_epoch(self, model: GGFN) -> None:
        """An epoch begins with the next window to report in; `model` is in force then."""
        self._declared = model
        if self.reference is None:
            self._switch()

    def report(self, window: int) -> None:
        """Let what the schedule has in `window` leave, and publish what follows."""
        slots = [
            each
            for each in self.schedule.slots
            if each.key.kind is ReleaseKind.RESIDUAL_REPORT and each.key.window == window
        ]
        for slot in slots:
            self._release(slot)
        if slots:
            self._publish()
        if self._declared is not None:
            self._keep(self._declared, window)
            self._switch()

    def _keep(self, teacher: GGFN, window: int) -> None:
        """What the epoch before left, with the labels of the model that was in force at its end."""
        version = self._version
        checkpoint = encode_checkpoint(Checkpoint(state_to_arrays(teacher), version))
        begun = self.schedule.timetable.period.window_start(window)
        earlier = Earlier(begun, self._published, checkpoint, version).labelled(predict_with)
        self.buffer = self.buffer.with_rows(earlier.rows)

    def _switch(self) -> None:
        self.reference, self._declared, self._published = self._declared, None, ()
        self._plain, self._answered = [], []
        self._version += 1

    def _release(self, slot: Slot) -> None:
        span = span_covered(self.schedule, slot.key)
        reference = self._reference()
        lived = {
            name: workload_residuals(reference, each.between(span.since, span.until))
            for name, each in self.organizations.items()
        }
        if kind_of(slot.parameters).has_question:
            self._answered.append(self._asked_and_answered(slot, lived))
            return
        parameters = RESIDUAL_REPORT.as_parameters(slot.parameters)
        self._plain += [
            ReceivedReport(
                name,
                residual_report(
                    workloads,
                    self.noise,
                    slot=slot.key,
                    parameters=parameters,
                    reference_version=self._version,
                ),
                parameters,
            )
            for name, workloads in lived.items()
        ]

    def _asked_and_answered(
        self, slot: Slot, lived: Mapping[str, Sequence[WorkloadResiduals]]
    ) -> AnsweredQuestion:
        parameters = DIRECTED_REPORT.as_parameters(slot.parameters)
        learned = learn_cells(self._plain, self._answered, reference_version=self._version)
        question = ask_cells(
            learned.correction,
            [(learned.sums_of(name, parameters), parameters) for name in lived],
            slot=slot.key,
            version=1,
            change=CHANGE if self._reported_before(slot.key.window) else 0.0,
        )
        answers = []
        for name, workloads in lived.items():
            report = cell_report(
                workloads, question, self.noise, slot=slot.key, parameters=parameters
            )
            answers.append(DirectedAnswer(name, report, parameters))
        return AnsweredQuestion(question, tuple(answers))

    def _publish(self) -> None:
        learned = learn_cells(self._plain, self._answered, reference_version=self._version)
        self._published = SyntheticBatch.from_reports(
            self._plain,
            learned.correction,
            self.catalogue,
            rows=SYNTHETIC_ROWS,
            predict=predict_log(self._reference()),
            seed=len(self._plain) + sum(len(each.answers) for each in self._answered),
        ).rows

    def _reported_before(self, window: int) -> bool:
        return any(each.report.slot.window < window for each in self._plain)

    def _reference(self) -> GGFN:
        if self.reference is None:
            raise TypeError("reports need an epoch")
        return self.reference


def predict_with(checkpoint: bytes) -> PredictLog:
    """A checkpoint's predictions on entries of a catalogue."""
    return predict_log(model_from_arrays(decode_checkpoint(checkpoint).arrays))


def predict_log(model: GGFN) -> PredictLog:
    """A model's predictions on entries of a catalogue."""

    def answers(entries: Sequence[SizedPlan]) -> NDArray[np.float64]:
        return predict(model, [PlanGraph.of(each.plan, each.cluster) for each in entries])

    return answers
