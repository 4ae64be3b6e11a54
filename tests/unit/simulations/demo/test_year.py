"""Tests of the results of a demo year: drift alarms and prediction errors."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.prediction import Floats
from fedperf_server.controllers.drift import DetectedDrift
from fedperf_server.inference.drift_evidence import PlatformDrift
from fedperf_server.state.database import RegimeTrigger
from fedperf_server.state.drift_regimes import BEFORE_EVERYTHING, DriftRegime
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.period import Period
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.demo.participants import QUICK_YEAR
from fedperf_simulations.demo.year import lived, new_participant_with, noticed_in, steps_of
from tests.unit.client.executions import make_execution

PERIOD = Period(datetime(2027, 1, 4, tzinfo=UTC), timedelta(weeks=4), 8)
DRIFT = PlatformDrift(Platform.DUCKDB, 4, 4, math.log(1.6), 0.04, ("a", "b", "c"), True)
FIRST = DriftRegime(1, BEFORE_EVERYTHING, 1, RegimeTrigger.START)
SECOND = DriftRegime(2, PERIOD.window_start(5), 3, RegimeTrigger.SHARED_DRIFT)


def seen(*drifts: PlatformDrift) -> list[DetectedDrift]:
    return [DetectedDrift(each, BEFORE_EVERYTHING, PERIOD.start) for each in drifts]


def test_drift_on_several_platforms_is_merged_into_one_alarm() -> None:
    pandas = replace(
        DRIFT, platform=Platform.PANDAS, log_factor=math.log(2.5), organizations=("b", "d")
    )
    found = noticed_in(seen(DRIFT, pandas), [FIRST, SECOND], PERIOD, cap_window=3)
    assert found is not None
    assert (found.window, found.platforms, found.organizations) == (4, ("duckdb", "pandas"), 4)
    assert found.factor == pytest.approx(2.0)
    assert found.epoch_window == 5


def test_drift_before_the_cap_or_of_one_organization_is_not_an_alarm() -> None:
    early, alone = replace(DRIFT, detected_in=2), replace(DRIFT, shared=False)
    assert noticed_in(seen(early, alone), [FIRST, SECOND], PERIOD, cap_window=3) is None


def test_drift_alarm_ignores_declared_or_earlier_drift_regimes() -> None:
    announced = replace(SECOND, cause=RegimeTrigger.DECLARED)
    before = replace(SECOND, begins_at=PERIOD.window_start(4))
    found = noticed_in(seen(DRIFT), [FIRST, before, announced], PERIOD, cap_window=3)
    assert found is not None
    assert found.epoch_window is None


def test_new_participant_without_fetched_models_has_the_pretrained_error(tmp_path: Path) -> None:
    asked = [make_execution(number, workload=f"asked-{number}") for number in range(4)]

    def shipped(questions: Sequence[PlanOnCluster]) -> Floats:
        return np.zeros(len(questions))

    found = new_participant_with((), asked, FetchedModels(tmp_path), shipped=shipped)
    assert (found.own_runs, found.alone) == (0, None)
    assert found.joined == found.start != found.shipped
    assert not found.change.is_distinguishable


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_year_runs_all_steps_and_reports_each(tmp_path: Path) -> None:
    said: list[str] = []
    found = lived(QUICK_YEAR, tmp_path, seed=2, announce=said.append)
    assert len(said) == steps_of(QUICK_YEAR)
    assert said[-1] == "window 3 of 3"
    assert len(found.windows) == QUICK_YEAR.windows
    assert 0 < found.epsilon <= 1
    assert [each.own_runs for each in found.newcomer] == [0, 3]
    assert all(each.change.workloads == QUICK_YEAR.held_out for each in found.newcomer)
    assert [each.name for each in found.machines] == ["whole cores", "half a core"]
