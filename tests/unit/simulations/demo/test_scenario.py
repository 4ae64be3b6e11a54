from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.profiling.trials.shipped_workloads import draw
from fedperf_client.workloads.families import workload_name
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ExecutionStatus
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.demo.scenario import (
    CHARACTERS,
    PROMOTION_WINDOWS,
    DemoSize,
    Pace,
    TooFewExecutionsError,
    fitted_calendar,
    live_workloads,
    participant,
    participants,
)
from fedperf_simulations.measured_set.organizations import OrganizationPart, WorkloadPart
from tests.unit.client.executions import make_execution

START = datetime(2027, 1, 1, tzinfo=UTC)
SIZE = DemoSize(live_executions=5, history_workloads=20, held_out=3)
WHOLE = OrganizationPart(
    name="alder",
    size_class=SizeClass.LARGE,
    nominal_workloads=2000,
    history=tuple(make_execution(i, workload=f"old-{i // 2}") for i in range(40)),
    held_out=tuple(make_execution(100 + i) for i in range(6)),
)
ANCHORS = 200
PACE = Pace(
    startup_seconds=3.0,
    reading_seconds=1.0,
    residuals_seconds=0.5,
    executions=600,
    anchor_seconds=0.002,
    plan_seconds=0.01,
)


def test_another_seed_gives_another_history_and_the_same_seed_the_same() -> None:
    first, again, other = (
        participant(WorkloadPart.ALDER, WHOLE, seed=seed, size=SIZE) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.history != other.history
    assert first.live_seed != other.live_seed


@pytest.mark.slow
def test_another_seed_holds_other_workloads_out() -> None:
    executions = list(measured_executions())
    first, other = (participants(executions, seed=seed, size=DemoSize()) for seed in (1, 2))
    for one, two in zip(first, other, strict=True):
        assert len(one.held_out) >= 100
        assert {e.workload for e in one.held_out} != {e.workload for e in two.held_out}
        assert not {e.workload for e in one.held_out} & {e.workload for e in one.history}


def test_a_workload_is_drawn_with_all_its_executions() -> None:
    drawn = participant(WorkloadPart.ALDER, WHOLE, seed=1, size=SIZE).history
    assert len({each.workload for each in drawn}) == 18
    assert len(drawn) == 36


def test_no_organization_draws_the_jobs_of_another() -> None:
    seeds = {
        participant(part, WHOLE, seed=s, size=SIZE).live_seed for part in CHARACTERS for s in (0, 1)
    }
    assert len(seeds) == 2 * len(CHARACTERS)


def test_what_an_organization_runs_live_is_never_held_out() -> None:
    live_seed = participant(WorkloadPart.ALDER, WHOLE, seed=1, size=SIZE).live_seed
    character = CHARACTERS[WorkloadPart.ALDER]
    live = live_workloads(character, count=5, seed=live_seed)
    leaking = tuple(make_execution(200 + i, workload=name) for i, name in enumerate(sorted(live)))
    whole = replace(WHOLE, held_out=WHOLE.held_out + leaking)
    held_out = participant(WorkloadPart.ALDER, whole, seed=1, size=SIZE).held_out
    assert not live & {each.workload for each in held_out}
    assert len(held_out) == len(WHOLE.held_out)


def test_live_workloads_are_those_that_profiling_draws() -> None:
    character = CHARACTERS[WorkloadPart.BIRCH]
    drawn = draw(4, families=character.families, max_rows=character.max_rows, seed=9)
    assert live_workloads(character, count=4, seed=9) == {workload_name(p) for p, _ in drawn}


def test_failed_executions_judge_nobody_and_too_few_are_refused() -> None:
    failed = tuple(
        make_execution(i, status=ExecutionStatus.TIMEOUT, measurement=None) for i in range(200, 220)
    )
    whole = replace(WHOLE, held_out=WHOLE.held_out[:2] + failed)
    with pytest.raises(TooFewExecutionsError, match="2 held-out executions and needs 3"):
        participant(WorkloadPart.ALDER, whole, seed=1, size=SIZE)


def test_the_calendar_leaves_time_for_what_was_measured() -> None:
    size = DemoSize()
    calendar = fitted_calendar(PACE, anchors=ANCHORS, size=size)
    work = 1.0 + (600 + size.live_executions) * 0.01 + 2 * ANCHORS * 0.002
    assert calendar.model_seconds - calendar.opens_seconds > 1.4 * work
    assert calendar.opens_seconds > calendar.report_seconds + calendar.grace_seconds
    assert calendar.report_seconds > 1.9 * 1.5
    assert calendar.windows * calendar.window_seconds <= size.rounds_seconds
    assert calendar.windows == size.windows


@given(
    st.builds(
        Pace,
        *(st.floats(0.001, 20) for _ in range(3)),
        st.integers(0, 5000),
        *(st.floats(0.0001, 0.5) for _ in range(2)),
    ),
    st.integers(1, 1000),
)
def test_any_pace_gives_a_timetable_whose_slots_fit(pace: Pace, anchors: int) -> None:
    calendar = fitted_calendar(pace, anchors=anchors, size=DemoSize())
    table = calendar.timetable(START)
    assert table.period.start == START
    (report,), (model,) = table.report_slots, table.model_slots
    assert timedelta(0) < report.replies_after <= model.opens_after < model.replies_after
    assert model.replies_after < table.period.window
    fits = calendar.windows * calendar.window_seconds <= DemoSize().rounds_seconds
    assert fits or calendar.windows == PROMOTION_WINDOWS
    assert calendar.windows >= PROMOTION_WINDOWS


def test_a_slower_machine_holds_fewer_rounds_and_takes_longer_rather_than_none_to_promote() -> None:
    calendars = [
        fitted_calendar(
            replace(PACE, plan_seconds=factor * PACE.plan_seconds), anchors=ANCHORS, size=DemoSize()
        )
        for factor in (1, 3, 30)
    ]
    windows = [each.windows for each in calendars]
    assert windows[0] > windows[1] > windows[2] == PROMOTION_WINDOWS
    assert calendars[2].windows * calendars[2].window_seconds > DemoSize().rounds_seconds


def test_the_slowest_pace_is_the_worst_of_each_figure() -> None:
    other = replace(PACE, reading_seconds=5.0, plan_seconds=0.001)
    assert Pace.slowest([PACE, other]) == replace(PACE, reading_seconds=5.0)


@pytest.mark.parametrize("change", [{"windows": 1}, {"repeats": 0}])
def test_a_demo_of_nothing_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(change))):
        DemoSize(**change)
