"""The desk that names whose reports never came, when a slot's time and grace are over.

An absence is of a member who declared the slot before its time and has no receipt for it. A
slot is looked at once, in the first look after it is over, so that each absence is found once.
Slots that were over before the coordinator began are left out: nothing could be handed in while
it was away, and what its members still hold comes late. So are directed slots without a question,
which nobody can answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import Snapshot
from fedperf_server.state import releases
from fedperf_server.state.database import Database, OrganizationRow, ScheduleRow
from fedperf_server.state.releases import has_query
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.period import ReleaseCalendar, to_unix_ms
from fedperf_shared.releases.release import ReleaseKind, SlotKey


@dataclass(frozen=True, slots=True)
class MissingReport:
    """A declared report that was not there in time, and the label of whose it is."""

    organization: str
    slot: SlotKey

    @property
    def slot_name(self) -> str:
        """The slot's name in the organization's own programs."""
        return f"report-{self.slot.window}-{self.slot.index}"


class MissingReportController:
    """Watches the report slots of a calendar as they end."""

    def __init__(
        self, database: Database, calendar: ReleaseCalendar, *, grace: timedelta, since: datetime
    ) -> None:
        """Reports may be `grace` late; slots that were over by `since` are left out."""
        self._database = database
        self._calendar = calendar
        self._grace = grace
        self._looked_at = since

    def look(self, snapshot: Snapshot) -> tuple[MissingReport, ...]:
        """The missing organizations of slots that ended since the last look, slot by slot."""
        at = snapshot.at
        ended = sorted(self._ended(at))
        found: tuple[MissingReport, ...] = ()
        if ended:
            with self._database.transaction() as session:
                found = tuple(
                    each for due, slot in ended for each in self._absent(session, slot, due)
                )
        self._looked_at = max(at, self._looked_at)
        return found

    def _ended(self, at: datetime) -> Iterator[tuple[datetime, SlotKey]]:
        """Report slots that ended after the last look and by now, with the time of their reply."""
        period = self._calendar.period
        first = period.nearest_window(self._looked_at - self._grace) - 1
        last = period.nearest_window(at - self._grace)
        for window in range(max(first, 0), min(last + 1, period.windows)):
            for index, times in enumerate(self._calendar.report_times):
                due = period.window_start(window) + times.replies_after
                if self._looked_at < due + self._grace <= at:
                    yield due, SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)

    def _absent(self, session: Session, key: SlotKey, due: datetime) -> Iterator[MissingReport]:
        period = self._calendar.period
        start, release_id = to_unix_ms(period.start), key.release_id(period)
        has_question = has_query(session, period, key)
        for organization_id, schedule in releases.declared_schedules(session, period):
            slot = schedule.slot(key)
            if slot is None or (kind_of(slot.parameters).has_question and not has_question):
                continue
            declared_at = session.get_one(ScheduleRow, (organization_id, start)).declared_at
            is_there = releases.first_receipt(session, organization_id, release_id) is not None
            if declared_at < to_unix_ms(due) and not is_there:
                yield MissingReport(session.get_one(OrganizationRow, organization_id).name, key)
