"""Tests of predictions with one more workload that is unrelated to the query."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.execution import Execution
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.data.datasets import SPARK_SESSIONS
from fedperf_simulations.experiments.intervals import unrelated
from fedperf_simulations.experiments.intervals.figures import SITUATION
from fedperf_simulations.experiments.intervals.unrelated import ADDED, LIMITS, PART, RUNS, _Home
from fedperf_simulations.harness.experiment import Settings
from tests.unit.simulations.experiments.intervals.synthetic_queries import queries


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def executions(folder: str | None = None) -> list[Execution]:
        platform = Platform.SPARK if folder == SPARK_SESSIONS else Platform.DUCKDB
        made = queries(40, seed=len(platform.name), platform=platform)
        return [replace(e, execution_id=f"{platform.name}-{n}") for n, e in enumerate(made)]

    monkeypatch.setattr(unrelated, "measured_executions", executions)
    monkeypatch.setattr(unrelated, "_files", lambda _: [])
    monkeypatch.setattr(unrelated, "HOMES", {"12 profiles": _Home(duckdb=12)})


def test_unrelated_commands_and_other_engines_do_not_change_predictions(tmp_path: Path) -> None:
    cases = PART.cases(Settings(seed=0, out=tmp_path, quick=True))
    assert len(cases) == len(ADDED) * len(RUNS) * 10
    rows = {str(row[SITUATION]): row for row in PART.rows(cases)}
    for kind in (unrelated.COMMANDS, unrelated.OTHER_ENGINE):
        row = rows[f"unrelated work of {kind}, a home of all"]
        assert {row[name] for name in LIMITS} == {0.0}
    targets = PART.targets(cases, PART.rows(cases))
    assert len(targets) == len(ADDED) * len(LIMITS)


def test_unrelated_workload_runs_are_later_than_all_others() -> None:
    [added, *own] = queries(5, seed=1)
    noise = unrelated.NOISE_SD * np.ones(3)
    runs = list(unrelated._repeated([added], noise, own))
    assert {each.workload for each in runs} == {"added"}
    assert min(each.finished_at for each in runs) > max(each.finished_at for each in own)
    assert len({each.execution_id for each in runs}) == 3
