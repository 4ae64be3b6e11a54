"""A coordinator and its members in one process and one thread, on a virtual clock.

Coordinator (controllers, rounds, database) and members (participant, gate, ledger, accountant,
receipts) are the product's own. Noise is seeded per member and slot. A member's executions may come
from elsewhere than its store (`TaskRunner`). Homes and database are in a directory, which may be in
memory.

The clock jumps from one time of the calendar to the next. At each, the coordinator ticks, then
every member in the order of the roster, then the coordinator again. A member may sleep through some
of them: it replies late, or never.

Messages are function calls. The coordinator's own handlers replace gRPC. In model rounds a request
is opened as every node opens it, and a release is serialized as for the coordinator. As in
production, a member that refuses returns its reason, and a member that fails is silent.

`CpuMeter` separates the processor time of the coordinator from that of the members. Sections nest:
while a member computes, the coordinator's clock is stopped, and the other way round.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from functools import cache, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import func, select
from threadpoolctl import threadpool_limits

from fedperf_client.home.config import Home
from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.exchange import Exchange
from fedperf_client.node.participant import Participant
from fedperf_client.node.updates import RequestRefusedError, open_request
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.accountant import PrivacyBudget, epsilon, to_events
from fedperf_client.release.gate import NoiseOf
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_server.app.composition import Coordinator, Task, build_coordinator
from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.authority import CA, SIGNING, KeyRing, init, issue
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import Fleet, Reply
from fedperf_server.state.database import Database, Member
from fedperf_server.state.drift_regimes import BEFORE_EVERYTHING
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.architecture import weights_of
from fedperf_shared.model.plan_gradients import one_thread
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import (
    ReleaseKind,
    Schedule,
    SignedRelease,
    SizeClass,
    SlotKey,
)
from fedperf_shared.wire.codec import encode_signed_release
from fedperf_shared.wire.services import EXCHANGE, ExchangeCalls


@unique
class Side(StrEnum):
    """The side that computes."""

    COORDINATOR = "coordinator"
    MEMBERS = "members"
    IDLE = "nobody"


@dataclass(slots=True)
class CpuMeter:
    """Charges the processor's time to one side after the other."""

    timer: Callable[[], float] = time.process_time  # seconds of the processor
    seconds: dict[Side, float] = field(default_factory=lambda: defaultdict(float))  # by side
    _now: Side = Side.IDLE
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._since = self.timer()

    @contextmanager
    def of(self, side: Side) -> Iterator[None]:
        """Charge what happens inside to `side`."""
        before = self._turn(side)
        try:
            yield
        finally:
            self._turn(before)

    def _turn(self, side: Side) -> Side:
        before, at = self._now, self.timer()
        self.seconds[before] += at - self._since
        self._now, self._since = side, at
        return before


T = TypeVar("T")


def run_at_once(work: Callable[[], T], /) -> Future[T]:
    """Run `work` like `workers.background.BackgroundRunner`, but finish before returning."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # the reader of the future handles it
        future.set_exception(error)
    return future


Handler = Callable[[TrainRequest], "Future[SignedRelease]"]  # A member's handler of model rounds


def memory_calls(service: ExchangeService, caller: Member, meter: CpuMeter) -> ExchangeCalls:
    """Return a member's calls of the Exchange, served at once on the coordinator's time."""

    def serving(method: Callable[..., object]) -> Callable[..., object]:
        def ask(*arguments: object) -> object:
            with meter.of(Side.COORDINATOR):
                return method(caller, *arguments)

        return ask

    calls = {method: serving(getattr(service, method)) for method in EXCHANGE}
    return cast("ExchangeCalls", SimpleNamespace(**calls))


@dataclass(slots=True)
class MemoryFleet:
    """The connected members (`rounds.open_round.Fleet`)."""

    handlers: dict[bytes, Handler] = field(default_factory=dict)
    admitted: frozenset[bytes] = frozenset()

    def connect(self, organization_id: bytes, handler: Handler) -> None:
        """Send that member requests from now on."""
        self.handlers[organization_id] = handler

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Implement `Fleet`."""
        self.admitted = frozenset(keys)

    def round(self) -> "MemoryRound":
        """Implement `Fleet`."""
        return MemoryRound(self)


@dataclass(slots=True)
class MemoryRound:
    """The messages of one round (`rounds.open_round.FleetRound`)."""

    fleet: MemoryFleet
    _replies: dict[bytes, Future[SignedRelease]] = field(default_factory=dict)
    _replied: set[bytes] = field(default_factory=set)

    def send(self, organization_id: bytes, body: bytes) -> bool:
        """Implement `FleetRound`."""
        handler = self.fleet.handlers.get(organization_id)
        is_there = handler is not None and organization_id in self.fleet.admitted
        if handler is None or not is_there or organization_id in self._replies:
            return False
        try:
            self._replies[organization_id] = handler(_opened(body))
        except RequestRefusedError as error:
            refused: Future[SignedRelease] = Future()
            refused.set_exception(error)
            self._replies[organization_id] = refused
        return True

    def replies(self) -> Sequence[Reply]:
        """Implement `FleetRound`, in the order of the requests."""
        replies: list[Reply] = []
        for organization_id, reply in self._replies.items():
            if not reply.done() or organization_id in self._replied:
                continue
            self._replied.add(organization_id)
            error = reply.exception()
            if error is None:
                replies.append(Reply(organization_id, encode_signed_release(reply.result())))
            elif isinstance(error, RequestRefusedError):
                replies.append(Reply(organization_id, None, error.refusal))
        return replies

    def close(self) -> None:
        """Implement `FleetRound`."""
        self._replies.clear()


@lru_cache(maxsize=1)
def _opened(body: bytes) -> TrainRequest:
    """Open a request once for all members, as they get the same bytes."""
    return open_request(body)


HOST = "localhost"

FIRST_VERSION = 1

# All releases leave without approval. A member's schedule holds the planned ones.
DEFAULT_POLICY = Policy(size_class=SizeClass.LARGE, nominal_workloads=2000)


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member that joins a federation."""

    name: str  # in the roster, and of its home's directory
    budget: PrivacyBudget  # of the period
    schedule: Schedule  # what it releases
    noise: NoiseOf  # of each of its slots
    compute: TaskRunner  # runs a slot's task over its executions (`histories`)
    policy: Policy = DEFAULT_POLICY  # what of its schedule leaves; all of it by default
    # Public plans that model rounds are about; by default those that ship.
    anchors: Sequence[PlanOnCluster] = ()
    # Where what it fetches lies; in its home by default. It is public and the same for all, so
    # members that never sleep may share a directory.
    models: Path | None = None
    sleeps: Callable[[datetime], bool] = lambda moment: False  # moments at which it does not tick


@dataclass(frozen=True, slots=True)
class MemberHome(Home):
    """A home whose fetched models may lie elsewhere."""

    elsewhere: Path | None = None

    @property
    def models(self) -> Path:
        """Return `Home.models`, or the directory of the member's settings."""
        return self.elsewhere or self.directory / "models"


@dataclass(slots=True)
class FederationMember:
    """A member with its ledger and participant."""

    member: Member
    home: Home
    ledger: PrivacyLedger
    participant: Participant
    sleeps: Callable[[datetime], bool]


@dataclass(slots=True)
class Clock:
    """A clock that is stopped until it is set."""

    now: datetime

    def __call__(self) -> datetime:
        """Return the time that it was set to."""
        return self.now


@dataclass(slots=True)
class Federation:
    """A coordinator, its database and its members, over any transport."""

    config: ServerConfig  # of the coordinator
    database: Database  # of it
    coordinator: Coordinator  # moves on by ticks
    clock: Clock  # of coordinator and members
    # The roster, in the order of their ids.
    members: list[FederationMember] = field(default_factory=list)
    news: list[object] = field(default_factory=list)  # what the coordinator's ticks brought
    # Checkpoint of its first version, where members have another one for it.
    pretrained: bytes | None = None
    meter: CpuMeter = field(default_factory=CpuMeter)  # processor time by side
    _lived_to: datetime = BEFORE_EVERYTHING

    def live(self, until: datetime) -> None:
        """Through all moments of the calendar that were not lived yet, until then."""
        table, grace = self.config.calendar, self.config.grace
        declared = {slot.key for each in self.members for slot in each.ledger.schedule.slots}
        for moment in calendar_times(table, grace=grace, declared=declared):
            if self._lived_to < moment <= until:
                self.step(moment)
                self._lived_to = moment

    def step(self, moment: datetime) -> None:
        """Run everything that happens at one time."""
        self.clock.now = moment
        self.coordinate()
        for each in self.members:
            if not each.sleeps(moment):
                with self.meter.of(Side.MEMBERS):
                    each.participant.tick(moment)
        self.coordinate()

    def coordinate(self) -> None:
        """Tick the coordinator until there is nothing more to do."""
        with self.meter.of(Side.COORDINATOR):
            while news := self.coordinator.tick(self.clock.now):
                self.news += news


def calendar_times(
    calendar: ReleaseCalendar, *, grace: timedelta, declared: Collection[SlotKey] | None = None
) -> Sequence[datetime]:
    """Return the times of the calendar at which slots open, reply, and end with their grace.

    First slots count only where a member `declared` them; None counts all.
    """
    period, moments = calendar.period, set[datetime]()
    for window in range(period.windows):
        start = period.window_start(window)
        reports = [
            times
            for index, times in enumerate(calendar.report_times)
            if declared is None
            or not calendar.is_first_report(index)
            or SlotKey(ReleaseKind.RESIDUAL_REPORT, window, index) in declared
        ]
        moments.add(start)
        for times in (*reports, *calendar.model_times):
            for after in (times.opens_after, times.replies_after, times.replies_after + grace):
                moments.add(start + after)
    return sorted(moments)


@contextmanager
def memory_federation(
    config: ServerConfig,
    task: Task,
    participants: Sequence[NewMember],
    *,
    clock: Clock | None = None,
) -> Iterator[Federation]:
    """Open a federation at the start of its period with members that have joined.

    `clock` is moved on as the federation lives; where it is given others can read it.
    """
    fleet = MemoryFleet()
    with open_federation(config, task, fleet, clock=clock) as (federation, service):
        for new in participants:
            join_member(federation, service, fleet, new)
        yield federation


def join_member(
    federation: Federation, service: ExchangeService, fleet: MemoryFleet, new: NewMember
) -> FederationMember:
    """Add a member at the clock's time. Function calls reach it."""
    member, home = admit_member(federation, new)
    calls = memory_calls(service, member, federation.meter)
    exchange = Exchange(calls, Membership.load(home.identity))
    participant = settle_member(federation, new, member, home, exchange)
    fleet.connect(member.organization_id, partial(_handle, participant, federation))
    return participant


def _handle(
    member: FederationMember, federation: Federation, request: TrainRequest
) -> Future[SignedRelease]:
    with federation.meter.of(Side.MEMBERS):
        return member.participant.handle(request, now=federation.clock.now)


@contextmanager
def open_federation(
    config: ServerConfig, task: Task, fleet: Fleet, *, clock: Clock | None = None
) -> Iterator[tuple[Federation, ExchangeService]]:
    """Open a coordinator without members, and its Exchange service, at the period's start."""
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
        pretrained = _other_pretrained_model(task)
        yield Federation(config, database, coordinator, clock, pretrained=pretrained), service


def admit_member(federation: Federation, new: NewMember) -> tuple[Member, MemberHome]:
    """Admit a member with the next id of the roster; its home holds key and membership."""
    config, now = federation.config, federation.clock.now
    home = member_home(config, new)
    home.create("")
    key, ring = load_or_create_key(home.identity), KeyRing(config.directory)
    with federation.database.transaction() as session:
        count = session.scalar(select(func.count()).select_from(Member)) or 0
        organization_id = roster_id(count)
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


def roster_id(number: int) -> bytes:
    """Return the id of the member with that number in the roster, from 0."""
    return number.to_bytes(16, "big")


def settle_member(
    federation: Federation, new: NewMember, member: Member, home: MemberHome, exchange: Exchange
) -> FederationMember:
    """Give an admitted member its ledger and participant, and add it to the roster."""
    ledger = create_ledger(federation, new, home, exchange)
    participant = build_participant(new, home, exchange, ledger)
    settled = FederationMember(member, home, ledger, participant, new.sleeps)
    federation.members.append(settled)
    return settled


def create_ledger(
    federation: Federation, new: NewMember, home: MemberHome, exchange: Exchange
) -> PrivacyLedger:
    """Create the member's ledger of the period and declare its schedule."""
    begins = federation.config.calendar.period.start
    ledger = PrivacyLedger.create(home.ledger(begins), new.budget, new.schedule)
    exchange.declare_schedule(new.schedule)
    if federation.pretrained is not None:
        FetchedModels(home.models).keep_reference(federation.pretrained)
    return ledger


def member_home(config: ServerConfig, new: NewMember) -> MemberHome:
    """Return the member's home, next to its coordinator."""
    return MemberHome(config.directory.parent / new.name, new.models)


def build_participant(
    new: NewMember, home: MemberHome, exchange: Exchange, ledger: PrivacyLedger
) -> Participant:
    """Return the member's participant, over a home that holds its key."""
    return Participant(
        home,
        exchange,
        ledger,
        new.noise,
        load_or_create_key(home.identity),
        policy=new.policy,
        reporting=new.compute,
        training=new.compute,
        start=run_at_once,
        anchors=new.anchors,
    )


def _other_pretrained_model(task: Task) -> bytes | None:
    """Return the task's pretrained model, where it is a GGFN but not the one that ships.

    A member uses the shipped pretrained model as version 1, and fetches other versions.
    """
    shipped = weights_of(load_pretrained_model().arrays)
    if [each.shape for each in task.pretrained] != [each.shape for each in shipped]:
        return None
    if all(map(np.array_equal, task.pretrained, shipped)):
        return None
    return task.model_format.encode(task.pretrained, FIRST_VERSION)


@cache
def least_budget(schedule: Schedule, *, delta: float = DEFAULT_POLICY.delta) -> PrivacyBudget:
    """Return the budget that the schedule spends, and no more."""
    return PrivacyBudget(epsilon(to_events(schedule.at_most()), delta), delta)


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Create a private temporary directory, in memory where the machine has such a place."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        yield Path(place)
