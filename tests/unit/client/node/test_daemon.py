"""The daemon's scheduled actions, and its behaviour under failures.

The coordinator is a fake that fails on demand. Ledger, gate, noise, store and receipts are real.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from structlog.testing import capture_logs

from fedperf_client.contributions.local_sums import ReportTask
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import load_or_create_key
from fedperf_client.node.exchange import (
    Exchange,
    ExchangeError,
    NoMemberError,
    RefusedByCoordinatorError,
    confirmed,
)
from fedperf_client.node.participant import Participant, TooLateError, open_ledger
from fedperf_client.node.updates import RequestRefusedError
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.history import past_releases
from fedperf_client.release.ledger import PrivacyLedger, ReleaseState
from fedperf_client.release.ledger_files import ConfirmedRelease
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.workers.worker_process import (
    BackgroundRunner,
    ComputationFailedError,
    in_thread,
)
from fedperf_shared.exchange import (
    Correction,
    Receipt,
    SharedModel,
    SignedReceipt,
    Status,
    TrainRequest,
)
from fedperf_shared.execution import Execution
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.model.architecture import ARCHITECTURE_VERSION
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    SignedRelease,
    SizeClass,
    Slot,
    SlotKey,
)
from fedperf_shared.runtime.failure_tracker import LONGEST_BACKOFF_SECONDS, FailureTracker
from fedperf_shared.runtime.quantities import day
from fedperf_shared.wire.codec import (
    decode_release,
    encode_receipt,
    encode_release,
)
from tests.fakes.coordinator import membership_with
from tests.fakes.linearized_queries import few_anchors, make_linearized_query
from tests.fakes.residual_reports import residual_report
from tests.fakes.task_runners import Held, at_once, in_this_process
from tests.unit.client.contributions.seeded_noise import SeededNoise
from tests.unit.client.executions import START, make_execution
from tests.unit.client.pretrained_model import install_start, seeded_checkpoint

T = TypeVar("T")

HOUR = timedelta(hours=1)
REPORT_TIMES, UPDATE_TIMES = SlotTimes(HOUR, 3 * HOUR), SlotTimes(4 * HOUR, 6 * HOUR)
TABLE = ReleaseCalendar(Period(START, 24 * HOUR, 2), (REPORT_TIMES,), (UPDATE_TIMES,))
REPORT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
UPDATE = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
REPORT_PARAMETERS = ReportParameters(20.0, 1.5)
SCHEDULE = Schedule(
    TABLE,
    (
        Slot(REPORT, REPORT_PARAMETERS),
        Slot(UPDATE, LinearizedParameters(20.0, 5000.0)),
    ),
)
POLICY = Policy(size_class=SizeClass.LARGE, nominal_workloads=5000)
ARRAYS = tuple(seeded_checkpoint().arrays.values())


class FakeExchange(Exchange):
    """A coordinator in this process. The next call raises `fault` if it is set."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, clock: Callable[[], datetime]) -> None:
        self.signing_key = key
        self._clock = clock
        self._membership = membership_with(key)
        self.fault: Exception | None = None
        self.left_before: dict[SlotKey, bytes] = {}
        self.submitted: list[tuple[datetime, SignedRelease]] = []
        self.calls: list[tuple[datetime, str]] = []
        self.tried = 0
        self.models: dict[int, bytes] = {}
        self.reference = 1
        self.regime_starts: tuple[datetime, ...] = ()
        self.published: Correction | None = None
        self.published_at: datetime | None = None
        self.questions: dict[SlotKey, CellQuery] = {}
        self.bad_question: Exception | None = None
        self.current_calendar = TABLE
        self.declared: list[Schedule] = []

    def calendar(self) -> ReleaseCalendar:
        self._called("calendar")
        return self.current_calendar

    def declare_schedule(self, schedule: Schedule) -> None:
        self._called("declare")
        self.declared.append(schedule)

    def status(self) -> Status:
        self._called("status")
        newest = max(self.models, default=0)
        return Status(
            self._clock(), newest, 1, 1, self.reference, self.regime_starts, self.published_at
        )

    def publish(self, correction: Correction) -> None:
        self.published, self.published_at = correction, self._clock()

    def submit(self, signed: SignedRelease) -> ConfirmedRelease:
        self.tried += 1
        self._called("submit")
        self.submitted.append((self._clock(), signed))
        slot = decode_release(signed.payload).slot
        return self._receipt(slot, self.left_before.get(slot, signed.payload), len(self.submitted))

    def receipts(self) -> tuple[ConfirmedRelease, ...]:
        self._called("receipts")
        left = enumerate(self.left_before.items(), 1)
        return tuple(self._receipt(slot, payload, number) for number, (slot, payload) in left)

    def _receipt(self, slot: SlotKey, payload: bytes, sequence: int) -> ConfirmedRelease:
        receipt = Receipt(
            self._membership.organization_id,
            slot.release_id(TABLE.period),
            hashlib.sha256(payload).digest(),
            sequence,
            self._clock(),
        )
        content = encode_receipt(receipt)
        signed = SignedReceipt(content, sign(self.signing_key, content))
        return confirmed(signed, self._membership)

    def model(self, version: int = 0) -> SharedModel:
        self._called("model")
        return SharedModel(version, self.models[version])

    def correction(self) -> Correction | None:
        self._called("correction")
        return self.published

    def linear_query(self, slot: SlotKey) -> CellQuery | None:
        self._called("linear_query")
        if self.bad_question is not None:
            raise self.bad_question
        return self.questions.get(slot)

    def _called(self, what: str) -> None:
        self.calls.append((self._clock(), what))
        if self.fault is not None:
            raise self.fault


@dataclass
class Scene:
    """An organization that joined the fake coordinator."""

    home: Home
    policy: Policy = POLICY
    schedule: Schedule = SCHEDULE
    now: datetime = START
    start: BackgroundRunner = at_once

    def __post_init__(self) -> None:
        key = new_private_key()
        self.key = load_or_create_key(self.home.identity)
        membership_with(key).save(self.home.identity)
        self.exchange = FakeExchange(key, lambda: self.now)
        path = self.home.ledger(START)
        self.ledger = PrivacyLedger.create(path, PrivacyBudget(5.0, 1e-5), self.schedule)
        self.restart()

    def restart(self, failures: FailureTracker | None = None) -> None:
        noise = SeededNoise()
        self.participant = Participant(
            self.home,
            self.exchange,
            self.ledger,
            lambda slot: noise,
            self.key,
            policy=self.policy,
            reporting=in_this_process,
            training=in_this_process,
            start=self.start,
            anchors=few_anchors(),
            failures=failures or FailureTracker(timer=self.seconds),
        )

    def seconds(self) -> float:
        return self.now.timestamp()

    def look_at(self, hours: float) -> None:
        self.now = START + hours * HOUR
        self.participant.tick(self.now)

    def asked_at(self, hours: float, **changes: object) -> Future[SignedRelease]:
        self.now = START + hours * HOUR
        values = {
            "slot": UPDATE,
            "architecture": ARCHITECTURE_VERSION,
            "base_version": 1,
            "arrays": ARRAYS,
            "query": make_linearized_query(),
        }
        request = TrainRequest(**{**values, **changes})  # type: ignore[arg-type]
        return self.participant.handle(request, now=self.now)

    def ask_at(self, hours: float, **changes: object) -> SignedRelease:
        """Send a train request at that hour and return the reply.

        The time moves on to the slot's time of reply.
        """
        answer = self.asked_at(hours, **changes)
        if not answer.done():
            slot = changes.get("slot", UPDATE)
            assert isinstance(slot, SlotKey)
            assert not answer.done()
            self.now = max(self.now, self.schedule.replies_at(slot))
            self.participant.dispatch(self.now)
        return answer.result(timeout=0)


def lost(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
    """Raise the error of a worker process whose child was killed."""
    del task, seconds
    raise ComputationFailedError("its process was lost")


def order_of_drawing(monkeypatch: pytest.MonkeyPatch, slots: object) -> list[str]:
    """Return a list that records "noise" and "sum" as the handler of slots computes them.

    Every sum fails.
    """
    drawn: list[str] = []
    plain = SeededNoise.discrete_gaussian

    def noted(noise: SeededNoise, size: int, scale: float) -> NDArray[np.int64]:
        drawn.append("noise")
        return plain(noise, size, scale)

    def late(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        drawn.append("sum")
        return lost(task, seconds=seconds)

    monkeypatch.setattr(SeededNoise, "discrete_gaussian", noted)
    monkeypatch.setattr(slots, "_compute", late)
    return drawn


def make_scene(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    executions: Iterable[Execution] | None = None,
    *,
    policy: Policy = POLICY,
    schedule: Schedule = SCHEDULE,
) -> Scene:
    """Return an organization with these executions, or with five."""
    directory.mkdir(exist_ok=True)
    install_start(directory, monkeypatch)
    home = Home(directory / "home")
    home.create("")
    with ExecutionStore.open(home.store) as store:
        store.add(map(make_execution, range(5)) if executions is None else executions)
    return Scene(home, policy, schedule)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return make_scene(tmp_path, monkeypatch)


def test_report_is_drawn_when_its_slot_opens_and_sent_at_its_time(scene: Scene) -> None:
    scene.look_at(0.9)
    assert scene.ledger.entries() == ()
    scene.look_at(1.0)
    (entry,) = scene.ledger.entries()
    assert entry.key == REPORT
    scene.look_at(2.99)
    assert scene.exchange.submitted == []
    scene.look_at(3.0)
    scene.look_at(3.5)
    ((at, _),) = scene.exchange.submitted
    assert at == START + 3 * HOUR
    assert len(list(scene.home.receipts.iterdir())) == 1
    assert scene.ledger.disagreement() is None


def test_participant_pause_ends_at_the_next_calendar_time(scene: Scene) -> None:
    scene.now = START + 0.5 * HOUR
    assert scene.participant.pause(2 * HOUR, now=scene.now) == 0.5 * HOUR
    scene.look_at(2.5)
    assert scene.participant.pause(2 * HOUR, now=scene.now) == 0.5 * HOUR
    scene.look_at(3.0)
    assert scene.participant.pause(2 * HOUR, now=scene.now) == 2 * HOUR


def test_report_is_resent_with_the_same_bytes_after_an_outage(scene: Scene) -> None:
    scene.look_at(1.0)
    scene.exchange.fault = ExchangeError("away")
    scene.look_at(3.0)
    scene.look_at(4.0)
    stored = scene.ledger.stored(REPORT)
    scene.restart()
    scene.exchange.fault = None
    scene.look_at(5.0)
    ((_, sent),) = scene.exchange.submitted
    assert stored is not None
    assert sent.payload == stored.payload
    assert scene.exchange.tried == 3


def test_daemon_offline_at_regime_change_reports_on_the_new_regime_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon fetches the new regime before it draws its report."""
    heard: list[ReportTask] = []

    def listening(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        if isinstance(task, ReportTask):
            heard.append(task)
        return in_this_process(task, seconds=seconds)

    monkeypatch.setattr(scene.participant._reports, "_compute", listening)
    scene.exchange.regime_starts = (START - 30 * HOUR, START)
    scene.exchange.models[2] = encode_checkpoint(replace(seeded_checkpoint(), model_version=2))
    scene.exchange.reference = 2
    scene.look_at(1.0)
    (task,) = heard
    assert (task.since, task.until) == (START - 30 * HOUR, START)
    assert task.reference.model_version == 2


@pytest.mark.parametrize(("code", "again"), [("range", False), ("internal", True)])
def test_report_refused_for_good_is_not_resent_but_after_internal_error_is(
    scene: Scene, code: str, again: bool
) -> None:
    scene.look_at(1.0)
    scene.exchange.fault = RefusedByCoordinatorError(code)
    scene.look_at(3.0)
    scene.exchange.fault = None
    scene.look_at(3.1)
    assert bool(scene.exchange.submitted) is again
    assert len(scene.ledger.entries()) == 1


def test_report_drawn_late_is_sent_after_the_full_span_of_its_slot(scene: Scene) -> None:
    scene.look_at(5.0)
    assert scene.exchange.submitted == []
    scene.look_at(6.9)
    assert scene.exchange.submitted == []
    scene.look_at(7.0)
    ((at, _),) = scene.exchange.submitted
    assert at == START + 7 * HOUR


def test_report_of_a_finished_window_is_neither_charged_nor_sent(scene: Scene) -> None:
    scene.look_at(24.5)
    assert scene.ledger.entries() == ()


def test_report_computed_too_late_is_withheld_with_a_warning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, its_time_is_over = threading.Event(), threading.Event()
    drawings: list[Future[None]] = []

    def slow(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        assert seconds == pytest.approx(0.9 * 2 * 3600)
        has_begun.set()
        assert its_time_is_over.wait(60)
        return task()

    def beside(work: Callable[[], None], /) -> Future[None]:
        drawings.append(in_thread(work))
        return drawings[-1]

    monkeypatch.setattr(scene.participant._reports, "_compute", slow)
    monkeypatch.setattr(scene.participant, "_start", beside)
    with capture_logs() as logs:
        scene.look_at(1.0)
        assert has_begun.wait(60)
        for hours in (2.9, 3.0):
            scene.look_at(hours)
        its_time_is_over.set()
        drawings[0].result(timeout=60)
        scene.look_at(4.0)
        scene.restart()
        scene.look_at(4.5)
        scene.look_at(9.0)
    assert scene.exchange.submitted == []
    (said,) = (each["reason"] for each in logs if each["log_level"] == "warning")
    assert said == (
        "residual_report of window 0 was not ready at its fixed time and stays here; "
        "give the daemon more cores, or its schedule fewer steps"
    )
    (entry,) = scene.ledger.entries()
    assert entry.payload_bytes > 0
    (listed,) = past_releases([scene.ledger], scene.home.receipts, read=None)
    assert (listed.state, listed.because) == ("withheld", "too_late")


def test_report_noise_is_drawn_before_the_sum_is_computed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After waiting for the sum, a machine under load must not miss the slot's time."""
    drawn = order_of_drawing(monkeypatch, scene.participant._reports)
    scene.look_at(1.0)
    assert drawn == ["noise", "sum"]


def test_report_with_failed_computation_is_sent_as_noise_at_its_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has the usual size and the full noise of its slot."""
    monkeypatch.setattr(scene.participant._reports, "_compute", lost)
    scene.look_at(1.0)
    scene.look_at(3.0)
    ((at, sent),) = scene.exchange.submitted
    assert at == START + 3 * HOUR
    noise_alone = residual_report(
        (), SeededNoise(), slot=REPORT, parameters=REPORT_PARAMETERS, reference_version=1
    )
    assert sent.payload == encode_release(noise_alone)


def test_daemon_polls_while_a_report_is_computed_and_withholds_it_if_late(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls to the coordinator continue. A report that is computed too late is not sent."""
    held = Held()
    monkeypatch.setattr(scene.participant, "_start", held)
    for hours in (1.0, 1.5, 2.0):
        scene.look_at(hours)
        assert scene.exchange.calls[-1] == (scene.now, "status")
    assert scene.participant.pause(2 * HOUR, now=scene.now) == HOUR
    assert len(held.begun) == 1
    scene.look_at(3.0)
    held.run()
    scene.look_at(9.0)
    assert scene.exchange.submitted == []
    assert scene.ledger.entries() == ()


def test_update_is_sent_at_its_time_and_again_on_a_second_request(scene: Scene) -> None:
    answer = scene.asked_at(4.5)
    scene.participant.dispatch(START + 5.99 * HOUR)
    assert not answer.done()
    assert scene.asked_at(5.0) is answer
    assert scene.participant.pause(2 * HOUR, now=scene.now) == HOUR
    scene.participant.dispatch(START + 6 * HOUR)
    assert scene.ask_at(6.5, base_version=9) == answer.result(timeout=0)
    assert [entry.state for entry in scene.ledger.entries()] == [ReleaseState.HANDED_OUT]


@pytest.mark.parametrize(
    ("hours", "changes"),
    [
        (3.9, {}),  # before the slot opens
        (6.1, {}),  # after the slot's time, without a drawn update
        (50.0, {}),  # after the period
        (4.5, {"slot": SlotKey(ReleaseKind.MODEL_UPDATE, 1, 0)}),  # slot not in the schedule
        (4.5, {"slot": REPORT}),  # slot of a report
        (4.5, {"architecture": ARCHITECTURE_VERSION + 1}),
        (4.5, {"arrays": ()}),
        (4.5, {"arrays": ARRAYS[:-1]}),
        (4.5, {"arrays": (np.zeros(3, np.float32), *ARRAYS[1:])}),
    ],
)
def test_invalid_train_request_is_refused_without_a_charge(
    scene: Scene, hours: float, changes: dict[str, object]
) -> None:
    with pytest.raises(RequestRefusedError):
        scene.ask_at(hours, **changes)
    assert [entry for entry in scene.ledger.entries() if entry.key == UPDATE] == []


def test_update_pending_at_daemon_stop_is_not_sent_early(scene: Scene) -> None:
    answer = scene.asked_at(4.5)
    scene.participant.close()
    with pytest.raises(RequestRefusedError, match="offline"):
        answer.result(timeout=0)
    assert scene.ledger.stored(UPDATE) is not None


def test_update_computed_too_late_is_refused(scene: Scene) -> None:
    held = Held()
    scene.start = held
    scene.restart()
    with pytest.raises(TooLateError):
        scene.ask_at(4.5)
    held.run()
    scene.start = at_once
    scene.restart()
    with pytest.raises(RequestRefusedError):
        scene.ask_at(7.0)


def test_daemon_fetches_new_model_and_ignores_invalid_one(scene: Scene) -> None:
    scene.exchange.models = {2: encode_checkpoint(seeded_checkpoint(5, version=2))}
    scene.look_at(0.1)
    assert scene.participant._models.shared_version == 2
    scene.exchange.models = {3: b"junk"}
    scene.look_at(0.2)
    assert scene.participant._models.shared_version == 2


def test_correction_is_applied_only_with_its_reference_version(scene: Scene) -> None:
    from fedperf_shared.releases.basis import BASIS_VERSION, CELLS

    def published(reference: int) -> Correction:
        return Correction(BASIS_VERSION, reference, np.full(CELLS, 0.5), np.eye(CELLS))

    scene.exchange.publish(published(9))
    scene.look_at(0.1)
    assert not scene.participant._models.correction().mean.any()
    scene.exchange.publish(published(1))
    scene.look_at(0.2)
    assert scene.participant._models.correction().mean.all()


def test_correction_is_fetched_only_when_it_changed(scene: Scene) -> None:
    from fedperf_shared.releases.basis import BASIS_VERSION, CELLS

    def fetched() -> int:
        return sum(what == "correction" for _, what in scene.exchange.calls)

    scene.look_at(0.1)
    assert fetched() == 0
    for level in (0.5, 0.7):
        mean = np.full(CELLS, level)
        scene.exchange.publish(Correction(BASIS_VERSION, 1, mean, np.eye(CELLS)))
        before = fetched()
        for _ in range(3):
            scene.look_at(0.2 + level)
        assert fetched() == before + 1
        np.testing.assert_array_equal(scene.participant._models.correction().mean, mean)


def test_open_ledger_of_active_period_keeps_schedule_and_budget(tmp_path: Path) -> None:
    home = Home(tmp_path)
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=5000)
    begun = open_ledger(home, policy, TABLE, now=TABLE.period.start)
    changed = Policy(size_class=SizeClass.SMALL, nominal_workloads=9000, epsilon=3.0)
    again = open_ledger(home, changed, TABLE, now=TABLE.period.start)
    assert (again.schedule, again.budget) == (begun.schedule, begun.budget)


def test_open_ledger_logs_policy_changes_that_wait_for_the_next_period(tmp_path: Path) -> None:
    home = Home(tmp_path)
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=400)
    open_ledger(home, policy, TABLE, now=TABLE.period.start)
    asking = replace(policy, residual_report=ReleaseMode.ASK)
    with capture_logs() as logs:
        open_ledger(home, asking, TABLE, now=TABLE.period.start)
        assert logs == [], "this is read at every start"
        open_ledger(home, replace(policy, epsilon=3.0), TABLE, now=TABLE.period.start)
    (said,) = logs
    assert said["change"] == "epsilon 1 -> 3"
    assert said["counts"] == f"from {day(TABLE.period.end)} on, with the next period"


def test_open_ledger_in_mid_period_plans_only_remaining_slots(tmp_path: Path) -> None:
    policy = Policy(size_class=SizeClass.SMALL, nominal_workloads=5000)
    later = TABLE.period.window_start(1)
    begun = open_ledger(Home(tmp_path), policy, TABLE, now=later)
    assert all(begun.schedule.opens_at(slot.key) >= later for slot in begun.schedule.slots)


def test_heard_at_is_the_time_of_the_last_successful_contact(scene: Scene) -> None:
    assert scene.participant.heard_at is None
    scene.look_at(0.1)
    heard = scene.participant.heard_at
    assert heard == scene.now
    scene.exchange.fault = ExchangeError("away")
    scene.look_at(0.2)
    assert scene.participant.heard_at == heard


def test_refused_at_is_set_on_revocation_and_cleared_on_acceptance(
    scene: Scene,
) -> None:
    scene.exchange.fault = NoMemberError("there:1")
    with capture_logs() as logs:
        scene.look_at(0.1)
    refused_at = scene.participant.refused_at
    assert refused_at == scene.now
    (said,) = logs
    assert "does not know this organization (any more), so nothing leaves" in said["reason"]
    assert "join with a new invitation" in said["reason"]
    scene.exchange.fault = None
    scene.look_at(0.2)
    assert scene.participant.refused_at is None
    assert scene.participant.heard_at == scene.now


def test_unreachable_coordinator_is_polled_with_backoff_and_logged_four_times(
    scene: Scene,
) -> None:
    scene.exchange.fault = ExchangeError("away")
    with capture_logs() as logs:
        for second in range(5, 3000, 5):
            scene.look_at(second / 3600)
        scene.exchange.fault = None
        scene.look_at(0.9)
    asked = sum(what == "status" for _, what in scene.exchange.calls)
    assert asked == pytest.approx(3000 / LONGEST_BACKOFF_SECONDS, rel=0.2)
    said = [(each["event"], each["what"]) for each in logs]
    assert said[:4] == [("failing", "fetching")] * 4
    assert said[4:] == [("works again", "fetching")]


@pytest.mark.slow
def test_unreachable_coordinator_is_retried_at_slot_times_despite_backoff(
    scene: Scene,
) -> None:
    scene.exchange.fault = ExchangeError("away")
    for second in range(3595, 3 * 3600 + 3600, 5):
        scene.look_at(second / 3600)
    seconds = 3 * 3600.0
    asked = [at for at, what in scene.exchange.calls if what == "status"]
    assert len(asked) == pytest.approx(seconds / LONGEST_BACKOFF_SECONDS, rel=0.2)
    # Despite earlier failures there are attempts at the report's opening and sending times.
    assert {START + HOUR, START + 3 * HOUR} <= set(asked)
    assert scene.exchange.tried == pytest.approx(3600 / LONGEST_BACKOFF_SECONDS, rel=0.2)
    scene.exchange.fault = None
    scene.look_at(4.01)
    assert len(scene.exchange.submitted) == 1
