"""The query controller designs the linear query of a directed slot, once, when the slot opens.

A query depends on the reports that were accepted until then. It is stored before it is sent and
never changed, so that a coordinator that was killed sends the same query again. The first report
slot of a window is plain. A later slot has a query if an organization declared a directed report.
"""

from datetime import datetime

from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import Snapshot
from fedperf_server.inference.cell_directions import CHANGE, design_cell_query
from fedperf_server.state import releases
from fedperf_server.state.database import Database, record_event
from fedperf_server.state.releases import has_query, newest_query_version, store_query
from fedperf_shared.releases.kinds import DIRECTED_REPORT, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.releases.release import DirectedParameters, ReleaseKind, SlotKey


class QueryController:
    """Designs the linear queries of a period."""

    def __init__(self, database: Database, calendar: ReleaseCalendar) -> None:
        self._database = database
        self._calendar = calendar

    def run_once(self, snapshot: Snapshot) -> tuple[CellQuery, ...]:
        """Design the missing queries of the current window, and return them."""
        queries = [self._design(slot, snapshot) for slot in self._open(snapshot.at)]
        return tuple(each for each in queries if each is not None)

    def _open(self, at: datetime) -> list[SlotKey]:
        """Return the later report slots of the current window that have opened."""
        period, times = self._calendar.period, self._calendar.report_slots
        window = period.window_at(at)
        if window is None:
            return []
        start = period.window_start(window)
        return [
            SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)
            for index in range(1, len(times))
            if start + times[index].opens_after <= at
        ]

    def _design(self, slot: SlotKey, snapshot: Snapshot) -> CellQuery | None:
        """Design and store the query, if it is missing and an organization declared the slot."""
        period = self._calendar.period
        with self._database.transaction() as session:
            if has_query(session, period, slot):
                return None
            senders = _find_senders(session, period, slot)
            version = newest_query_version(session) + 1
        if not senders:
            return None
        evidence = snapshot.evidence(slot.window)
        posterior = evidence.posterior
        query = design_cell_query(
            posterior.correction,
            [(posterior.organization_posterior(name, each), each) for name, each in senders],
            slot=slot,
            version=version,
            change=CHANGE if evidence.has_releases_before(slot.window) else 0.0,
        )
        with self._database.transaction() as session:
            store_query(session, period, query, at=snapshot.at)
            record_event(
                session,
                "question_asked",
                at=snapshot.at,
                window=slot.window,
                slot=slot.index,
                version=version,
                reports=evidence.reports,
            )
        return query


def _find_senders(
    session: Session, period: Period, slot: SlotKey
) -> list[tuple[str, DirectedParameters]]:
    senders = []
    for organization_id, schedule in releases.declared_schedules(session, period):
        planned = schedule.slot(slot)
        if planned is not None and kind_of(planned.parameters) is DIRECTED_REPORT:
            senders.append(
                (organization_id.hex(), DIRECTED_REPORT.as_parameters(planned.parameters))
            )
    return senders
