"""A replay of stored releases through the installed coordinator.

A coordinator's database gives the members, their schedules, their releases with times of arrival,
the queries and the regimes that the operator announced. Corrections, verdicts, drifts and versions
are computed again. So a change of the coordinator is judged on the same releases, and members send
nothing again.

Stored queries are reused, because the replies belong to them. Updates by DP-SGD are not stored, so
rounds of such a calendar have no participants. Where a change leads to another model, later updates
are refused: they are about the old one.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import make_transient

from fedperf_memory.memory_federation import (
    Federation,
    MemoryFleet,
    calendar_times,
    open_federation,
)
from fedperf_server.app.composition import Task
from fedperf_server.config import ServerConfig
from fedperf_server.controllers.drift import stored_drifts
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.state import registry
from fedperf_server.state.database import (
    Database,
    DatabaseTable,
    Member,
    QueryRow,
    RegimeRow,
    RegimeTrigger,
    ReportRow,
    ScheduleRow,
    UpdateRow,
)
from fedperf_server.state.drift_regimes import regimes
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import SignedRelease


class NothingToReplayError(InvalidInputError):
    """A coordinator never ran."""

    def __init__(self) -> None:
        super().__init__("the coordinator holds no model version yet; start it once")


@dataclass(frozen=True, slots=True)
class _History:
    """The inputs of a coordinator from outside, in order of arrival.

    Attributes:
        rows: to be stored as they are, and when.
        reports: to be handed in, and when.
        updates: by organization, window and index.
    """

    rows: Sequence[tuple[datetime, DatabaseTable]]
    reports: Sequence[tuple[datetime, ReportRow]]
    updates: Mapping[tuple[bytes, int, int], UpdateRow]

    @classmethod
    def of(cls, database: Database, period: Period) -> "_History":
        """Return all of a period, and the members of all times."""
        start = period.start
        with database.transaction() as session:
            rows: list[tuple[datetime, DatabaseTable]] = []
            rows += [(each.joined_at, each) for each in session.scalars(select(Member))]
            schedules = select(ScheduleRow).where(ScheduleRow.period_start == start)
            rows += [(each.declared_at, each) for each in session.scalars(schedules)]
            queries = select(QueryRow).where(QueryRow.period_start == start)
            rows += [(each.designed_at, each) for each in session.scalars(queries)]
            announced = select(RegimeRow).where(RegimeRow.cause == RegimeTrigger.DECLARED)
            rows += [(each.declared_at, each) for each in session.scalars(announced)]
            reports = select(ReportRow).where(ReportRow.period_start == start)
            arrived = [(each.received_at, each) for each in session.scalars(reports)]
            updates = select(UpdateRow).where(UpdateRow.period_start == start)
            replied = {
                (each.organization_id, each.window, each.index): each
                for each in session.scalars(updates)
            }
            session.expunge_all()
        return cls(
            rows,
            sorted(arrived, key=lambda each: each[0]),
            replied,
        )


@contextmanager
def replayed(source: Database, config: ServerConfig, task: Task) -> Iterator[Federation]:
    """Yield a coordinator of `config`, in a directory of its own, at the end of the stored period.

    Args:
        source: of the coordinator that received the releases.
        config: the same calendar; its directory is made.
        task: what is learned. It begins with the stored coordinator's first version.

    Raises:
        DatabaseError: a database cannot be used.
        NothingToReplayError: the stored coordinator has no version.
        CallRefusedError: the installed coordinator refuses a report.
    """
    history, fleet = _History.of(source, config.calendar.period), MemoryFleet()
    with source.transaction() as session:
        versions = registry.version_numbers(session)
        if not versions:
            raise NothingToReplayError
        first = registry.get_version(session, min(versions))
    task = replace(task, pretrained=task.model_format.decode(first.checkpoint))
    updates = _Updates(history.updates)
    for organization_id in {each for each, _, _ in history.updates}:
        fleet.connect(organization_id, partial(updates.reply, organization_id))
    with open_federation(config, task, fleet) as (federation, service):
        calendar = calendar_times(config.calendar, grace=config.grace)
        events = (at for at, _ in (*history.rows, *history.reports))
        for moment in sorted({*calendar, *events}):
            federation.clock.now = moment
            with federation.database.transaction() as session:
                for row in (row for at, row in history.rows if at == moment):
                    make_transient(row)
                    session.add(row)
                    session.flush()
            updates.arrive(moment)
            federation.coordinate()
            for report in (row for at, row in history.reports if at == moment):
                _submit(federation.database, service, report)
            federation.coordinate()
        yield federation


def _submit(database: Database, service: ExchangeService, report: ReportRow) -> None:
    with database.transaction() as session:
        member = session.get_one(Member, report.organization_id)
    service.submit(member, SignedRelease(report.payload, report.signature))


@dataclass(slots=True)
class _Updates:
    """The stored updates of all rounds. Each arrives when it was received."""

    stored: Mapping[tuple[bytes, int, int], UpdateRow]
    _waiting: list[tuple[UpdateRow, "Future[SignedRelease]"]] = field(default_factory=list)

    def reply(self, organization_id: bytes, request: TrainRequest) -> "Future[SignedRelease]":
        """Return a future as `memory_transport.Answer` does. Nothing stored leaves it pending."""
        row = self.stored.get((organization_id, request.slot.window, request.slot.index))
        reply: Future[SignedRelease] = Future()
        if row is not None:
            self._waiting.append((row, reply))
        return reply

    def arrive(self, now: datetime) -> None:
        """Complete the replies received by `now`."""
        for row, reply in self._waiting:
            if row.received_at <= now and not reply.done():
                reply.set_result(SignedRelease(row.payload, row.signature))


def compared(stored: Database, again: Database, period: Period) -> list[dict[str, object]]:
    """Return the results of the releases then and now, one row per version, regime and drift.

    Each row has `what`, `stored`, `replayed` and `same`.
    """
    then, now = (_outcome(each, period) for each in (stored, again))
    return [
        {
            "what": what,
            "stored": then.get(what, ("none",))[0],
            "replayed": now.get(what, ("none",))[0],
            "same": then.get(what) == now.get(what),
        }
        for what in {**then, **now}
    ]


def _outcome(database: Database, period: Period) -> dict[str, tuple[str, object]]:
    """Return every result by its subject: in words, and in full."""
    with database.transaction() as session:
        correction = registry.published_correction(session)
        outcome: dict[str, tuple[str, object]] = {
            f"version {each.version}": (str(each.status), each.checkpoint)
            for each in registry.versions(session)
        }
        for regime in regimes(session):
            words = f"{regime.cause}, reference {regime.reference_version}"
            outcome[f"epoch {regime.number}"] = (words, regime.begins_at)
        for number, drift in enumerate(stored_drifts(session, period), 1):
            words = f"{drift.drift.platform.name.lower()} by {drift.drift.log_factor:+.2f}"
            outcome[f"drift {number}"] = (words, drift.drift)
    if correction is not None:
        words = f"against version {correction.reference_version}"
        outcome["correction"] = (words, correction.mean.tobytes())
    return outcome
