"""The missing-report controller lists missing reports once a slot and its grace period are over.

A report is missing if a member declared the slot before it was due and has no receipt for it. Every
slot is checked once, after its end, so that each missing report is listed once. Slots that ended
before the coordinator started are skipped, because members could not submit while it was down and
may still send late reports. Directed slots without a linear query are skipped too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from fedperf_server.controllers.regime_releases import Snapshot
from fedperf_server.state import releases
from fedperf_server.state.database import Database, Member, ScheduleRow
from fedperf_server.state.releases import has_query
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import ReleaseKind, SlotKey


@dataclass(frozen=True, slots=True)
class MissingReport:
    """A declared report that did not arrive in time, and the name of its organization."""

    organization: str
    slot: SlotKey

    @property
    def slot_name(self) -> str:
        """Return the slot's name in the organization's own programs."""
        return f"report-{self.slot.window}-{self.slot.index}"


class MissingReportController:
    """Lists missing reports of a calendar as its slots end."""

    def __init__(
        self, database: Database, calendar: ReleaseCalendar, *, grace: timedelta, since: datetime
    ) -> None:
        """Make a controller; reports may be `grace` late, slots over by `since` are skipped."""
        self._database = database
        self._calendar = calendar
        self._grace = grace
        self._checked_until = since

    def run_once(self, snapshot: Snapshot) -> tuple[MissingReport, ...]:
        """Return the missing reports of slots that ended since the last call, slot by slot."""
        at = snapshot.at
        ended = sorted(self._ended(at))
        missing: tuple[MissingReport, ...] = ()
        if ended:
            with self._database.transaction() as session:
                missing = tuple(
                    each for due, slot in ended for each in self._missing(session, slot, due)
                )
        self._checked_until = max(at, self._checked_until)
        return missing

    def _ended(self, at: datetime) -> Iterator[tuple[datetime, SlotKey]]:
        """Yield report slots that ended since the last call, with the time when they were due."""
        period = self._calendar.period
        first = period.nearest_window(self._checked_until - self._grace) - 1
        last = period.nearest_window(at - self._grace)
        for window in range(max(first, 0), min(last + 1, period.windows)):
            for index, times in enumerate(self._calendar.report_times):
                due = period.window_start(window) + times.replies_after
                if self._checked_until < due + self._grace <= at:
                    yield due, SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index)

    def _missing(self, session: Session, key: SlotKey, due: datetime) -> Iterator[MissingReport]:
        period = self._calendar.period
        start, release_id = period.start, key.release_id(period)
        is_answerable = has_query(session, period, key)
        for organization_id, schedule in releases.declared_schedules(session, period):
            slot = schedule.slot(key)
            if slot is None or (kind_of(slot.parameters).has_question and not is_answerable):
                continue
            declared_at = session.get_one(ScheduleRow, (organization_id, start)).declared_at
            has_receipt = releases.first_receipt(session, organization_id, release_id) is not None
            if declared_at < due and not has_receipt:
                yield MissingReport(session.get_one(Member, organization_id).name, key)
