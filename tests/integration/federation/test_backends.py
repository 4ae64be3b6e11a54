"""One small federation on the live, memory and replay backends: bitwise identical values.

There are three organizations, three windows and a declared change of drift regime. One
organization is offline at some times, so one report is late and one update is missing. Another
one scales its noise in one slot of each kind. The live backend uses real servers, sockets and
nodes in this process. The test sets the clock, so machine load cannot change who is in time.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.exchange import ExchangeClient
from fedperf_client.node.flower_node import Node
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.gate import NoiseOf
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy
from fedperf_memory.memory_federation import (
    Federation,
    NewMember,
    admit_member,
    memory_federation,
    open_federation,
    settle_member,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task, ggfn_task
from fedperf_server.config import ServerConfig
from fedperf_server.controllers.drift import stored_drifts
from fedperf_server.controllers.promotion import PromotionController
from fedperf_server.endpoints.gateway import Gateway
from fedperf_server.endpoints.grpc_ports import exchange_server
from fedperf_server.membership.authority import SERVER, KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.open_round import FleetRound
from fedperf_server.state import registry
from fedperf_server.state.database import Database, QueryRow, RegimeTrigger
from fedperf_server.state.drift_regimes import declare, regimes
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    LinearizedParameters,
    Parameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SizeClass,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_release
from fedperf_simulations.federation.replay import replayed
from tests.fakes.linearized_queries import install_plans
from tests.fakes.task_runners import in_this_process
from tests.integration.federation.small_federation import FAST, HOST, free_ports
from tests.integration.organizations.deployments import make_executions
from tests.unit.client.pretrained_model import install_start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

START = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = ReleaseCalendar(
    Period(START, 28 * DAY, 3),
    report_slots=(SlotTimes(4 * DAY, 5 * DAY), SlotTimes(6 * DAY, 7 * DAY)),
    model_slots=(SlotTimes(10 * DAY, 11 * DAY),),
    extra_slots=(SlotTimes(14 * DAY, 15 * DAY),),
    extra_windows=1,
)
GRACE = timedelta(hours=1)
REPORTS, UPDATES = ReleaseKind.RESIDUAL_REPORT, ReleaseKind.MODEL_UPDATE
PARAMETERS: dict[tuple[ReleaseKind, int], Parameters] = {
    (REPORTS, 0): ReportParameters(0.8, 3.0),
    (REPORTS, 1): DirectedParameters(0.8, 30.0),
    (UPDATES, 0): LinearizedParameters(2.0, 30.0),
    (UPDATES, 1): LinearizedParameters(2.0, 30.0),
}
SLOTS = tuple(
    Slot(SlotKey(kind, window, index), parameters)
    for window in range(3)
    for (kind, index), parameters in PARAMETERS.items()
)
SCHEDULE = Schedule(TABLE, SLOTS)
LATE, LIAR = "late", "liar"
LIES = {SlotKey(REPORTS, 1, 0): 100, SlotKey(UPDATES, 1, 1): 4}
"""Factors on the noise of these slots: one above and one at the accepted maximum."""
EPOCH_DECLARED = START + 20 * DAY
SLEEPS = {
    START + 28 * DAY + 5 * DAY: "a report of window 1 comes when the next slot opens",
    START + 28 * DAY + 11 * DAY: "an update of window 1 never comes",
}


@dataclass(frozen=True)
class Exaggerated:
    """An organization's noise source, multiplied by a factor."""

    noise: NoiseSource
    times: int

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        return self.times * self.noise.discrete_gaussian(size, scale)


def noise(name: str, number: int) -> NoiseOf:
    honest = noise_of([11], number)
    lies = LIES if name == LIAR else {}
    return lambda key: Exaggerated(honest(key), lies.get(key, 1))


def newcomers() -> list[NewMember]:
    return [
        NewMember(
            name,
            PrivacyBudget(1e4, 1e-5),
            SCHEDULE,
            noise(name, number),
            in_this_process,
            Policy(size_class=SizeClass.LARGE, nominal_workloads=5000),
            sleeps=SLEEPS.__contains__ if name == LATE else lambda moment: False,
        )
        for number, name in enumerate(("punctual", LATE, LIAR))
    ]


def fill(federation: Federation) -> None:
    """Store executions from before the period and from each of its windows."""
    for number, each in enumerate(federation.members):
        made = make_executions(12, seed=number)
        finished = [START + (place - 6) * 7 * DAY for place in range(len(made))]
        with ExecutionStore.open(each.home.store) as store:
            store.add(
                replace(execution, finished_at=at)
                for execution, at in zip(made, finished, strict=True)
            )


def live_through(federation: Federation) -> None:
    """Run the whole period. The operator declares a new drift regime in the first window."""
    federation.live(EPOCH_DECLARED)
    federation.clock.now = EPOCH_DECLARED
    with federation.database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=EPOCH_DECLARED)
    federation.live(TABLE.period.end)


@dataclass
class LiveFederation(Federation):
    """A federation over sockets. The test waits until all sent messages have arrived."""

    awake: int = 0

    def coordinate(self) -> None:
        give_up = time.monotonic() + 60
        while True:
            super().coordinate()
            if self._is_quiet():
                return
            assert time.monotonic() < give_up, "messages do not arrive"
            time.sleep(0.02)

    def _is_quiet(self) -> bool:
        """Return True if every node has the round's request and every reply has arrived."""
        running = self.coordinator._rounds._running
        if running is None:
            return True
        for each in self.members:
            asked = each.participant._pending._pending.get(running.opened.slot)
            if asked is None or not asked.sampling.done():
                return False
            whose = each.member.organization_id
            if asked.reply.done() and whose in running.opened.missing:
                return False
        return True


@contextmanager
def live_federation(config: ServerConfig, task: Task) -> Iterator[Federation]:
    with ExitStack() as stack:
        gateway = LateGateway()
        plain, _ = stack.enter_context(open_federation(config, task, gateway))
        federation = LiveFederation(plain.config, plain.database, plain.coordinator, plain.clock)
        ring = KeyRing(config.directory)
        gateway.real = Gateway(
            bind=HOST,
            port=config.fleet_port,
            certificate=ring.certificate_path(SERVER),
            private_key=ring.key_path(SERVER),
        )
        enrollment = Enrollment(federation.database, ring, config, clock=federation.clock)
        exchange = exchange_server(
            federation.database, enrollment, ring, config, clock=federation.clock
        )
        for server in (gateway.real, exchange):
            server.start()
            stack.callback(server.stop)
        stop = threading.Event()
        for new in newcomers():
            member, home = admit_member(federation, new)
            membership, key = Membership.load(home.identity), load_or_create_key(home.identity)
            client = stack.enter_context(ExchangeClient(membership, key))
            joined = settle_member(federation, new, member, home, client)

            def answer(request: TrainRequest, who: object = joined) -> object:
                return who.participant.handle(request, now=federation.clock.now)  # type: ignore[attr-defined]

            node = Node(membership, key, answer, polling=FAST)  # type: ignore[arg-type]
            talking = threading.Thread(target=node.run, args=(stop,))
            talking.start()
            stack.callback(talking.join)
        stack.callback(stop.set)
        federation.coordinator.tick(federation.clock.now)
        give_up = time.monotonic() + 60
        while len(gateway.real.online()) < len(federation.members):
            assert time.monotonic() < give_up, "nodes do not connect"
            time.sleep(0.02)
        yield federation


class LateGateway:
    """A gateway whose certificate is created after its coordinator."""

    real: Gateway

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        self.real.set_members(keys)

    def round(self) -> FleetRound:
        return self.real.round()


@dataclass
class Values:
    """All releases and the final state of a federation."""

    releases: dict[tuple[str, SlotKey], object] = field(default_factory=dict)
    state: dict[str, object] = field(default_factory=dict)


def values(federation: Federation) -> Values:
    found = Values(state=state(federation.database))
    for each in federation.members:
        for slot in SLOTS:
            stored = each.ledger.stored(slot.key)
            if stored is not None:
                release = decode_release(stored.payload)
                found.releases[each.home.directory.name, slot.key] = release.values.tolist()  # type: ignore[union-attr]
    return found


def state(database: Database, *, answered: bool = True) -> dict[str, object]:
    """Return corrections, versions, decisions, regimes, drifts and rounds.

    `answered` adds what the rounds expected and refused.
    """
    with database.transaction() as session:
        correction = registry.published_correction(session)
        versions = registry.versions(session)
        return {
            "mean": correction and correction.mean.tolist(),
            "covariance": correction and correction.covariance.tolist(),
            "rows": registry.published_rows(session),
            "versions": [(e.version, e.status, e.public_error, e.checkpoint) for e in versions],
            "verdicts": [
                (
                    each.version,
                    each.status,
                    each.reason,
                    each.gain,
                    each.gain_error,
                    each.decided_at,
                )
                for each in registry.decisions(session)
            ],
            "epochs": regimes(session),
            "drifts": stored_drifts(session, TABLE.period),
            "questions": [each.payload for each in session.query(QueryRow)],
            "rounds": [
                (each.slot, each.outcome, each.replies, each.new_version)
                + ((each.expected, each.failures) if answered else ())
                for each in closed_rounds(session, TABLE)
            ],
        }


def config_in(directory: Path) -> ServerConfig:
    exchange, enrollment, fleet = free_ports(3)
    return ServerConfig(
        directory=directory / "coordinator",
        host=HOST,
        calendar=TABLE,
        exchange_port=exchange,
        enrollment_port=enrollment,
        fleet_port=fleet,
        grace=GRACE,
        bind=HOST,
    )


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    with pytest.MonkeyPatch.context() as patch:
        public = tmp_path_factory.mktemp("public")
        install_start(public, patch)
        install_plans(public, patch)
        yield ggfn_task()


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory, task: Task) -> Values:
    return in_memory(tmp_path_factory.mktemp("memory") / "whole", task)


def in_memory(directory: Path, task: Task) -> Values:
    directory.mkdir()
    with memory_federation(config_in(directory), task, newcomers()) as federation:
        fill(federation)
        live_through(federation)
        return values(federation)


def test_live_memory_and_replay_backends_give_identical_values(
    tmp_path: Path, task: Task, remembered: Values
) -> None:
    (tmp_path / "live").mkdir()
    config = config_in(tmp_path / "live")
    with live_federation(config, task) as federation:
        fill(federation)
        live_through(federation)
        lived = values(federation)
        replayed_in = replace(config, directory=tmp_path / "replayed", database_url="")
        with replayed(federation.database, replayed_in, task) as again:
            made_again = state(again.database, answered=False)
        stored = state(federation.database, answered=False)
    assert lived.releases == remembered.releases
    for what, found in lived.state.items():
        assert found == remembered.state[what], what
    for what, found in stored.items():
        assert found == made_again[what], what
    assert_something_happened(lived)


def assert_something_happened(lived: Values) -> None:
    """Check that the scenario contains its events, so that no comparison is trivial."""
    rounds = lived.state["rounds"]
    assert isinstance(rounds, list)
    failures = [each[-1] for each in rounds]
    assert {"missing": 1} in failures
    assert [each[0].index for each in rounds] == [0, 0, 1, 0]
    assert len(lived.state["epochs"]) == 2  # type: ignore[arg-type]
    assert len(lived.state["verdicts"]) >= 2  # type: ignore[arg-type]
    mean = lived.state["mean"]
    assert isinstance(mean, list)
    assert max(map(abs, mean)) > 0.05


@pytest.mark.parametrize("left_out", ["charging", "judging"])
def test_memory_backend_without_charging_or_promotion_gives_other_values(
    tmp_path: Path,
    task: Task,
    remembered: Values,
    monkeypatch: pytest.MonkeyPatch,
    left_out: str,
) -> None:
    if left_out == "judging":
        monkeypatch.setattr(PromotionController, "run_once", lambda self, snapshot: ())
        assert in_memory(tmp_path / "less", task).state != remembered.state
    else:
        monkeypatch.setattr(PrivacyLedger, "reserve", lambda self, key, at: self.schedule.slot(key))
        assert in_memory(tmp_path / "less", task).releases != remembered.releases
