"""Releases that need approval or are withheld: sending, charges, and traffic."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from fedperf_client.node.exchange import ExchangeError, RefusedByCoordinatorError
from fedperf_client.node.updates import RequestRefusedError
from fedperf_client.release.decisions import Decisions, DecisionTooLateError, Outcome
from fedperf_client.release.gate import WithheldError
from fedperf_client.release.ledger import ReleaseState
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_shared.releases.release import SlotKey
from tests.unit.client.executions import START
from tests.unit.client.node.test_daemon import HOUR, POLICY, REPORT, UPDATE, Scene, make_scene

ASKING = replace(POLICY, residual_report=ReleaseMode.ASK, model_update=ReleaseMode.ASK)
NEVER = replace(POLICY, residual_report=ReleaseMode.NEVER, model_update=ReleaseMode.NEVER)
APPROVED, WITHHELD = Outcome.APPROVED, Outcome.WITHHELD


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return make_scene(tmp_path, monkeypatch, policy=ASKING)


def decide(scene: Scene, verdict: Outcome, hours: float, key: SlotKey = REPORT) -> None:
    Decisions(scene.ledger).decide(key, verdict, at=START + hours * HOUR)


def states(scene: Scene) -> list[ReleaseState]:
    return [entry.state for entry in scene.ledger.entries()]


def test_report_approved_in_advance_is_sent_at_its_time(scene: Scene) -> None:
    decide(scene, APPROVED, 0.5)
    for hours in (1.0, 2.9, 3.0):
        scene.look_at(hours)
    ((at, _),) = scene.exchange.submitted
    assert at == START + 3 * HOUR
    assert states(scene) == [ReleaseState.HANDED_OUT]


def test_sealed_report_approved_later_is_sent_with_the_same_bytes(scene: Scene) -> None:
    scene.look_at(1.0)
    assert states(scene) == [ReleaseState.DRAWN]
    seen = scene.ledger.stored(REPORT)
    decide(scene, APPROVED, 2.0)
    scene.restart()
    scene.look_at(2.9)
    assert scene.exchange.submitted == []
    scene.look_at(3.0)
    ((at, sent),) = scene.exchange.submitted
    assert seen is not None
    assert (at, sent) == (START + 3 * HOUR, seen)


def test_report_without_decision_is_never_sent_but_stays_charged(scene: Scene) -> None:
    for hours in (1.0, 3.0, 3.1):
        scene.look_at(hours)
    with pytest.raises(DecisionTooLateError):
        decide(scene, APPROVED, 3.2)
    scene.restart()
    scene.look_at(4.0)
    assert scene.exchange.submitted == []
    assert states(scene) == [ReleaseState.DRAWN]
    assert scene.ledger.spent(scene.now) > 0


def test_report_without_decision_before_its_time_is_not_drawn_afterwards(scene: Scene) -> None:
    for hours in (3.5, 6.0):
        scene.look_at(hours)
    assert states(scene) == []


@pytest.mark.parametrize("policy", [POLICY, ASKING])
def test_report_withheld_in_advance_is_not_charged(scene: Scene, policy: Policy) -> None:
    scene.policy = policy
    scene.restart()
    decide(scene, WITHHELD, 0.5)
    for hours in (1.0, 3.0, 3.1):
        scene.look_at(hours)
    assert (states(scene), scene.exchange.submitted) == ([], [])


def test_report_withheld_after_drawing_stays_charged(scene: Scene) -> None:
    scene.look_at(1.0)
    spent = scene.ledger.spent(scene.now)
    decide(scene, WITHHELD, 2.0)
    for hours in (3.0, 3.1, 23.0):
        scene.look_at(hours)
    assert scene.exchange.submitted == []
    assert scene.ledger.spent(scene.now) == spent > 0


def test_policy_changed_to_never_withholds_in_an_active_period(
    scene: Scene,
) -> None:
    scene.policy = NEVER
    scene.restart()
    scene.look_at(1.0)
    scene.look_at(3.0)
    with pytest.raises(WithheldError):
        scene.ask_at(4.5)
    assert (states(scene), scene.exchange.submitted) == ([], [])


def traffic(scene: Scene) -> list[tuple[datetime, str]]:
    """Return the daemon's calls of one day at its usual pace, without releases."""
    scene.now = START
    while scene.now < START + 23 * HOUR:
        scene.participant.tick(scene.now)
        scene.now += scene.participant.pause(0.7 * HOUR, now=scene.now)
    return [call for call in scene.exchange.calls if call[1] != "submit"]


@pytest.mark.parametrize("withheld_at", [None, 0.5, 2.0])
def test_withheld_report_changes_no_other_traffic(
    withheld_at: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_scene, kept_scene = (
        make_scene(tmp_path / name, monkeypatch, policy=ASKING) for name in ("a", "b")
    )
    open_scene.policy = POLICY
    open_scene.restart()
    if withheld_at is not None:
        decide(kept_scene, WITHHELD, withheld_at)
    assert traffic(open_scene) == traffic(kept_scene)
    assert len(open_scene.exchange.submitted) == 1
    assert kept_scene.exchange.submitted == []


@pytest.mark.parametrize("withheld_at", [None, 3.5, 5.0])
def test_withheld_update_gets_no_reply(scene: Scene, withheld_at: float | None) -> None:
    if withheld_at == 3.5:
        decide(scene, WITHHELD, 3.5, UPDATE)
    answer = scene.asked_at(4.5)
    if withheld_at == 5.0:
        decide(scene, WITHHELD, 5.0, UPDATE)
    scene.participant.dispatch(START + 6 * HOUR)
    with pytest.raises(WithheldError):
        answer.result(timeout=0)
    assert states(scene) == ([] if withheld_at == 3.5 else [ReleaseState.DRAWN])
    with pytest.raises(RequestRefusedError, match="no such slot is due"):
        scene.ask_at(6.5)  # a node that was offline at the slot's time
    scene.look_at(9.0)
    assert not issubclass(WithheldError, RequestRefusedError)  # the node would reply to it
    assert "submit" not in [what for _, what in scene.exchange.calls]


def test_approved_update_is_sent_at_its_time(scene: Scene) -> None:
    decide(scene, APPROVED, 3.5, UPDATE)
    sent = scene.ask_at(4.5)
    assert scene.now == START + 6 * HOUR
    assert scene.ask_at(6.5) == sent
    assert states(scene) == [ReleaseState.HANDED_OUT]


def test_update_receipt_is_fetched_after_its_round_ends(scene: Scene) -> None:
    decide(scene, APPROVED, 3.5, UPDATE)
    sent = scene.ask_at(4.5)
    scene.look_at(7.9)
    assert scene.exchange.tried == 0
    scene.look_at(8.0)
    scene.look_at(8.1)
    assert [sent] == [each for _, each in scene.exchange.submitted]
    assert len(list(scene.home.receipts.iterdir())) == 1
    assert scene.ledger.disagreement() is None


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (RefusedByCoordinatorError("no_receipt_yet"), [8.0, 10.0, 14.0, 22.0]),
        (ExchangeError("away"), [8.0, 10.0, 14.0, 22.0]),
        (RefusedByCoordinatorError("different_bytes"), [8.0]),
    ],
)
def test_missing_receipt_is_requested_with_doubling_backoff(
    scene: Scene, fault: Exception, tries: list[float]
) -> None:
    decide(scene, APPROVED, 3.5, UPDATE)
    scene.ask_at(4.5)
    scene.exchange.fault = fault
    for half_hours in range(14, 47):
        scene.look_at(half_hours / 2)
    asked = [at for at, what in scene.exchange.calls if what == "submit"]
    assert asked == [START + hours * HOUR for hours in tries]
