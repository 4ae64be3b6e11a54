"""The desk that makes the questions of directed slots, once, when their slot opens.

A question follows from the reports that were accepted until then. It is stored before
anybody gets it and never changed, so a coordinator that was killed asks the same again.
The first report slot of a window is plain; a later one has a question where somebody
declared a directed report for it.
"""

from datetime import datetime

from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import Snapshot
from fedperf_server.inference.cell_directions import CHANGE, design_cell_query
from fedperf_server.state import audit, releases
from fedperf_server.state.database import Database
from fedperf_server.state.releases import has_query, newest_question, store_question
from fedperf_shared.releases.kinds import DIRECTED_REPORT, kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar
from fedperf_shared.releases.release import DirectedParameters, ReleaseKind, SlotKey


class QueryController:
    """Makes the questions of a period."""

    def __init__(self, database: Database, calendar: ReleaseCalendar) -> None:
        self._database = database
        self._calendar = calendar

    def look(self, snapshot: Snapshot) -> tuple[CellQuery, ...]:
        """Make what questions are missing in the window of now; those that were made."""
        made = [self._ask(slot, snapshot) for slot in self._open(snapshot.at)]
        return tuple(each for each in made if each is not None)

    def _open(self, at: datetime) -> list[SlotKey]:
        """Later report slots of the window of now that have opened."""
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

    def _ask(self, slot: SlotKey, snapshot: Snapshot) -> CellQuery | None:
        """The question, if it is missing and somebody will answer it."""
        period = self._calendar.period
        with self._database.transaction() as session:
            if has_query(session, period, slot):
                return None
            declared = _who_answers(session, period, slot)
            version = newest_question(session) + 1
        if not declared:
            return None
        known = snapshot.evidence(slot.window)
        learned = known.learned
        question = design_cell_query(
            learned.correction,
            [(learned.sums_of(name, each), each) for name, each in declared],
            slot=slot,
            version=version,
            change=CHANGE if known.before(slot.window) else 0.0,
        )
        with self._database.transaction() as session:
            store_question(session, period, question, at=snapshot.at)
            detail: audit.Detail = {
                "window": slot.window,
                "slot": slot.index,
                "version": version,
                "reports": known.reports,
            }
            audit.record(session, "question_asked", detail, at=snapshot.at)
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
