"""Releases that the coordinator confirmed but a restored data directory lacks.

They must not be drawn again.
"""

from pathlib import Path

import pytest

from fedperf_client.node.participant import compare_receipts
from fedperf_client.release.ledger import LedgerDisagreesError, PrivacyLedger
from fedperf_shared.identity import InvalidSignatureError, new_private_key
from tests.unit.client.node.test_daemon import REPORT, Scene, make_scene
from tests.unit.shared.console_programs import contents


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return make_scene(tmp_path, monkeypatch)


def test_release_confirmed_before_a_restore_is_not_drawn_again(
    scene: Scene,
) -> None:
    scene.exchange.left_before = {REPORT: b"drawn before the backup was restored"}
    compare_receipts(scene.ledger, scene.exchange)
    scene.restart()
    for hours in (1.0, 3.0):
        scene.look_at(hours)
    with pytest.raises(LedgerDisagreesError):
        scene.ask_at(4.5)
    scene.look_at(7.0)
    assert scene.ledger.entries() == ()
    assert scene.exchange.submitted == []


def test_second_draw_of_a_confirmed_release_stops_all_further_releases(
    scene: Scene,
) -> None:
    scene.exchange.left_before = {REPORT: b"drawn before the backup was restored"}
    for hours in (1.0, 3.0, 3.5):
        scene.look_at(hours)
    assert len(scene.exchange.submitted) == 1
    assert "other bytes" in str(PrivacyLedger.open(scene.ledger.path).disagreement())
    with pytest.raises(LedgerDisagreesError):
        scene.ask_at(4.5)
    scene.ledger.reconcile(scene.now)
    scene.look_at(4.6)
    assert len(list(scene.home.receipts.iterdir())) == 1
    assert scene.ledger.disagreement() is None


def test_agreeing_receipts_leave_the_ledger_active(scene: Scene) -> None:
    scene.look_at(1.0)
    stored = scene.ledger.stored(REPORT)
    assert stored is not None
    scene.exchange.left_before = {REPORT: stored.payload}
    compare_receipts(scene.ledger, scene.exchange)
    assert scene.ledger.disagreement() is None
    scene.look_at(3.0)
    assert len(scene.exchange.submitted) == 1


def test_forged_receipt_is_refused_and_changes_no_file(scene: Scene) -> None:
    before = contents(scene.home.directory)
    scene.exchange.left_before = {REPORT: b"never drawn"}
    scene.exchange.signing_key = new_private_key()
    with pytest.raises(InvalidSignatureError):
        compare_receipts(scene.ledger, scene.exchange)
    assert contents(scene.home.directory) == before
