"""A coordinator and its members in one process and one thread, on a virtual clock.

Coordinator (desks, rounds, database) and members (participant, gate, ledger, accountant, receipts)
are the product's own. Messages are function calls (`memory_transport`). Noise is seeded per member
and slot. A member's executions may come from elsewhere than its store (`TaskRunner`). Homes and
database lie in a directory; in a directory in memory nothing waits for a disk.

The clock jumps from one moment of the calendar to the next. At each moment the coordinator ticks,
then every member in the order of the roster, then the coordinator again. A member may sleep
through some moments: it answers late, or never.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives import serialization
from sqlalchemy import func, select
from threadpoolctl import threadpool_limits

from fedperf_client.daemon.participant import Participant
from fedperf_client.federation.enrollment import Membership, load_or_create_key
from fedperf_client.federation.exchange import Exchange
from fedperf_client.home.config import Home
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.privacy.accountant import PrivacyBudget, epsilon, events_of
from fedperf_client.release.gate import NoiseOf
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_memory.cpu_meter import CpuMeter, Side
from fedperf_memory.memory_transport import MemoryFleet, memory_calls
from fedperf_memory.one_thread import at_once
from fedperf_server.app.composition import Coordinator, Task, build_coordinator
from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.authority import CA, SIGNING, KeyRing, init, issue
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import Fleet
from fedperf_server.state import registry
from fedperf_server.state.database import Database, Member
from fedperf_server.state.drift_regimes import BEFORE_EVERYTHING
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import weights_of
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.gradients.exact_arithmetic import one_thread
from fedperf_shared.model.pretrained_model import load_pretrained_model
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import (
    ReleaseKind,
    Schedule,
    SignedRelease,
    SizeClass,
    SlotKey,
)

HOST = "localhost"

FIRST_VERSION = 1

DEFAULT_POLICY = Policy(size_class=SizeClass.LARGE, nominal_workloads=2000)
"""Whose releases all leave without asking; what is planned stands in a member's schedule."""


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member that joins a federation.

    Attributes:
        name: in the roster, and of its home's directory.
        budget: of the period.
        schedule: what it releases.
        noise: of each of its slots.
        compute: runs what a slot asks about its executions (`histories`).
        policy: what of its schedule leaves; all of it by default.
        anchors: public plans that model rounds are about; by default those that ship.
        models: where what it fetches lies; in its home by default. It is public and the same for
            all, so that many members who never sleep may share a directory.
        sleeps: moments at which it does not tick.
    """

    name: str
    budget: PrivacyBudget
    schedule: Schedule
    noise: NoiseOf
    compute: TaskRunner
    policy: Policy = DEFAULT_POLICY
    anchors: Sequence[PlanOnCluster] = ()
    models: Path | None = None
    sleeps: Callable[[datetime], bool] = lambda moment: False


@dataclass(frozen=True, slots=True)
class MemberHome(Home):
    """A home whose fetched models may lie elsewhere."""

    elsewhere: Path | None = None

    @property
    def models(self) -> Path:
        """As `Home.models`, or where the member was told."""
        return self.elsewhere or self.directory / "models"


@dataclass(slots=True)
class FederationMember:
    """A member as it lives."""

    member: Member
    home: Home
    ledger: PrivacyLedger
    participant: Participant
    sleeps: Callable[[datetime], bool]


@dataclass(slots=True)
class Clock:
    """Stands still until it is set."""

    now: datetime

    def __call__(self) -> datetime:
        """The moment that it was set to."""
        return self.now


@dataclass(slots=True)
class Federation:
    """A coordinator, its database and its members, wherever their messages travel.

    Attributes:
        config: of the coordinator.
        database: of it.
        coordinator: moves on by ticks.
        clock: what everybody's moment is.
        members: the roster, in the order of their ids.
        news: what the coordinator's ticks brought.
        start: checkpoint of its first version, where members have another one for it.
        meter: whose processor time it took.
    """

    config: ServerConfig
    database: Database
    coordinator: Coordinator
    clock: Clock
    members: list[FederationMember] = field(default_factory=list)
    news: list[object] = field(default_factory=list)
    start: bytes | None = None
    meter: CpuMeter = field(default_factory=CpuMeter)
    _lived_to: datetime = BEFORE_EVERYTHING

    def live(self, until: datetime) -> None:
        """Through all moments of the calendar that were not lived yet, until then."""
        table, grace = self.config.calendar, self.config.grace
        declared = {slot.key for each in self.members for slot in each.ledger.schedule.slots}
        for moment in moments(table, grace=grace, declared=declared):
            if self._lived_to < moment <= until:
                self.step(moment)
                self._lived_to = moment

    def step(self, moment: datetime) -> None:
        """Everything that happens at one moment."""
        self.clock.now = moment
        self.coordinate()
        for each in self.members:
            if not each.sleeps(moment):
                with self.meter.of(Side.MEMBERS):
                    each.participant.tick(moment)
        self.coordinate()

    def in_force(self) -> GGFN:
        """The newest promoted version."""
        with self.database.transaction() as session:
            checkpoint = registry.get_version(session, 0).checkpoint
        return model_from_arrays(decode_checkpoint(checkpoint).arrays)

    def coordinate(self) -> None:
        """The coordinator's part: ticks until there is nothing more to do."""
        with self.meter.of(Side.COORDINATOR):
            while news := self.coordinator.tick(self.clock.now):
                self.news += news


def moments(
    calendar: ReleaseCalendar, *, grace: timedelta, declared: Collection[SlotKey] | None = None
) -> Sequence[datetime]:
    """The moments of the calendar: slots open, reply, and end with their grace.

    Of first slots these are the ones that somebody `declared`, by default all.
    """
    period, found = calendar.period, set[datetime]()
    for window in range(period.windows):
        start = period.window_start(window)
        reports = [
            times
            for index, times in enumerate(calendar.report_times)
            if declared is None
            or not calendar.is_first_report(index)
            or SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index) in declared
        ]
        found.add(start)
        for times in (*reports, *calendar.model_times):
            for after in (times.opens_after, times.replies_after, times.replies_after + grace):
                found.add(start + after)
    return sorted(found)


@contextmanager
def memory_federation(
    config: ServerConfig,
    task: Task,
    newcomers: Sequence[NewMember],
    *,
    clock: Clock | None = None,
) -> Iterator[Federation]:
    """A federation at the start of its period whose members have joined and declared.

    `clock` is moved on as the federation lives; where it is given others can read it.
    """
    fleet = MemoryFleet()
    with founded(config, task, fleet, clock=clock) as (federation, service):
        for new in newcomers:
            joined(federation, service, fleet, new)
        yield federation


def joined(
    federation: Federation, service: ExchangeService, fleet: MemoryFleet, new: NewMember
) -> FederationMember:
    """The new member, from the clock's moment on; function calls reach it."""
    member, home = admitted(federation, new)
    calls = memory_calls(service, member, federation.meter)
    exchange = Exchange(calls, Membership.load(home.identity))
    found = settled(federation, new, member, home, exchange)
    fleet.connect(member.organization_id, partial(_answer, found, federation))
    return found


def _answer(
    member: FederationMember, federation: Federation, request: TrainRequest
) -> Future[SignedRelease]:
    with federation.meter.of(Side.MEMBERS):
        return member.participant.answer(request, now=federation.clock.now)


@contextmanager
def founded(
    config: ServerConfig, task: Task, fleet: Fleet, *, clock: Clock | None = None
) -> Iterator[tuple[Federation, ExchangeService]]:
    """A coordinator without members, and what answers its Exchange, at the period's start."""
    clock = clock or Clock(config.calendar.period.start)
    clock.now = config.calendar.period.start
    ring = init(config.directory, config.host, now=clock.now)
    with ExitStack() as stack:
        # Small matrices: more threads change last digits, and wait for each other.
        stack.enter_context(threadpool_limits(1))
        stack.enter_context(one_thread())
        database = Database(config.database_url)
        stack.callback(database.close)
        enrollment = Enrollment(database, ring, config, clock=clock)
        coordinator = build_coordinator(
            config,
            database,
            enrollment,
            fleet,
            task,
            signing_key=ring.key(SIGNING),
            since=clock.now,
        )
        stack.callback(coordinator.stop)
        service = ExchangeService(
            database, enrollment, config, signing_key=ring.key(SIGNING), clock=clock
        )
        start = _other_start(task)
        yield Federation(config, database, coordinator, clock, start=start), service


def admitted(federation: Federation, new: NewMember) -> tuple[Member, MemberHome]:
    """A new member with the next id of the roster; its home holds its key and membership."""
    config, now = federation.config, federation.clock.now
    home = home_of(config, new)
    home.create("")
    key, ring = load_or_create_key(home.identity), KeyRing(config.directory)
    with federation.database.transaction() as session:
        count = session.scalar(select(func.count()).select_from(Member)) or 0
        organization_id = organization_of(count)
        member = Member(
            organization_id=organization_id,
            name=new.name,
            public_key=key.public_key(),
            joined_at=now,
        )
        session.add(member)
    signing = ring.key(SIGNING).public_key()
    Membership(
        organization_id,
        issue(ring, organization_id, key.public_key(), now=now),
        ring.certificate(CA),
        signing.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        config.exchange_address,
        config.fleet_address,
    ).save(home.identity)
    return member, home


def organization_of(number: int) -> bytes:
    """The id of the member with that number in the roster, from 0."""
    return number.to_bytes(16, "big")


def settled(
    federation: Federation, new: NewMember, member: Member, home: MemberHome, exchange: Exchange
) -> FederationMember:
    """The member with a ledger of its own, declared and in the roster."""
    ledger = declared(federation, new, home, exchange)
    participant = participant_of(new, home, exchange, ledger)
    joined = FederationMember(member, home, ledger, participant, new.sleeps)
    federation.members.append(joined)
    return joined


def declared(
    federation: Federation, new: NewMember, home: MemberHome, exchange: Exchange
) -> PrivacyLedger:
    """The member's ledger of the period, with its schedule, which the coordinator knows."""
    begins = federation.config.calendar.period.start
    ledger = PrivacyLedger.create(home.ledger(begins), new.budget, new.schedule)
    exchange.declare_schedule(new.schedule)
    if federation.start is not None:
        FetchedModels(home.models).keep_reference(federation.start)
    return ledger


def home_of(config: ServerConfig, new: NewMember) -> MemberHome:
    """The member's home, beside its coordinator."""
    return MemberHome(config.directory.parent / new.name, new.models)


def participant_of(
    new: NewMember, home: MemberHome, exchange: Exchange, ledger: PrivacyLedger
) -> Participant:
    """The member's participant, over a home that holds its key."""
    return Participant(
        home,
        exchange,
        ledger,
        new.noise,
        load_or_create_key(home.identity),
        policy=new.policy,
        reporting=new.compute,
        training=new.compute,
        start=at_once,
        anchors=new.anchors,
    )


def _other_start(task: Task) -> bytes | None:
    """The task's start, where it is a GGFN but not the one that ships.

    A member takes the start that ships for version 1, and fetches what has another number.
    """
    shipped = weights_of(load_pretrained_model().arrays)
    if [each.shape for each in task.pretrained] != [each.shape for each in shipped]:
        return None
    if all(map(np.array_equal, task.pretrained, shipped)):
        return None
    return task.model_format.encode(task.pretrained, FIRST_VERSION)


@cache
def least_budget(schedule: Schedule, *, delta: float = DEFAULT_POLICY.delta) -> PrivacyBudget:
    """The budget that the schedule spends, and no more."""
    return PrivacyBudget(epsilon(events_of(schedule.at_most()), delta), delta)


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """A new directory that nobody else can read: in memory where the machine has such a place."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        yield Path(place)
