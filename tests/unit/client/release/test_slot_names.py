from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.release.schedule import UnknownSlotError, parse_slot_name, slot_name
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from tests.unit.client.release.periods import START, calendar

OLDER = calendar().period
NEWER = replace(OLDER, start=START + timedelta(days=365))


@given(st.builds(SlotKey, st.sampled_from(ReleaseKind), st.integers(0, 399), st.integers(0, 99)))
def test_slot_name_is_parsed_to_its_period_and_slot(key: SlotKey) -> None:
    assert parse_slot_name(slot_name(key), [OLDER, NEWER]) == (1, key)
    assert parse_slot_name(slot_name(key, period=OLDER), [OLDER, NEWER]) == (0, key)


@pytest.mark.parametrize(
    "text", ["", "report", "report-1", "report-1-0 ", "report--1-0", "model-1-0", "update-1-0@2027"]
)
def test_invalid_slot_name_is_refused(text: str) -> None:
    with pytest.raises(UnknownSlotError, match="a name looks like report-3-0"):
        parse_slot_name(text, [OLDER])


def test_slot_name_of_unknown_period_is_refused() -> None:
    with pytest.raises(UnknownSlotError, match="no period began then"):
        parse_slot_name(slot_name(SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0), period=NEWER), [OLDER])
