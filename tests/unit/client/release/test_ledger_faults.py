"""Tests of the ledger with processes killed at every step between charge and dispatch."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.release import gate as gate_module
from fedperf_client.release import ledger as ledger_module
from fedperf_client.release.gate import ReleaseGate
from fedperf_client.release.ledger import LedgerEntry, PrivacyLedger, ReleaseState, SlotSpentError
from fedperf_client.release.noise import system_noise
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import NoisySum, SignedRelease, Slot
from tests.fakes.empty_reports import empty_report
from tests.fakes.released import release_now
from tests.unit.client.release.periods import new_ledger, open_at, report_key

pytestmark = pytest.mark.fault

KEY = report_key(0)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _release(path: Path) -> SignedRelease:
    gate = ReleaseGate(PrivacyLedger.open(path), system_noise, new_private_key())
    return release_now(gate, KEY, empty_report, at=open_at(0))


def _dies_between_charge_and_counter(path: Path) -> None:
    ledger = PrivacyLedger.open(path)
    setattr(ledger, "_advance_counter", die)  # noqa: B010
    release_now(
        ReleaseGate(ledger, system_noise, new_private_key()), KEY, empty_report, at=open_at(0)
    )


def _dies_inside_the_charge(path: Path) -> None:
    setattr(ledger_module, "write_counter", die)  # noqa: B010
    _release(path)


def _dies_before_the_draw(path: Path) -> None:
    def dying(slot: Slot, noise: NoiseSource) -> NoisySum:
        die()
        return empty_report(slot, noise)

    gate = ReleaseGate(PrivacyLedger.open(path), system_noise, new_private_key())
    release_now(gate, KEY, dying, at=open_at(0))


def _dies_after_the_draw(path: Path) -> None:
    setattr(gate_module, "sign", die)  # noqa: B010
    _release(path)


def _dies_before_the_handing_out(path: Path) -> None:
    setattr(PrivacyLedger, "dispatch", die)  # noqa: B010
    _release(path)


def run_and_die(target: Callable[[Path], None], path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=target, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def only_entry(path: Path) -> LedgerEntry:
    (entry,) = PrivacyLedger.open(path).entries()
    return entry


@pytest.mark.parametrize(
    "death", [_dies_between_charge_and_counter, _dies_before_the_draw, _dies_after_the_draw]
)
def test_process_killed_after_charge_wastes_its_slot_and_allows_the_next(
    tmp_path: Path, death: Callable[[Path], None]
) -> None:
    path = new_ledger(tmp_path).path
    run_and_die(death, path)
    assert only_entry(path).state is ReleaseState.RESERVED
    ledger = PrivacyLedger.open(path)
    assert ledger.spent(open_at(0)) > 0
    with pytest.raises(SlotSpentError):
        _release(path)
    assert ledger.stored(KEY) is None
    ledger.reserve(report_key(1), open_at(1))
    assert ledger.disagreement() is None


def test_process_killed_inside_charge_stores_no_charge(tmp_path: Path) -> None:
    path = new_ledger(tmp_path).path
    run_and_die(_dies_inside_the_charge, path)
    assert PrivacyLedger.open(path).entries() == ()
    assert _release(path).payload


def test_process_killed_before_dispatch_sends_stored_bytes_on_restart(
    tmp_path: Path,
) -> None:
    path = new_ledger(tmp_path).path
    run_and_die(_dies_before_the_handing_out, path)
    assert only_entry(path).state is ReleaseState.DRAWN
    assert _release(path) == PrivacyLedger.open(path).stored(KEY)
    assert only_entry(path).state is ReleaseState.HANDED_OUT


def _releases_all(path: Path) -> None:
    gate = ReleaseGate(PrivacyLedger.open(path), system_noise, new_private_key())
    for window in range(6):
        time.sleep(0.005)
        release_now(gate, report_key(window), empty_report, at=open_at(window))


def test_process_killed_at_any_time_leaves_slots_unspent_wasted_or_stored(tmp_path: Path) -> None:
    for attempt in range(6):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        path = new_ledger(directory).path
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_releases_all, args=(path,))
        process.start()
        time.sleep(0.02 * (attempt + 1))
        process.kill()
        process.join(60)
        ledger = PrivacyLedger.open(path)
        charged = {entry.key: entry.state for entry in ledger.entries()}
        stored = {key for key in charged if ledger.stored(key) is not None}
        assert {key for key, state in charged.items() if state is ReleaseState.RESERVED} == (
            charged.keys() - stored
        )
        assert ledger.disagreement() is None
        assert len(charged.keys() - stored) <= 1
        if report_key(5) not in charged:
            ledger.reserve(report_key(5), open_at(5))
