"""The questions of directed slots: made once when their slot opens, stored, answered.

A question follows from the reports that were accepted until then. It is stored before
anybody gets it and never changed, so a coordinator that was killed asks the same again.
The first report slot of a window is plain; a later one has a question where somebody
declared a directed report for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedperf_server.inference.cell_directions import (
    CHANGE,
    AnsweredQuestion,
    DirectedAnswer,
    Learned,
    ask_cells,
    learn_cells,
)
from fedperf_server.inference.corrections import ReceivedReport
from fedperf_server.state import audit, releases
from fedperf_server.state.database import Database, QuestionRow
from fedperf_server.state.epochs import epochs, reported_among
from fedperf_shared.releases.kinds import DIRECTED_REPORT, RESIDUAL_REPORT, kind_of
from fedperf_shared.releases.period import Period, Timetable, to_unix_ms
from fedperf_shared.releases.questions import CellQuestion
from fedperf_shared.releases.release import DirectedParameters, ReleaseKind, SlotKey
from fedperf_shared.wire.codec import decode_question, encode_question


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that was released in an epoch, as far as it lies in a period.

    Attributes:
        plain: accepted residual reports.
        answered: questions and accepted answers, oldest slot first.
        reference_version: model version that all of it is about.
    """

    plain: tuple[ReceivedReport, ...]
    answered: tuple[AnsweredQuestion, ...]
    reference_version: int

    @property
    def reports(self) -> int:
        """How many releases it rests on."""
        return len(self.plain) + sum(len(each.answers) for each in self.answered)

    def before(self, window: int) -> bool:
        """Whether some of it was released before `window`."""
        plain = any(each.report.slot.window < window for each in self.plain)
        return plain or any(
            each.answers and each.question.slot.window < window for each in self.answered
        )

    def until(self, window: int) -> "Evidence":
        """What of it was asked for in `window` or before."""
        return replace(
            self,
            plain=tuple(each for each in self.plain if each.report.slot.window <= window),
            answered=tuple(each for each in self.answered if each.question.slot.window <= window),
        )

    def learned(self) -> Learned:
        """What it tells."""
        return learn_cells(self.plain, self.answered, reference_version=self.reference_version)


def evidence(session: Session, period: Period, *, window: int) -> Evidence:
    """What is stored of the epoch that reports of `window` are about, to its end.

    Raises:
        UnknownVersionError: no model was promoted yet.
    """
    known = epochs(session)
    epoch = reported_among(known, period, window=window)

    def is_of_epoch(slot: SlotKey, version: int) -> bool:
        about = reported_among(known, period, window=slot.window)
        return about == epoch and version == epoch.reference_version

    plain: list[ReceivedReport] = []
    answers: dict[SlotKey, list[DirectedAnswer]] = {}
    for stored in releases.stored_reports(session, period):
        organization = stored.organization_id.hex()
        if kind_of(stored.report) is RESIDUAL_REPORT:
            report = RESIDUAL_REPORT.as_release(stored.report)
            if is_of_epoch(report.slot, report.reference_version):
                planned = RESIDUAL_REPORT.as_parameters(stored.slot.parameters)
                plain.append(ReceivedReport(organization, report, planned))
        else:
            answer = DIRECTED_REPORT.as_release(stored.report)
            parameters = DIRECTED_REPORT.as_parameters(stored.slot.parameters)
            answers.setdefault(answer.slot, []).append(
                DirectedAnswer(organization, answer, parameters)
            )
    asked = [
        AnsweredQuestion(question, tuple(answers.get(question.slot, ())))
        for question in _stored_questions(session, period)
        if is_of_epoch(question.slot, question.reference_version)
    ]
    return Evidence(tuple(plain), tuple(asked), epoch.reference_version)


def question_payload(session: Session, period: Period, slot: SlotKey) -> bytes:
    """As `codec.encode_question` wrote it; empty where none was made."""
    row = session.get(QuestionRow, _key(period, slot))
    return row.payload if row else b""


def asked_question(session: Session, period: Period, slot: SlotKey) -> CellQuestion | None:
    """The question of the slot; None where none was made."""
    payload = question_payload(session, period, slot)
    return decode_question(payload) if payload else None


class QuestionDesk:
    """Makes the questions of a period."""

    def __init__(self, database: Database, timetable: Timetable) -> None:
        self._database = database
        self._timetable = timetable

    def ask(self, *, at: datetime) -> tuple[CellQuestion, ...]:
        """Make what questions are missing in the window of now; those that were made.

        Raises:
            UnknownVersionError: no model was promoted yet.
        """
        made = [self._ask(slot, at=at) for slot in self._open(at)]
        return tuple(each for each in made if each is not None)

    def _open(self, at: datetime) -> list[SlotKey]:
        """Later report slots of the window of now that have opened."""
        period, times = self._timetable.period, self._timetable.report_slots
        window = period.window_at(at)
        if window is None:
            return []
        start = period.window_start(window)
        return [
            SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)
            for index in range(1, len(times))
            if start + times[index].opens_after <= at
        ]

    def _ask(self, slot: SlotKey, *, at: datetime) -> CellQuestion | None:
        """The question, if it is missing and somebody will answer it."""
        period = self._timetable.period
        with self._database.transaction() as session:
            if session.get(QuestionRow, _key(period, slot)) is not None:
                return None
            declared = _who_answers(session, period, slot)
            if not declared:
                return None
            known = evidence(session, period, window=slot.window)
            version = (session.scalar(select(func.max(QuestionRow.version))) or 0) + 1
        learned = known.learned()
        question = ask_cells(
            learned.correction,
            [(learned.sums_of(name, each), each) for name, each in declared],
            slot=slot,
            version=version,
            change=CHANGE if known.before(slot.window) else 0.0,
        )
        with self._database.transaction() as session:
            if session.get(QuestionRow, _key(period, slot)) is not None:
                return None
            session.add(_row(period, question, at=at))
            detail: audit.Detail = {
                "window": slot.window,
                "slot": slot.index,
                "version": version,
                "reports": known.reports,
            }
            audit.record(session, "question_asked", detail, at=at)
        return question


def _who_answers(
    session: Session, period: Period, slot: SlotKey
) -> list[tuple[str, DirectedParameters]]:
    found = []
    for organization_id, schedule in releases.declared_schedules(session, period):
        planned = schedule.slot(slot)
        if planned is not None and kind_of(planned.parameters) is DIRECTED_REPORT:
            found.append((organization_id.hex(), DIRECTED_REPORT.as_parameters(planned.parameters)))
    return found


def _stored_questions(session: Session, period: Period) -> Sequence[CellQuestion]:
    query = (
        select(QuestionRow)
        .where(QuestionRow.period_start == to_unix_ms(period.start))
        .order_by(QuestionRow.window, QuestionRow.index)
    )
    return [decode_question(row.payload) for row in session.scalars(query)]


def _row(period: Period, question: CellQuestion, *, at: datetime) -> QuestionRow:
    period_start, window, index = _key(period, question.slot)
    return QuestionRow(
        period_start=period_start,
        window=window,
        index=index,
        version=question.version,
        payload=encode_question(question),
        asked_at=to_unix_ms(at),
    )


def _key(period: Period, slot: SlotKey) -> tuple[int, int, int]:
    return to_unix_ms(period.start), slot.window, slot.index
