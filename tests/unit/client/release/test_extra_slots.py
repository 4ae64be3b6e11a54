"""Tests of extra slots: a period charges at most the number that its calendar allows."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_client.release.accountant import epsilon, to_event, to_events
from fedperf_client.release.history import read_spending
from fedperf_client.release.ledger import ExtraSlotsSpentError, PrivacyLedger
from fedperf_client.release.policy import Policy
from fedperf_client.release.preview import next_slots
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import LinearizedParameters, Schedule, SizeClass, Slot
from fedperf_shared.wire.codec import decode_schedule, encode_schedule
from tests.unit.client.release.periods import (
    BUDGET,
    START,
    calendar,
    extra_key,
    open_at,
    update_key,
    with_extra_slots,
)

LARGE = Policy(size_class=SizeClass.LARGE, nominal_workloads=4000)


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    return PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET, with_extra_slots())


def test_extra_slots_are_charged_up_to_their_number_in_any_windows(ledger: PrivacyLedger) -> None:
    for window in (1, 4):
        ledger.reserve(extra_key(window), open_at(window))
    with pytest.raises(ExtraSlotsSpentError, match="all 2 of this period are spent"):
        ledger.reserve(extra_key(5), open_at(5))
    ledger.reserve(update_key(5), open_at(5))  # ordinary slots are unaffected
    assert len(ledger.entries()) == 3


@pytest.mark.slow
def test_schedule_cost_includes_chargeable_extra_slots(tmp_path: Path) -> None:
    planned = plan_schedule(LARGE, calendar(extra=2, extra_windows=2))
    schedule = planned.schedule
    assert len(schedule.at_most()) == len(schedule.slots) - 2 * 6 + 2 * 2
    assert planned.epsilon == epsilon(to_events(schedule.at_most()), LARGE.delta)
    assert 0.99 * LARGE.epsilon < planned.epsilon <= LARGE.epsilon
    ledger = PrivacyLedger.create(tmp_path / "a.sqlite", planned.budget, schedule)
    for slot in schedule.slots:
        if not schedule.is_extra(slot.key) or slot.key.window in {0, 3}:
            ledger.reserve(slot.key, open_at(slot.key.window))
    end = schedule.calendar.period.end
    assert ledger.spent(end) == planned.epsilon
    spending = read_spending([ledger.path], at=end)
    assert [(each.slots, each.made) for each in spending] == [(len(schedule.at_most()),) * 2] * 2


@pytest.mark.slow
def test_schedule_with_one_more_extra_slot_would_exceed_the_budget() -> None:
    schedule = plan_schedule(LARGE, calendar(extra=1, extra_windows=1)).schedule
    more = next(slot for slot in schedule.slots if schedule.is_extra(slot.key))
    events = [*to_events(schedule.at_most()), to_event(more.parameters)]
    assert epsilon(events, LARGE.delta) > LARGE.epsilon


def test_schedule_with_extra_slots_round_trips_through_encoding() -> None:
    schedule = with_extra_slots()
    assert decode_schedule(encode_schedule(schedule)) == schedule


def test_schedule_with_unequal_extra_slots_is_refused() -> None:
    schedule = with_extra_slots()
    other = Slot(extra_key(3), LinearizedParameters(41.0, 2000))
    slots = [other if slot.key == other.key else slot for slot in schedule.slots]
    with pytest.raises(ConfigurationError, match="same parameters"):
        Schedule(schedule.calendar, tuple(slots))


@pytest.mark.parametrize(("extra", "windows"), [(1, 0), (0, 1), (1, -1), (1, 7)])
def test_calendar_with_inconsistent_extra_slots_is_refused(extra: int, windows: int) -> None:
    with pytest.raises(ConfigurationError, match="extra_windows"):
        calendar(extra=extra, extra_windows=windows)


def test_next_slots_omit_extra_slots() -> None:
    schedule = with_extra_slots()
    assert next_slots(schedule, charged=[update_key(0)], at=START) == (update_key(1),)


@pytest.mark.parametrize(("forgotten", "opened"), [([1], 3), ([0, 1], 3), ([], 0)])
def test_ledger_reconcile_of_backup_charges_extra_slots_possibly_released(
    ledger: PrivacyLedger, tmp_path: Path, forgotten: list[int], opened: int
) -> None:
    shutil.copy(ledger.path, tmp_path / "backup")
    for window in forgotten:
        ledger.reserve(extra_key(window), open_at(window))
    shutil.copy(tmp_path / "backup", ledger.path)
    restored = PrivacyLedger.open(ledger.path)
    restored.reconcile(open_at(opened))
    extra = [each.key for each in restored.entries() if restored.schedule.is_extra(each.key)]
    assert len(extra) == min(2, opened + 1)
    if len(extra) == 2:
        for window in range(opened + 1, 6):
            with pytest.raises(ExtraSlotsSpentError):
                restored.reserve(extra_key(window), open_at(window))


@pytest.mark.slow
def test_schedule_without_extra_windows_is_unchanged() -> None:
    plain = plan_schedule(LARGE, calendar())
    assert plain.schedule.at_most() == plain.schedule.slots
    more = plan_schedule(LARGE, calendar(extra=1, extra_windows=1))
    noise = {s.parameters.noise_multiplier for s in more.schedule.slots if s.key == update_key(0)}
    before = {s.parameters.noise_multiplier for s in plain.schedule.slots if s.key == update_key(0)}
    assert max(noise) > max(before)
    assert replace(plain.schedule.calendar, extra_slots=(), extra_windows=0) == calendar()
