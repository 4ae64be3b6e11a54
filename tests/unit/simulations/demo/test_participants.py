"""Tests of demo participants: disjoint workloads, and a family that pretraining excludes."""

from datetime import timedelta

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution
from fedperf_simulations.demo.participants import (
    QUICK_YEAR,
    DemoParticipants,
    YearSize,
    cast_of,
    is_new_family,
)
from tests.unit.client.executions import make_execution

SIZE = YearSize(
    windows=4, cap_window=2, organizations=2, own=4, pool=6, held_out=3, pretraining=5, epochs=1
)
FAMILIES = ("credit", "tpch")


def segment(name: str, count: int = 40) -> list[Execution]:
    """Return workloads, every second one of which is of the new family."""
    return [
        make_execution(number, workload=f"{FAMILIES[number % 2]}-{name}-{number}")
        for number in range(count)
    ]


SEGMENTS = tuple(segment(name) for name in ("whole", "capped", "new"))


def workloads(cast: DemoParticipants) -> list[set[str]]:
    """Return the workloads of the members, of the new participant and of its held-out set."""
    members = {each.workload for year in cast.organizations for each in year.labelled}
    return [
        members,
        {each.workload for each in cast.new_participant},
        {each.workload for each in cast.similar_to_new},
    ]


def test_demo_participants_share_no_workload_with_new_participant_or_held_out() -> None:
    cast = cast_of(SEGMENTS, SIZE, seed=1)
    members, newcomer, asked = workloads(cast)
    assert not members & newcomer
    assert not members & asked
    assert not newcomer & asked
    assert (len(newcomer), len(asked)) == (3, 3)
    assert (len(cast.old_machine), len(cast.new_machine), len(cast.pretraining)) == (3, 3, 5)


def test_demo_new_participant_runs_a_family_absent_from_pretraining() -> None:
    cast = cast_of(SEGMENTS, SIZE, seed=1)
    assert all(is_new_family(each) for each in (*cast.new_participant, *cast.similar_to_new))
    only_new = [[e for e in each if is_new_family(e)] for each in SEGMENTS]
    with pytest.raises(ConfigurationError, match="0 workloads of a kind, 5 are to be given"):
        cast_of(only_new, SIZE, seed=1)


def test_demo_organizations_run_two_segments_before_the_cap_and_third_after() -> None:
    cast = cast_of(SEGMENTS, SIZE, seed=1)
    period = SIZE.calendar().period
    for year in cast.organizations:
        before = year.between(None, period.window_start(2))
        after = year.between(period.window_start(2), period.window_start(3))
        names = [each.workload.split("-")[1] for each in before]
        assert names == ["whole"] * SIZE.own + ["new"] * SIZE.own
        assert [each.workload.split("-")[1] for each in after] == ["capped"] * SIZE.own


def test_demo_participants_are_deterministic_for_a_seed() -> None:
    one, again, other = (workloads(cast_of(SEGMENTS, SIZE, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    ("change", "words"), [({"own": 7}, "7 of 6"), ({"cap_window": 4}, "got 4")]
)
def test_demo_year_size_with_invalid_values_is_refused(change: dict[str, int], words: str) -> None:
    fields = {"windows": 4, "cap_window": 2, "own": 4, "pool": 6}
    with pytest.raises(ConfigurationError, match=words):
        YearSize(**{**fields, **change})


@pytest.mark.parametrize("size", [YearSize(), QUICK_YEAR])
def test_demo_year_calendar_has_default_slots_and_reduced_windows(size: YearSize) -> None:
    table = size.calendar()
    assert (table.period.windows, table.period.window) == (size.windows, timedelta(weeks=4))
    assert len(table.report_slots) == 3
    assert len(table.model_slots) == len(table.extra_slots) == size.rounds
