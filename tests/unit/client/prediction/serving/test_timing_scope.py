"""Timing scope of predictions: the included time, and the time added to it."""

from dataclasses import replace

import pytest

from fedperf_client.prediction.serving.explanation import Disturbance, PredictionNotes
from fedperf_shared.execution import Execution, Measurement
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.executions import chain_plan, make_execution


def notes(plan: Plan, own: Execution | None = None) -> PredictionNotes:
    return PredictionNotes(plan, own, None, None, "", Disturbance(0, 0))


@pytest.mark.parametrize(
    ("platform", "says"),
    [
        (Platform.SPARK, "times are of a query in a running application"),
        (Platform.DUCKDB, "times are of a query in an open connection"),
        (Platform.PANDAS, "times are of calls in a running process"),
        (Platform.OTHER, "times are of a job from its own start on"),
    ],
)
def test_scope_sentence_describes_measured_time_for_each_platform(
    platform: Platform, says: str
) -> None:
    found = notes(chain_plan(platform=platform))
    assert found.lines([], None, of_nodes=False)[0] == f"{says}, without queueing and start-up"
    assert found.startup_seconds is None


def test_scope_sentence_of_mixed_plan_mentions_running_engines() -> None:
    workflow = chain_plan().workflow
    mixed = Plan(workflow, (Platform.DUCKDB, Platform.DUCKDB, Platform.POLARS))
    assert "engines that run already" in notes(mixed).lines([], None, of_nodes=False)[0]


def test_scope_sentence_includes_measured_startup_of_own_run() -> None:
    own = make_execution(1, measurement=Measurement(2.0, startup_seconds=12.0))
    [line] = notes(own.plan, own).lines([], None, of_nodes=False)
    assert line.endswith("queueing and start-up, 12 s when it ran")
    later = replace(own, measurement=Measurement(2.0))
    assert notes(own.plan, later).startup_seconds is None
