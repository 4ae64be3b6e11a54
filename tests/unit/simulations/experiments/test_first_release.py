"""Tests of first releases in the first week or last window, with equal budget and workloads."""

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fedperf_client.release.accountant import epsilon, to_events
from fedperf_simulations.experiments import first_release
from fedperf_simulations.experiments.first_release import (
    CONDITIONS,
    LAST,
    PLANNED,
    WORKLOADS,
    YearCondition,
    draw_members,
    in_the_last_window,
    planned_schedule,
)
from fedperf_simulations.harness.experiment import Row


def test_early_and_late_schedules_cost_the_same_epsilon() -> None:
    planned = planned_schedule()
    late = in_the_last_window(planned.schedule)
    costs = {epsilon(to_events(each.slots), 1e-5) for each in (planned.schedule, late)}
    assert costs == {planned.epsilon}
    period = late.calendar.period
    first = [min(each.replies_at(s.key) for s in each.slots) for each in (planned.schedule, late)]
    assert first[0] - period.start <= timedelta(days=8)
    assert (first[1] - period.start).days == 341


@pytest.mark.parametrize("replaced", [0.0, 0.5])
def test_simulated_organization_has_constant_workload_count_over_time(replaced: float) -> None:
    lived, other = draw_members(2, replaced, np.random.default_rng(1))
    for moment in (-1.0, 0.0, 0.4, 1.0):
        now = lived.between(moment, math.nextafter(moment, 2))
        assert len(now) == pytest.approx(WORKLOADS, abs=1)
    ever = lived.between(-math.inf, 1.0)
    assert len(ever) == pytest.approx(WORKLOADS * (1 + replaced), abs=1)
    assert not np.array_equal(lived.levels, other.levels)


def test_first_release_targets_compare_medians_of_paired_draws() -> None:
    def case(condition: YearCondition, draw: int) -> Row:
        late = condition.schedule == LAST
        error = 1.0 + draw / 100
        return {
            "draw": draw,
            first_release.AVERAGED: error * (1.0 if late else 0.8),
            first_release.AT_END: error * (0.5 if late else 0.53),
        }

    cases = {each: [case(each, draw) for draw in range(20)] for each in CONDITIONS}
    targets = first_release._targets(cases)
    assert len(targets) == 8
    over_the_year, at_the_end = targets[:2]
    assert over_the_year.value == pytest.approx(-20.0)
    assert over_the_year.holds
    assert at_the_end.value == pytest.approx(6.0)
    assert not at_the_end.holds
    assert {each.schedule for each in CONDITIONS} == {PLANNED, LAST}
    assert replace(CONDITIONS[0], schedule=LAST) == CONDITIONS[1]
