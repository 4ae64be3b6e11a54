"""Drift regimes in the ledger: they cause no additional charges."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.ledger import ExtraSlotsSpentError, LedgerEntry
from fedperf_shared.releases.period import SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    Schedule,
    Slot,
    SlotKey,
)
from tests.unit.client.executions import START, make_execution
from tests.unit.client.node.test_daemon import (
    HOUR,
    REPORT,
    REPORT_PARAMETERS,
    TABLE,
    UPDATE,
    Scene,
)
from tests.unit.client.pretrained_model import install_start

PARAMETERS = LinearizedParameters(20.0, 5000.0)
EXTRA = [SlotKey(ReleaseKind.MODEL_UPDATE, window, 1) for window in range(2)]
WITH_EXTRA = replace(TABLE, extra_slots=(SlotTimes(7 * HOUR, 9 * HOUR),), extra_windows=1)
SCHEDULE = Schedule(
    WITH_EXTRA,
    (
        Slot(REPORT, REPORT_PARAMETERS),
        *(Slot(replace(UPDATE, window=window), PARAMETERS) for window in range(2)),
        *(Slot(key, PARAMETERS) for key in EXTRA),
    ),
)


def lived(home: Home, monkeypatch: pytest.MonkeyPatch, *, epochs: Sequence[datetime]) -> Scene:
    """Release a report and the updates of the first window, including the extra one.

    `epochs` are the starts of the drift regimes.
    """
    home.create("")
    with ExecutionStore.open(home.store) as store:
        store.add([make_execution(number) for number in range(5)])
    scene = Scene(home, schedule=SCHEDULE)
    scene.exchange.regime_starts = tuple(epochs)
    scene.look_at(1.0)
    scene.look_at(3.0)
    for hours, slot in ((4.5, UPDATE), (7.5, EXTRA[0])):
        scene.ask_at(hours, slot=slot)
    return scene


def charged(entry: LedgerEntry) -> tuple[object, ...]:
    return entry.key, entry.reserved_at, entry.payload_bytes, entry.state


@pytest.mark.slow
def test_ledger_charges_are_identical_with_and_without_drift_regimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_start(tmp_path, monkeypatch)
    plain, with_epochs = (
        lived(Home(tmp_path / name), monkeypatch, epochs=epochs)
        for name, epochs in (("plain", ()), ("epochs", (START - HOUR, START)))
    )
    ours, theirs = (map(charged, each.ledger.entries()) for each in (with_epochs, plain))
    assert list(ours) == list(theirs)
    assert len(plain.ledger.entries()) == 3
    end = TABLE.period.end
    assert with_epochs.ledger.spent(end) == plain.ledger.spent(end) > 0
    assert with_epochs.ledger.stored(REPORT) is not None


def test_additional_drift_regime_is_refused_without_a_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds for any number of regimes that the coordinator declares."""
    install_start(tmp_path, monkeypatch)
    scene = lived(Home(tmp_path / "home"), monkeypatch, epochs=(START,))
    before = scene.ledger.spent(TABLE.period.end)
    scene.exchange.regime_starts = (START, START + 24 * HOUR)
    with pytest.raises(ExtraSlotsSpentError):
        scene.ask_at(24 + 7.5, slot=EXTRA[1])
    assert scene.ledger.spent(TABLE.period.end) == before
    scene.ask_at(24 + 4.5, slot=replace(UPDATE, window=1))
    assert len(scene.ledger.entries()) == 4
