"""The coordinator's evidence at one tick: the releases and linear queries of its period.

A `Snapshot` is read once per tick, in one transaction, and is the only argument of a controller. It
also holds the database, the calendar and the grace period. Stored releases and queries never
change, so decoded ones are cached. If nothing new was stored, the previous snapshot is used again,
with everything that was computed from it.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from fedperf_server.inference.cell_directions import (
    CellPosterior,
    QueryResponses,
    infer_cells,
)
from fedperf_server.inference.corrections import QueryResponse, ReceivedReport
from fedperf_server.state import releases
from fedperf_server.state.database import Database
from fedperf_server.state.drift_regimes import DriftRegime, find_reported_regime, regimes
from fedperf_server.state.releases import (
    ReportKey,
    newest_query_version,
    stored_queries,
)
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.releases.release import SlotKey


@dataclass(slots=True)
class CellLearner:
    """Infers the cell posterior and caches it, so that new responses update it.

    The result depends on the evidence alone: inference from scratch gives the same.
    """

    _last: tuple["RegimeReleases", CellPosterior] | None = None

    def infer(self, evidence: "RegimeReleases") -> CellPosterior:
        """Return the posterior of `infer_cells` from all evidence."""
        query_responses = tuple(each for each in evidence.query_responses if each.responses)
        evidence = replace(evidence, query_responses=query_responses)
        previous = None
        if self._last is not None and _continues(evidence, self._last[0]):
            previous = self._last
        posterior = infer_cells(
            evidence.plain,
            evidence.query_responses[len(previous[0].query_responses) if previous else 0 :],
            reference_version=evidence.reference_version,
            previous=previous[1] if previous else None,
        )
        self._last = evidence, posterior
        return posterior


@dataclass(frozen=True, eq=False)
class RegimeReleases:
    """The releases about one regime within one period."""

    plain: tuple[ReceivedReport, ...]  # accepted residual reports
    query_responses: tuple[
        QueryResponses, ...
    ]  # linear queries and accepted responses, oldest slot first
    reference_version: int  # model version that residuals refer to
    learner: CellLearner = field(default_factory=CellLearner)  # caches the posterior

    @property
    def reports(self) -> int:
        """Return the number of releases."""
        return len(self.plain) + sum(len(each.responses) for each in self.query_responses)

    def has_releases_before(self, window: int) -> bool:
        """Return whether some of it was released before `window`."""
        plain = any(each.report.slot.window < window for each in self.plain)
        return plain or any(
            each.responses and each.query.slot.window < window for each in self.query_responses
        )

    def until(self, window: int) -> "RegimeReleases":
        """Return the part for slots of `window` and earlier windows."""
        return replace(
            self,
            plain=tuple(each for each in self.plain if each.report.slot.window <= window),
            query_responses=tuple(
                each for each in self.query_responses if each.query.slot.window <= window
            ),
        )

    @cached_property
    def posterior(self) -> CellPosterior:
        """Return the posterior of the cells."""
        return self.learner.infer(self)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The stored releases and queries of a calendar's period at one time."""

    database: Database  # the database that they were read from
    calendar: ReleaseCalendar  # the public calendar
    grace: timedelta  # how late reports may be
    at: datetime  # the time
    regimes: tuple[DriftRegime, ...]  # all drift regimes, oldest first
    reports: tuple[ReceivedReport | QueryResponse, ...]  # accepted reports, oldest window first
    queries: tuple[CellQuery, ...]  # linear queries, oldest slot first
    # Shared by all snapshots of the period.
    learner: CellLearner = field(default_factory=CellLearner)
    _by_regime: dict[int, RegimeReleases] = field(default_factory=dict)

    @property
    def period(self) -> Period:
        """Return the period of the releases."""
        return self.calendar.period

    @property
    def reported_window(self) -> int:
        """Return the newest window whose reports are due, including the grace period."""
        return self.calendar.reported_window(self.at - self.grace)

    def regime(self, window: int) -> DriftRegime:
        """Return the regime that reports of `window` cover."""
        return find_reported_regime(self.regimes, self.period, window=window)

    def count(self, *, until: int) -> int:
        """Return the number of reports accepted for slots of windows up to `until`."""
        return sum(each.report.slot.window <= until for each in self.reports)

    def evidence(self, window: int) -> RegimeReleases:
        """Return all evidence about the regime that reports of `window` cover."""
        regime = self.regime(window)
        if regime.number not in self._by_regime:
            self._by_regime[regime.number] = self._collect(regime)
        return self._by_regime[regime.number]

    def _collect(self, regime: DriftRegime) -> RegimeReleases:
        plain: list[ReceivedReport] = []
        responses: dict[SlotKey, list[QueryResponse]] = {}
        for each in self.reports:
            slot = each.report.slot
            if isinstance(each, QueryResponse):
                responses.setdefault(slot, []).append(each)
            elif self._belongs_to(regime, slot, each.report.reference_version):
                plain.append(each)
        query_responses = [
            QueryResponses(query, tuple(responses.get(query.slot, ())))
            for query in self.queries
            if self._belongs_to(regime, query.slot, query.reference_version)
        ]
        return RegimeReleases(
            tuple(plain), tuple(query_responses), regime.reference_version, self.learner
        )

    def _belongs_to(self, regime: DriftRegime, slot: SlotKey, version: int) -> bool:
        return self.regime(slot.window) == regime and version == regime.reference_version


@dataclass(slots=True, eq=False, repr=False)
class SnapshotReader:
    """Reads the snapshots of a calendar, one per tick."""

    database: Database
    calendar: ReleaseCalendar
    _: KW_ONLY
    grace: timedelta
    _reports: dict[ReportKey, ReceivedReport | QueryResponse] = field(
        default_factory=dict, init=False
    )
    _learner: CellLearner = field(default_factory=CellLearner, init=False)
    _last: tuple[object, Snapshot] | None = field(default=None, init=False)

    def read(self, *, at: datetime) -> Snapshot:
        """Return the snapshot of the current database.

        Raises:
            DatabaseError: the database cannot be read.
            UnknownVersionError: no model was promoted yet.
        """
        period = self.calendar.period
        with self.database.transaction() as session:
            declared = regimes(session)
            stored = (
                declared,
                releases.count_reports(session, period),
                newest_query_version(session),
            )
            if self._last is not None and self._last[0] == stored:
                return replace(self._last[1], at=at)
            self._reports |= releases.stored_reports(session, period, but=self._reports.keys())
            queries = tuple(stored_queries(session, period))
        reports = tuple(self._reports[key] for key in sorted(self._reports))
        snapshot = Snapshot(
            self.database,
            self.calendar,
            self.grace,
            at,
            declared,
            reports,
            queries,
            self._learner,
        )
        self._last = stored, snapshot
        return snapshot


def _continues(now: RegimeReleases, before: RegimeReleases) -> bool:
    """Return whether `now` is the evidence of `before` plus responses to later queries."""
    pairs = zip(before.query_responses, now.query_responses, strict=False)
    return (
        before.reference_version == now.reference_version
        and len(before.query_responses) <= len(now.query_responses)
        and _same(before.plain, now.plain)
        and all(
            a.query.version == b.query.version and _same(a.responses, b.responses) for a, b in pairs
        )
    )


def _same(
    some: Sequence[ReceivedReport | QueryResponse],
    others: Sequence[ReceivedReport | QueryResponse],
) -> bool:
    """Return whether both are the same stored reports."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a.report is b.report for a, b in pairs)
