"""Fixture of a coordinator over several windows that can be killed and restarted.

All of it but the sockets is real: windows, controllers, rounds, registry and database. Three
organizations report and train by their schedules. From the middle of window 1 on, Polars takes
longer for all of them. An organization samples the noise of a slot once, as its ledger would.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from sqlalchemy import event
from sqlalchemy.orm import Session

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server.app.composition import Task, build_coordinator
from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.authority import SIGNING, KeyRing, init
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, Member
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases.basis import ALL_CELLS
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.linearized_queries import few_plans
from tests.fakes.residual_reports import residual_report
from tests.fakes.rounds import SumsOfWeights, mean_of
from tests.unit.client.contributions.seeded_noise import SeededNoise
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.server.rounds.test_model_rounds import FakeFleet, TinyFormat, update

START = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
GRACE = timedelta(hours=1)
WINDOWS = 5
DRIFT_WINDOW, DRIFT = 1, 0.7
TABLE = ReleaseCalendar(
    Period(START, 28 * DAY, WINDOWS),
    (SlotTimes(4 * DAY, 5 * DAY),),
    (SlotTimes(10 * DAY, 11 * DAY),),
    ModelMethod.TANGENT,
    (SlotTimes(14 * DAY, 15 * DAY), SlotTimes(18 * DAY, 19 * DAY)),
    1,
)
REPORT = ReportParameters(0.5, 3.0)
UPDATE = LinearizedParameters(1.0, 100.0)
KEYS = [
    *(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0) for window in range(WINDOWS)),
    *(
        SlotKey(ReleaseKind.MODEL_UPDATE, window, index)
        for window in range(WINDOWS)
        for index in range(len(TABLE.model_times))
    ),
]
SCHEDULE = Schedule(
    TABLE,
    tuple(Slot(key, REPORT if key.kind is ReleaseKind.RESIDUAL_REPORT else UPDATE) for key in KEYS),
)
CELLS_USED = [
    *(each for each in ALL_CELLS if each.platform is Platform.POLARS),
    *(each for each in ALL_CELLS if each.platform is Platform.DUCKDB),
]
WORKLOADS = 30
"""Workloads of every organization in each cell."""

CATALOGUE = [
    MeasuredPlan(question.plan, question.cluster, 0.0)
    for question in draw_questions(np.random.default_rng(3), 60)
]
PLANS = few_plans()


MOST_KILLS = 20
"""Limit of kills in one tick, more than it has transactions that store something."""


class Killed(BaseException):
    """Raised when the simulated process of the coordinator dies."""


@dataclass
class Fate:
    """Plan of kills: the coordinator dies once at each writing transaction of a timestamp.

    Attributes:
        before: Die right before the transaction is stored, so that nothing of it is.
        after: Die right after the transaction was stored.
        stored: Number of stored transactions.
        killed: Tables of the transactions at which it died, at this timestamp.
    """

    before: bool = False
    after: bool = False
    stored: int = 0
    killed: set[frozenset[str]] = field(default_factory=set)

    def about_to_store(self, tables: frozenset[str]) -> None:
        if self.before:
            self._die_once(tables)

    def has_stored(self, tables: frozenset[str]) -> None:
        self.stored += 1
        if self.after:
            self._die_once(tables)

    def _die_once(self, tables: frozenset[str]) -> None:
        if tables not in self.killed:
            self.killed.add(tables)
            raise Killed


class MortalDatabase(Database):
    """Database that dies at the transactions that its `Fate` selects."""

    def __init__(self, url: str, fate: Fate) -> None:
        super().__init__(url)
        self._fate = fate

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        wrote: set[str] = set()

        def note(session: Session, context: object) -> None:
            del context
            wrote.update(type(each).__tablename__ for each in (*session.new, *session.dirty))

        with super().transaction() as session:
            event.listen(session, "after_flush", note)
            yield session
            session.flush()
            if wrote:
                self._fate.about_to_store(frozenset(wrote))
        if wrote:
            self._fate.has_stored(frozenset(wrote))


@dataclass
class Organization:
    """Organization that samples the release of every slot once.

    `asked` holds the requests of the coordinator's rounds by slot.
    """

    number: int
    key: ec.EllipticCurvePrivateKey
    drawn: dict[SlotKey, bytes] = field(default_factory=dict)
    asked: dict[SlotKey, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    references: dict[int, int] = field(default_factory=dict)

    @property
    def identity(self) -> bytes:
        return bytes([self.number])

    def report(self, window: int, reference_version: int) -> SignedRelease:
        slot = SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0)
        if slot not in self.drawn:
            self.references[window] = reference_version
            content = residual_report(
                workloads(self.number, window),
                SeededNoise(1000 * self.number + window),
                slot=slot,
                parameters=REPORT,
                reference_version=reference_version,
            )
            self.drawn[slot] = codec.encode_release(content)
        return SignedRelease(self.drawn[slot], sign(self.key, self.drawn[slot]))

    def answer(self, body: bytes) -> bytes:
        slot = codec.decode_train_request(body).slot
        self.asked[slot].add(body)
        if slot not in self.drawn:
            self.drawn[slot] = update(self.key, body, 0.02)
        return self.drawn[slot]


def workloads(organization: int, window: int) -> list[WorkloadResiduals]:
    """Return the residuals of the previous window, with Polars slower from `DRIFT_WINDOW` on."""
    steady = np.random.default_rng([7, organization]).normal(0.1, 0.3, (len(CELLS_USED), WORKLOADS))
    fresh = np.random.default_rng([8, organization, window]).normal(0, 0.1, steady.shape)
    found = []
    for cell, residuals in zip(CELLS_USED, steady + fresh, strict=True):
        slower = DRIFT if cell.platform is Platform.POLARS and window > DRIFT_WINDOW else 0.0
        found += [
            WorkloadResiduals(np.array([cell.index]), np.array([each + slower]))
            for each in residuals
        ]
    return found


def predict_with(checkpoint: bytes) -> PredictLog:
    """Return a predictor that returns the one number of the checkpoint for every plan."""
    value = float(np.frombuffer(checkpoint, dtype=np.float32)[0])

    def predict(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
        return np.full(len(entries), value)

    return predict


class World:
    """State that survives a kill. `start_again()` creates everything else."""

    def __init__(
        self, directory: Path, ring: KeyRing, organizations: Sequence[Organization]
    ) -> None:
        """Use the directory that `founded` created."""
        self.config = ServerConfig(directory, "localhost", TABLE)
        self.ring = ring
        self.organizations = organizations
        self.fate = Fate()
        self.now = START
        self.kills = 0
        self.start_again()

    def start_again(self) -> None:
        """Create new objects on the same files."""

        def clock() -> datetime:
            return self.now

        database = MortalDatabase(self.config.database_url, self.fate)
        enrollment = Enrollment(database, self.ring, self.config, clock=clock)
        fleet = FakeFleet(lambda: None, {each.identity: each.answer for each in self.organizations})
        self.database = database
        self.members: list[Member] = enrollment.members()
        self.exchange = ExchangeService(
            database, enrollment, self.config, signing_key=self.ring.key(SIGNING), clock=clock
        )
        self.strategy = SumsOfWeights(TinyFormat().shapes, mean_of)
        task = Task(
            [np.zeros(2, dtype=np.float32)],
            TinyFormat(),
            self.strategy,
            lambda arrays: 2.0,
            predict_with,
            PLANS,
        )
        self.coordinator = build_coordinator(
            self.config,
            database,
            enrollment,
            fleet,
            task,
            signing_key=self.ring.key(SIGNING),
            since=self.now,
            rules=RoundRules(2, GRACE),
        )

    def live(self, windows: Sequence[int]) -> None:
        """Run these windows, timestamp by timestamp. Restart and retry after each kill."""
        for window in windows:
            for at, act in self._moments(window):
                self.now = TABLE.period.window_start(window) + at
                self._do(act)

    def _moments(self, window: int) -> Iterator[tuple[timedelta, Callable[[], object]]]:
        (reports,) = TABLE.report_slots
        for organization in self.organizations:
            yield reports.replies_after, partial(self._hand_in, organization, window)
        for at in (reports.replies_after, reports.replies_after + GRACE):
            yield at, self._tick
        for times in TABLE.model_times:
            yield times.opens_after, self._tick
            yield times.replies_after, self._tick

    def _tick(self) -> None:
        """Tick until nothing is left to do at this timestamp."""
        while self.coordinator.tick(self.now):
            pass

    def _hand_in(self, organization: Organization, window: int) -> None:
        (member,) = (e for e in self.members if e.organization_id == organization.identity)
        reference = self.exchange.status(member).reference_version
        self.exchange.submit(member, organization.report(window, reference))

    def _do(self, act: Callable[[], object]) -> None:
        """Repeat the action until it completes."""
        self.fate.killed.clear()
        for _ in range(MOST_KILLS):
            try:
                act()
            except Killed:
                self.kills += 1
                self.database.close()
                self.start_again()
            else:
                return
        raise RuntimeError("killed again and again, it gets nowhere")


def founded(directory: Path, organizations: Sequence[Organization] = ()) -> World:
    """Create a coordinator with its first model and three members, which are new by default."""
    ring = init(directory, "localhost", now=START)
    organizations = organizations or [Organization(n, new_private_key()) for n in range(3)]
    database = Database(ServerConfig(directory, "localhost", TABLE).database_url)
    with database.transaction() as session:
        zeros = [np.zeros(2, dtype=np.float32)]
        registry.add_version(
            session, TinyFormat(), zeros, at=START, public_error=2.0, promoted=True
        )
        for each in organizations:
            session.add(
                Member(
                    organization_id=each.identity,
                    name=str(each.number),
                    public_key=each.key.public_key(),
                    joined_at=START,
                    revoked_at=None,
                )
            )
            session.flush()
            releases.declare_schedule(session, each.identity, SCHEDULE, at=START)
    database.close()
    return World(directory, ring, organizations)
