"""Interleaved runs of several plans: medians, failures and the fastest plan."""

import math

from fedperf_client.prediction.prediction import Prediction, StudentT
from fedperf_engines.advice.advice import (
    MeasuredChoice,
    fastest,
    measure_plans,
    runnable_alternatives,
)
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.optimizer.enumeration import Alternative, Assignment
from fedperf_engines.trials.profiler import Trial
from fedperf_shared.execution import ExecutionStatus, Measurement
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.advice.jobs import DUCKDB, PANDAS, POLARS, SPARK, advised, learning

S = ExecutionStatus


def plan(platform: Platform, startup: float = 0.0) -> Alternative:
    return Alternative(
        Plan.on_one_platform(learning(), platform),
        Prediction(0.0, StudentT.within(math.log(2))),
        startup,
    )


class Machine:
    """A fake that runs plans in given seconds. None stands for a failure."""

    def __init__(self, seconds: dict[Platform, list[float | None]]) -> None:
        self._seconds = {platform: iter(each) for platform, each in seconds.items()}
        self.ran: list[Platform] = []

    def __call__(self, platforms: Assignment) -> Trial:
        self.ran.append(platforms[0])
        seconds = next(self._seconds[platforms[0]])
        if seconds is None:
            return Trial(platforms, S.OUT_OF_MEMORY, None)
        return Trial(platforms, S.OK, Measurement(seconds))


def test_measure_plans_alternates_order_and_returns_medians() -> None:
    machine = Machine({DUCKDB: [3.0, 9.0, 4.0], POLARS: [1.0, 1.5, 8.0]})
    told: list[tuple[int, int]] = []
    found = measure_plans(
        machine, [plan(DUCKDB), plan(POLARS)], repeats=3, on_progress=lambda *at: told.append(at)
    )
    assert machine.ran == [DUCKDB, POLARS, POLARS, DUCKDB, DUCKDB, POLARS]
    assert [each.runtime_seconds for each in found] == [4.0, 1.5]
    assert told == [(number, 6) for number in range(1, 7)]


def test_measure_plans_stops_running_a_failed_plan_and_gives_the_reason() -> None:
    machine = Machine({DUCKDB: [3.0, 3.0, 3.0], PANDAS: [1.0, None]})
    found = measure_plans(machine, [plan(PANDAS), plan(DUCKDB)], repeats=3)
    assert machine.ran.count(PANDAS) == 2
    assert (found[0].seconds, found[0].reason) == (None, "out of memory")
    assert fastest(found) is found[1]
    assert fastest(found[:1]) is None


def test_fastest_adds_startup_seconds_to_measured_seconds() -> None:
    quick = MeasuredChoice(1.0, plan=plan(SPARK, 14.0))
    slow = MeasuredChoice(2.0, plan=plan(DUCKDB, 0.1))
    assert (quick.seconds, slow.seconds) == (15.0, 2.1)
    assert fastest([quick, slow]) is slow


def test_runnable_alternatives_exclude_spark_unless_all_are_requested() -> None:
    found = advised(lambda _: 1.0, PlanConstraints((DUCKDB, POLARS, SPARK)))
    run = [each.plan.platforms for each in runnable_alternatives(found, all_of_them=False)]
    assert (POLARS,) * 6 in run
    assert not any(SPARK in each for each in run)
    all_of_them = [each.plan.platforms for each in runnable_alternatives(found, all_of_them=True)]
    assert (SPARK,) * 6 in all_of_them
    assert sum(len(set(each)) > 1 for each in all_of_them) <= 2
