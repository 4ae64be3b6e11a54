"""Tests of model rounds: the coordinator's state machine with a fake fleet and clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from structlog.testing import capture_logs

from fedperf_server.app.composition import store_first_version
from fedperf_server.config import ServerConfig
from fedperf_server.membership.authority import SIGNING, KeyRing, init
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.model_rounds import ModelRounds
from fedperf_server.rounds.open_round import Reply, RoundRules
from fedperf_server.state import registry, releases, round_calendar
from fedperf_server.state.database import (
    Database,
    ModelRound,
    PromotionRecord,
    RegimeTrigger,
    RoundOutcome,
    VersionStatus,
)
from fedperf_server.state.drift_regimes import declare
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.exchange import Refusal
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    InvalidReleaseError,
    LinearizedParameters,
    ReleaseKind,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from tests.fakes.rounds import SumsOfWeights, newest_version, sum_of_weights

START = datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TABLE = ReleaseCalendar(
    Period(START, 60 * MINUTE, 2),
    (),
    (SlotTimes(10 * MINUTE, 20 * MINUTE), SlotTimes(30 * MINUTE, 40 * MINUTE)),
    ModelMethod.TANGENT,
    extra_slots=(SlotTimes(20 * MINUTE, 25 * MINUTE),),
    extra_windows=1,
)
SLOTS = tuple(
    Slot(
        SlotKey(ReleaseKind.MODEL_UPDATE, window, index),
        LinearizedParameters(1.0, 100.0),
    )
    for window in range(2)
    for index in range(3)
)
RULES = RoundRules(2, 5 * MINUTE)


class TinyFormat:
    architecture = 1
    shapes: Sequence[tuple[int, ...]] = ((2,),)

    def encode(self, arrays: Sequence[NDArray[np.float32]], version: int) -> bytes:
        del version
        return arrays[0].tobytes()

    def decode(self, checkpoint: bytes) -> Weights:
        return [np.frombuffer(checkpoint, dtype=np.float32).copy()]


@dataclass
class FakeFleet:
    """Fake fleet of organizations that reply at once. `tick` advances the clock."""

    tick: Callable[[], None]
    answers: dict[bytes, Callable[[bytes], bytes | None]] = field(default_factory=dict)
    members: set[bytes] = field(default_factory=set)
    asked: list[bytes] = field(default_factory=list)
    is_open: bool = False
    held: bool = False
    _inbox: list[Reply] = field(default_factory=list)

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        self.members = set(keys)

    def round(self) -> "FakeFleet":
        self._inbox.clear()
        self.asked.clear()
        self.is_open = True
        return self

    def close(self) -> None:
        self.is_open = False

    def send(self, organization_id: bytes, body: bytes) -> bool:
        if organization_id in self.asked or organization_id not in self.answers:
            return False
        self.asked.append(organization_id)
        self._inbox.append(Reply(organization_id, self.answers[organization_id](body)))
        return True

    def replies(self) -> Sequence[Reply]:
        self.tick()
        if self.held:
            return []
        arrived, self._inbox = self._inbox, []
        return arrived


@dataclass
class Scene:
    rounds: ModelRounds
    database: Database
    enrollment: Enrollment
    fleet: FakeFleet
    at: list[datetime]
    calls: dict[str, int]
    broken: dict[str, Exception]
    steps: list[int] = field(default_factory=list)

    def join(self, name: str, value: float | None) -> bytes:
        key, organization_id = self.join_with(name, Schedule(TABLE, SLOTS))
        if value is not None:
            self.fleet.answers[organization_id] = lambda body: update(key, body, value)
        return organization_id

    def join_with(self, name: str, schedule: Schedule) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        """Join and declare `schedule`. Return key and id of the new member."""
        key = new_private_key()
        token = bytes.fromhex(self.enrollment.add_organization(name).url.rsplit(".", 1)[1])
        csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        request = csr.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.DER)
        organization_id = self.enrollment.join(token, request).organization_id
        with self.database.transaction() as session:
            releases.declare_schedule(session, organization_id, schedule, at=START)
        return key, organization_id

    def step(self) -> ModelRound | None:
        """Run the rounds until the one that is due is closed. Return None if none is due."""
        while True:
            for result in self.rounds.run_once(at=self.at[0]):
                return result
            if not self.fleet.is_open:
                return None

    def is_over(self) -> bool:
        """Return True if every round of the period is closed."""
        with self.database.transaction() as session:
            return round_calendar.due_slot(session, TABLE, now=TABLE.period.end) is None

    def promote_newest(self) -> None:
        """Promote the newest version, as the reports of the next window may do."""
        with self.database.transaction() as session:
            newest = newest_version(session).version
            verdict = PromotionRecord(
                version=newest,
                status=VersionStatus.PROMOTED,
                reason="good",
                by_segment={},
                decided_at=self.at[0],
            )
            registry.decide(session, verdict)

    def versions(self) -> frozenset[int]:
        with self.database.transaction() as session:
            return registry.version_numbers(session)


def update(key: ec.EllipticCurvePrivateKey, body: bytes, value: float) -> bytes:
    request = codec.decode_train_request(body)
    changes = [np.full(2, value, dtype=np.float32)]
    content = sum_of_weights(request.slot, request.base_version, changes)
    payload = codec.encode_release(content)
    return codec.encode_signed_release(SignedRelease(payload, sign(key, payload)))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    config = ServerConfig(tmp_path, "localhost", TABLE)
    ring: KeyRing = init(tmp_path, "localhost", now=START)
    at, calls = [START], {"aggregate": 0, "evaluate": 0}
    broken: dict[str, Exception] = {}
    database = Database(config.database_url)
    store_first_version(database, TinyFormat(), [np.zeros(2, dtype=np.float32)], at=START)
    enrollment = Enrollment(database, ring, config, clock=lambda: at[0])

    def tick() -> None:
        at[0] += MINUTE / 4

    def aggregate(current: Weights, updates: Sequence[Weights]) -> Weights:
        calls["aggregate"] += 1
        if "aggregate" in broken:
            raise broken.pop("aggregate")
        return [current[0] + np.mean([each[0] for each in updates], axis=0)]

    def evaluate(arrays: Weights) -> float:
        calls["evaluate"] += 1
        if "evaluate" in broken:
            raise broken.pop("evaluate")
        return float(arrays[0][0])

    method = SumsOfWeights(TinyFormat().shapes, aggregate)
    steps: list[int] = []
    monkeypatch.setattr(
        type(method), "design_query", lambda self, current, *, steps_made: steps.append(steps_made)
    )
    fleet = FakeFleet(tick)
    rounds = ModelRounds(
        database,
        enrollment,
        fleet,
        calendar=TABLE,
        rules=RULES,
        model_format=TinyFormat(),
        signing_key=ring.key(SIGNING),
        strategy=method,
        evaluate=evaluate,
    )
    yield Scene(rounds, database, enrollment, fleet, at, calls, broken, steps)
    database.close()


def test_model_rounds_before_slot_opens_start_no_round_but_update_the_fleet(scene: Scene) -> None:
    scene.join("one", 1.0)
    scene.at[0] = START + 9 * MINUTE
    assert scene.step() is None
    assert scene.fleet.members


def test_model_rounds_run_every_slot_of_the_period_once_and_in_order(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    for moment in (10, 30, 70, 90):
        scene.at[0] = START + moment * MINUTE
        if moment == 70:
            scene.promote_newest()
        assert scene.step() is not None
        assert scene.step() is None
    with scene.database.transaction() as session:
        results = closed_rounds(session, TABLE)
    assert [(each.number, each.slot.window, each.slot.index) for each in results] == [
        (1, 0, 0),
        (2, 0, 1),
        (3, 1, 0),
        (4, 1, 1),
    ]
    assert [each.new_version for each in results] == [2, 3, 4, 5]
    assert [each.public_error for each in results] == [1.0, 2.0, 3.0, 4.0]
    assert scene.is_over()


def test_model_rounds_in_new_drift_regime_run_extra_slots_up_to_the_limit(
    scene: Scene,
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    for before in (START - MINUTE, START + MINUTE):
        with scene.database.transaction() as session:
            declare(session, TABLE.period, RegimeTrigger.DECLARED, at=before)
    for moment in (10, 20, 30, 70, 90):
        scene.at[0] = START + moment * MINUTE
        if moment == 70:
            scene.promote_newest()
        assert scene.step() is not None
        assert scene.step() is None
    with scene.database.transaction() as session:
        results = closed_rounds(session, TABLE)
    asked = [(each.slot.window, each.slot.index) for each in results]
    assert asked == [(0, 0), (0, 2), (0, 1), (1, 0), (1, 1)]
    assert scene.is_over()


def test_drift_regime_declared_before_calendar_gap_adds_extra_rounds(
    scene: Scene,
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    last_year = replace(TABLE.period, start=START - 130 * MINUTE)
    with scene.database.transaction() as session:
        declare(session, last_year, RegimeTrigger.DECLARED, at=last_year.end - MINUTE)
    for moment in (10, 20, 30, 70, 90):
        scene.at[0] = START + moment * MINUTE
        if moment == 70:
            scene.promote_newest()
        assert scene.step() is not None
    assert scene.is_over()


def test_model_round_in_new_drift_regime_restarts_step_count(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    with scene.database.transaction() as session:
        declare(session, TABLE.period, RegimeTrigger.DECLARED, at=START + MINUTE)
    for moment in (10, 30, 70, 80, 90):
        scene.at[0] = START + moment * MINUTE
        if moment == 70:
            scene.promote_newest()
        assert scene.step() is not None
    assert scene.steps == [0, 1, 0, 1, 2]


def test_model_round_waits_for_promotion_and_starts_from_promoted_version(
    scene: Scene,
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    for moment in (10, 30):
        scene.at[0] = START + moment * MINUTE
        scene.step()
    scene.at[0] = START + 70 * MINUTE
    assert scene.step() is None
    assert scene.versions() == {1, 2, 3}
    scene.promote_newest()
    result = scene.step()
    assert isinstance(result, ModelRound)
    assert (result.slot.window, result.public_error) == (1, 3.0)


def test_model_round_without_promotion_decision_starts_from_running_version(
    scene: Scene,
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    for moment in (10, 30):
        scene.at[0] = START + moment * MINUTE
        scene.step()
    scene.at[0] = START + 72 * MINUTE
    assert scene.step() is None
    scene.at[0] = START + 72.5 * MINUTE
    result = scene.step()
    assert isinstance(result, ModelRound)
    assert result.public_error == 1.0
    assert scene.steps == [0, 1, 0]


def test_model_round_after_rejection_counts_steps_from_running_version(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    for moment in (10, 30):
        scene.at[0] = START + moment * MINUTE
        scene.step()
    with scene.database.transaction() as session:
        for version in (2, 3):
            registry.reject(session, version, "worse", at=scene.at[0])
    for moment in (70, 90):
        scene.at[0] = START + moment * MINUTE
        scene.step()
    assert scene.steps == [0, 1, 0, 1]


def test_model_version_with_base_rejected_during_round_is_rejected(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    plain = scene.fleet.tick

    def tick() -> None:
        plain()
        with scene.database.transaction() as session:
            registry.reject(session, 2, "taken back: slow", at=scene.at[0])

    scene.fleet.tick = tick
    scene.at[0] = START + 30 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        assert newest_version(session).version == 1
        (*_, last) = registry.decisions(session)
    assert (last.version, last.reason) == (3, "trained from version 2, which was rejected")


def test_model_round_with_silent_organization_closes_after_grace_period(scene: Scene) -> None:
    for name, value in (("one", 1.0), ("two", 1.0), ("silent", None)):
        scene.join(name, value)
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    assert START + 25 * MINUTE <= scene.at[0] < START + 26 * MINUTE
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.outcome, result.replies, result.failures) == (
        RoundOutcome.NEW_VERSION,
        2,
        {"missing": 1},
    )


def test_model_round_below_quorum_creates_no_version_and_skips_aggregation(scene: Scene) -> None:
    scene.join("one", 1.0)
    scene.join("long", 1e9)
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.outcome, result.replies, result.failures) == (
        RoundOutcome.NO_QUORUM,
        1,
        {"range": 1},
    )
    assert (result.new_version, result.public_error) == (None, None)
    assert scene.versions() == {1}
    assert scene.calls == {"aggregate": 0, "evaluate": 0}


@pytest.mark.parametrize("values", [(), (None,), (1e9,)])
def test_model_round_with_no_accepted_reply_creates_no_version(
    scene: Scene, values: tuple[float | None, ...]
) -> None:
    """No organization is present, none replies, or the reply is refused."""
    scene.rounds.rules = replace(RULES, quorum=1)
    for value in values:
        scene.join("one", value)
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.outcome, result.replies, result.new_version) == (RoundOutcome.NO_QUORUM, 0, None)
    assert scene.versions() == {1}


def test_model_round_records_refusal_reason_of_an_organization(scene: Scene) -> None:
    answered = Reply(scene.join("one", None), None, Refusal.NOT_DUE)
    scene.fleet.answers[answered.organization_id] = lambda body: None
    plain = scene.fleet.replies
    scene.fleet.replies = lambda: [answered for _ in plain()]  # type: ignore[method-assign]
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert result.failures == {"not_due": 1}


def test_round_rules_with_zero_quorum_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="quorum"):
        replace(RULES, quorum=0)


def test_organization_joining_during_open_round_takes_part(scene: Scene) -> None:
    scene.at[0] = START + 10 * MINUTE
    late = START + 12 * MINUTE
    plain = scene.fleet.tick

    def tick() -> None:
        plain()
        if scene.at[0] == late:
            for name in ("one", "two"):
                scene.join(name, 1.0)

    scene.fleet.tick = tick
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.expected, result.replies) == (2, 2)


def test_declared_schedule_with_out_of_range_noise_is_ignored(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    silly = tuple(
        replace(slot, parameters=replace(SLOTS[0].parameters, noise_multiplier=1e200))
        for slot in SLOTS
    )
    scene.join_with("three", Schedule(TABLE, silly))
    with scene.database.transaction() as session:
        assert len(releases.declared_schedules(session, TABLE.period)) == 2
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.expected, result.replies) == (2, 2)


@pytest.mark.parametrize("stage", ["aggregate", "evaluate"])
def test_model_round_after_memory_error_is_rerun_and_counted_once(scene: Scene, stage: str) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.at[0] = START + 10 * MINUTE
    scene.broken[stage] = MemoryError()
    with pytest.raises(MemoryError):
        scene.step()  # a restart may succeed
    assert scene.versions() == {1}
    scene.at[0] = START + 50 * MINUTE  # overdue, but it was opened and therefore runs
    scene.step()
    assert scene.versions() == {1, 2}
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.number, result.outcome) == (1, RoundOutcome.NEW_VERSION)


@pytest.mark.parametrize("bad", [[np.full(2, np.nan)], [np.zeros(3)], []])
def test_model_round_with_invalid_aggregate_fails_and_stores_no_version(
    scene: Scene, bad: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.at[0] = START + 10 * MINUTE
    strategy = SumsOfWeights(TinyFormat().shapes, lambda current, updates: bad)
    monkeypatch.setattr(scene.rounds, "strategy", strategy)
    scene.step()
    assert scene.versions() == {1}
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.outcome, result.replies) == (RoundOutcome.FAILED, 2)


@pytest.mark.parametrize("stage", ["aggregate", "evaluate"])
@pytest.mark.parametrize(
    "error",
    [OverflowError(), np.linalg.LinAlgError(), RuntimeError(), InvalidReleaseError("of a sum")],
)
def test_model_round_computation_error_closes_it_as_failed_and_next_round_runs(
    scene: Scene, stage: str, error: Exception
) -> None:
    ids = [scene.join(name, 1.0) for name in ("one", "two")]
    scene.at[0] = START + 10 * MINUTE
    scene.broken[stage] = error
    with capture_logs() as logs:
        scene.step()
    assert logs[0]["exc_info"].__cause__ is error or logs[0]["exc_info"] is error
    scene.at[0] = START + 30 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        failed, after = closed_rounds(session, TABLE)
        receipts = [releases.receipts_in(session, each, TABLE.period) for each in ids]
    assert (failed.outcome, failed.replies, failed.new_version) == (RoundOutcome.FAILED, 2, None)
    assert (after.outcome, after.new_version) == (RoundOutcome.NEW_VERSION, 2)
    assert [len(each) for each in receipts] == [2, 2]  # the updates were received all the same


def test_model_round_refuses_reply_contradicting_earlier_receipt(scene: Scene) -> None:
    ids = [scene.join(name, 1.0) for name in ("one", "two", "three")]
    slot = SLOTS[0].key
    with scene.database.transaction() as session:
        releases.give_receipt(
            session,
            ids[0],
            slot.release_id(TABLE.period),
            SignedRelease(b"what was sent before", b""),
            key=new_private_key(),
            at=START,
        )
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    with scene.database.transaction() as session:
        (result,) = closed_rounds(session, TABLE)
    assert (result.replies, result.failures) == (2, {"different_bytes": 1})


def test_model_round_interrupted_stays_open_and_is_rerun(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.at[0] = START + 10 * MINUTE
    scene.fleet.held = True
    assert scene.rounds.run_once(at=scene.at[0]) == ()
    scene.rounds.interrupt()
    assert not scene.fleet.is_open
    with scene.database.transaction() as session:
        assert closed_rounds(session, TABLE) == []
    scene.fleet.held = False
    result = scene.step()
    assert result is not None
    assert (result.number, result.outcome) == (1, RoundOutcome.NEW_VERSION)


def test_model_rounds_run_once_returns_immediately_and_closes_round_at_deadline(
    scene: Scene,
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.join("late", None)
    looks = [10, 15, 20, 24.9]
    assert [scene.rounds.run_once(at=START + each * MINUTE) for each in looks] == [()] * 4
    (result,) = scene.rounds.run_once(at=START + 25 * MINUTE)
    assert (result.replies, result.failures) == (2, {"missing": 1})


def test_model_round_closed_late_counts_replies_that_arrived_in_time(scene: Scene) -> None:
    """A reply in time is not missing if the coordinator was busy past the deadline."""
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.fleet.held = True
    assert scene.rounds.run_once(at=START + 10 * MINUTE) == ()
    scene.fleet.held = False
    (result,) = scene.rounds.run_once(at=START + 40 * MINUTE)
    assert (result.replies, result.failures) == (2, {})


def test_model_round_after_unexpected_error_closes_fleet_and_is_rerun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        scene.join(name, 1.0)
    scene.at[0] = START + 10 * MINUTE
    with monkeypatch.context() as broken:
        broken.setattr(FakeFleet, "replies", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scene.step()
    assert not scene.fleet.is_open
    result = scene.step()
    assert result is not None
    assert (result.number, result.replies) == (1, 2)


def test_model_rounds_of_legacy_dp_sgd_calendar_are_marked_missed(scene: Scene) -> None:
    """This includes a round that an older version had begun."""
    old = replace(TABLE, model_method=ModelMethod.UNSPECIFIED)
    for name in ("one", "two"):
        scene.join(name, 1.0)
    with scene.database.transaction() as session:
        round_calendar.new_round(session, old, SLOTS[0].key, 1, at=START + 10 * MINUTE)
    scene.rounds.calendar = old
    for moment, closed in ((11, 0), (19, 0), (21, 1), (31, 1), (90, 3)):
        scene.at[0] = START + moment * MINUTE
        while scene.rounds.run_once(at=scene.at[0]):
            pass
        with scene.database.transaction() as session:
            results = closed_rounds(session, old)
        assert {each.outcome for each in results if each.outcome} <= {RoundOutcome.MISSED}
        assert sum(each.outcome is RoundOutcome.MISSED for each in results) == closed
    assert scene.fleet.asked == []
    assert scene.fleet.members
    assert scene.versions() == {1}
