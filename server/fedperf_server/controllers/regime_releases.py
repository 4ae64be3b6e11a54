"""The coordinator's evidence at one tick: the releases and questions of its period.

A `Snapshot` is read once a tick, in one transaction, and all desks look at it. A release or a
question never changes once it is stored, so what was decoded at an earlier tick is kept. Where
nothing new was stored, the snapshot is the one before, with all that was computed from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from fedperf_server.inference.cell_directions import (
    CellPosterior,
    QueryResponse,
    QueryResponses,
    infer_cells,
)
from fedperf_server.inference.corrections import ReceivedReport
from fedperf_server.state import releases
from fedperf_server.state.database import Database
from fedperf_server.state.drift_regimes import DriftRegime, epochs, reported_among
from fedperf_server.state.releases import ReportKey, StoredReport, newest_question, stored_questions
from fedperf_shared.releases.kinds import DIRECTED_REPORT, RESIDUAL_REPORT, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import SlotKey


@dataclass(slots=True)
class CellLearner:
    """Learns from evidence, and keeps the result: where it only grew, the new answers are added.

    The result depends on the evidence alone: learning all of it anew gives the same.
    """

    _last: tuple["RegimeReleases", CellPosterior] | None = None

    def learn(self, known: "RegimeReleases") -> CellPosterior:
        """As `infer_cells`, of all that is known."""
        known = replace(known, answered=tuple(each for each in known.answered if each.answers))
        before = None
        if self._last is not None and _continues(known, self._last[0]):
            before = self._last
        learned = infer_cells(
            known.plain,
            known.answered[len(before[0].answered) if before else 0 :],
            reference_version=known.reference_version,
            known=before[1] if before else None,
        )
        self._last = known, learned
        return learned


@dataclass(frozen=True, eq=False)
class RegimeReleases:
    """All releases about one epoch within one period.

    Attributes:
        plain: accepted residual reports.
        answered: questions and accepted answers, oldest slot first.
        reference_version: model version that all of it is about.
        learner: remembers what was learned of the epoch before.
    """

    plain: tuple[ReceivedReport, ...]
    answered: tuple[QueryResponses, ...]
    reference_version: int
    learner: CellLearner = field(default_factory=CellLearner)

    @property
    def reports(self) -> int:
        """Number of releases that it rests on."""
        return len(self.plain) + sum(len(each.answers) for each in self.answered)

    def before(self, window: int) -> bool:
        """Whether some of it was released before `window`."""
        plain = any(each.report.slot.window < window for each in self.plain)
        return plain or any(
            each.answers and each.question.slot.window < window for each in self.answered
        )

    def until(self, window: int) -> "RegimeReleases":
        """The part of it that was asked for in `window` or before."""
        return replace(
            self,
            plain=tuple(each for each in self.plain if each.report.slot.window <= window),
            answered=tuple(each for each in self.answered if each.question.slot.window <= window),
        )

    @cached_property
    def learned(self) -> CellPosterior:
        """What follows from it about the cells."""
        return self.learner.learn(self)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything stored of a period at one moment.

    Attributes:
        at: the moment.
        period: whose releases these are.
        epochs: all that were declared, oldest first.
        reports: accepted ones, oldest window first.
        questions: that were asked, oldest slot first.
        learner: of all snapshots of the period.
    """

    at: datetime
    period: Period
    epochs: tuple[DriftRegime, ...]
    reports: tuple[StoredReport, ...]
    questions: tuple[CellQuery, ...]
    learner: CellLearner = field(default_factory=CellLearner)
    _by_epoch: dict[int, RegimeReleases] = field(default_factory=dict)

    def epoch(self, window: int) -> DriftRegime:
        """The epoch that reports of `window` are about."""
        return reported_among(self.epochs, self.period, window=window)

    def count(self, *, until: int) -> int:
        """Number of reports accepted for slots of windows up to `until`."""
        return sum(each.report.slot.window <= until for each in self.reports)

    def evidence(self, window: int) -> RegimeReleases:
        """All evidence about the epoch that reports of `window` are about, to the epoch's end."""
        epoch = self.epoch(window)
        if epoch.number not in self._by_epoch:
            self._by_epoch[epoch.number] = self._about(epoch)
        return self._by_epoch[epoch.number]

    def _about(self, epoch: DriftRegime) -> RegimeReleases:
        plain: list[ReceivedReport] = []
        answers: dict[SlotKey, list[QueryResponse]] = {}
        for stored in self.reports:
            organization = stored.organization_id.hex()
            if kind_of(stored.report) is RESIDUAL_REPORT:
                report = RESIDUAL_REPORT.as_release(stored.report)
                if self._is_of(epoch, report.slot, report.reference_version):
                    planned = RESIDUAL_REPORT.as_parameters(stored.slot.parameters)
                    plain.append(ReceivedReport(organization, report, planned, stored.is_first))
            else:
                answer = DIRECTED_REPORT.as_release(stored.report)
                parameters = DIRECTED_REPORT.as_parameters(stored.slot.parameters)
                answers.setdefault(answer.slot, []).append(
                    QueryResponse(organization, answer, parameters)
                )
        asked = [
            QueryResponses(question, tuple(answers.get(question.slot, ())))
            for question in self.questions
            if self._is_of(epoch, question.slot, question.reference_version)
        ]
        return RegimeReleases(tuple(plain), tuple(asked), epoch.reference_version, self.learner)

    def _is_of(self, epoch: DriftRegime, slot: SlotKey, version: int) -> bool:
        return self.epoch(slot.window) == epoch and version == epoch.reference_version


class SnapshotReader:
    """Reads the snapshots of a period, one a tick."""

    def __init__(self, database: Database, period: Period) -> None:
        self._database = database
        self._period = period
        self._reports: dict[ReportKey, StoredReport] = {}
        self._learner = CellLearner()
        self._last: tuple[object, Snapshot] | None = None

    def read(self, *, at: datetime) -> Snapshot:
        """The snapshot of what is stored now.

        Raises:
            DatabaseError: the database cannot be read.
            UnknownVersionError: no model was promoted yet.
        """
        period = self._period
        with self._database.transaction() as session:
            known = epochs(session)
            stored = (known, releases.count_reports(session, period), newest_question(session))
            if self._last is not None and self._last[0] == stored:
                return replace(self._last[1], at=at)
            self._reports |= releases.stored_reports(session, period, but=self._reports.keys())
            asked = tuple(stored_questions(session, period))
        reports = tuple(self._reports[key] for key in sorted(self._reports))
        snapshot = Snapshot(at, period, known, reports, asked, self._learner)
        self._last = stored, snapshot
        return snapshot


def _continues(now: RegimeReleases, before: RegimeReleases) -> bool:
    """Whether `now` is the evidence of `before` and answers to later questions."""
    asked = zip(before.answered, now.answered, strict=False)
    return (
        before.reference_version == now.reference_version
        and len(before.answered) <= len(now.answered)
        and _same(before.plain, now.plain)
        and all(
            a.question.version == b.question.version and _same(a.answers, b.answers)
            for a, b in asked
        )
    )


def _same(
    some: Sequence[ReceivedReport | QueryResponse],
    others: Sequence[ReceivedReport | QueryResponse],
) -> bool:
    """Whether both are the same stored reports."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a.report is b.report for a, b in pairs)
