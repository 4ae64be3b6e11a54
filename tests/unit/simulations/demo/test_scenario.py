from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.corpus.organizations import OrganizationPart
from fedperf_simulations.demo.scenario import DemoSize, MachineTimings, fitted_calendar, participant
from tests.unit.client.executions import make_execution

START = datetime(2027, 1, 1, tzinfo=UTC)
SIZE = DemoSize(history_workloads=15)
WHOLE = OrganizationPart(
    name="alder",
    size_class=SizeClass.LARGE,
    nominal_workloads=2000,
    history=tuple(make_execution(i, workload=f"old-{i // 2}") for i in range(40)),
    held_out=(),
)
ANCHORS = 200
PACE = MachineTimings(
    startup_seconds=3.0,
    reading_seconds=1.0,
    residuals_seconds=0.5,
    executions=600,
    anchor_seconds=0.002,
    plan_seconds=0.01,
)


def test_demo_participant_history_is_deterministic_for_a_seed() -> None:
    first, again, other = (participant(WHOLE, seed=[seed, 0], size=SIZE) for seed in (1, 1, 2))
    assert first == again
    assert first.history != other.history


def test_demo_participant_history_keeps_all_executions_of_a_workload() -> None:
    drawn = participant(WHOLE, seed=[1], size=SIZE).history
    assert len({each.workload for each in drawn}) == 15
    assert len(drawn) == 30


def test_fitted_calendar_reserves_time_for_the_measured_work() -> None:
    calendar = fitted_calendar(PACE, anchors=ANCHORS, size=DemoSize())
    work = 1.0 + 600 * 0.01 + 2 * ANCHORS * 0.002
    assert calendar.model_seconds - calendar.opens_seconds > 1.4 * work
    assert calendar.opens_seconds > calendar.report_seconds + calendar.grace_seconds
    assert calendar.report_seconds > 1.9 * 1.5


@given(
    st.builds(
        MachineTimings,
        *(st.floats(0.001, 20) for _ in range(3)),
        st.integers(0, 5000),
        *(st.floats(0.0001, 0.5) for _ in range(2)),
    ),
    st.integers(1, 1000),
)
def test_fitted_calendar_slots_fit_for_any_machine_timings(
    pace: MachineTimings, anchors: int
) -> None:
    calendar = fitted_calendar(pace, anchors=anchors, size=DemoSize())
    table = calendar.to_release_calendar(START)
    assert (table.period.start, table.period.windows) == (START, 1)
    (report,), (model,) = table.report_slots, table.model_slots
    assert timedelta(0) < report.replies_after <= model.opens_after < model.replies_after
    assert model.replies_after + timedelta(seconds=calendar.grace_seconds) < table.period.window


def test_fitted_calendar_window_grows_with_slower_machines() -> None:
    seconds = [
        fitted_calendar(
            replace(PACE, plan_seconds=factor * PACE.plan_seconds), anchors=ANCHORS, size=DemoSize()
        ).window_seconds
        for factor in (1, 3, 30)
    ]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


def test_slowest_machine_timings_take_the_maximum_of_each_value() -> None:
    other = replace(PACE, reading_seconds=5.0, plan_seconds=0.001)
    assert MachineTimings.slowest([PACE, other]) == replace(PACE, reading_seconds=5.0)


def test_demo_size_without_history_workloads_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="history_workloads"):
        DemoSize(history_workloads=0)
