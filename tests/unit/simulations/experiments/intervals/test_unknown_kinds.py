"""Tests of predictions for a platform without local executions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.execution import Execution
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.session_set import session_of
from fedperf_simulations.experiments.intervals import unknown_kinds
from fedperf_simulations.experiments.intervals.figures import OURS, SITUATION, where
from fedperf_simulations.experiments.intervals.unknown_kinds import (
    HOMES,
    PART,
    PRETRAINED_ALONE,
    TIMES,
    _held,
    _platform_executions,
    situation,
)
from fedperf_simulations.harness.experiment import Settings
from tests.unit.simulations.experiments.intervals.synthetic_queries import queries


def sessions() -> Iterator[Execution]:
    """Yield 35 sessions of two queries each."""
    for number in range(35):
        for step, each in enumerate(queries(2, seed=number)):
            yield replace(each, execution_id=f"spark-{number:03d}-{step:03d}-0")


@pytest.fixture(autouse=True)
def _made_up_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = tuple(sessions())
    judged = tuple(
        replace(each, workload=f"judged/{each.workload}") for each in queries(60, seed=99)
    )
    profiles = tuple(queries(120, seed=77, platform=Platform.DUCKDB))
    monkeypatch.setattr(unknown_kinds, "_spark", lambda: made_up)
    monkeypatch.setattr(unknown_kinds, "_held_out_on_spark", lambda: judged)
    monkeypatch.setattr(unknown_kinds, "_profiles", lambda: profiles)
    monkeypatch.setattr(unknown_kinds, "_files", lambda _: [])


@pytest.mark.slow
@pytest.mark.parametrize("name", HOMES)
def test_unknown_platform_training_data_contains_no_run_of_the_query_platform(name: str) -> None:
    kind = HOMES[name]
    held = list(_held(kind, np.random.default_rng(0)))
    assert not [each for each in held if kind.query_platform in each.plan.platforms]
    asked = _platform_executions(kind.query_platform)
    assert len(asked) >= 50
    assert all(set(each.plan.platforms) == {kind.query_platform} for each in asked)
    assert {each.workload for each in held}.isdisjoint(each.workload for each in asked)


@pytest.mark.slow
def test_unknown_platform_training_sets_have_the_sizes_of_their_names() -> None:
    held = {name: list(_held(kind, np.random.default_rng(1))) for name, kind in HOMES.items()}
    counts = {name: len(each) for name, each in held.items()}
    assert len(HOMES) == 8
    assert len({session_of(each) for each in held["30 Spark logs"]}) == 30
    assert counts["3 Spark logs"] == 6
    assert [counts[name] for name in HOMES if name.startswith(("12 ", "100 "))] == [12, 100, 12, 12]
    assert counts["a campaign of 40 runs"] == 40
    assert counts["a mixture"] == 6 + 24 + 40
    assert {Platform.SPARK, Platform.DUCKDB, Platform.POLARS, Platform.OTHER} == {
        platform for each in held["a mixture"] for platform in each.plan.platforms
    }


@pytest.mark.slow
def test_unknown_platform_predictions_are_compared_with_the_pretrained_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few = {name: HOMES[name] for name in ("12 Polars jobs", "a campaign of 40 runs")}
    monkeypatch.setattr(unknown_kinds, "HOMES", few)
    cases = PART.cases(Settings(seed=0, out=tmp_path, quick=True))
    assert len(cases) == 2 * 2 * 2 * 10
    rows = PART.rows(cases)
    assert {row[SITUATION] for row in rows} == {situation(name) for name in few}
    assert all(TIMES in row for row in where(rows, predictor=OURS))
    assert not any(TIMES in row for row in where(rows, predictor=PRETRAINED_ALONE))
    targets = PART.targets(cases, rows)
    assert [each.limit for each in targets] == [1.10, 0.85] * 2
    assert all(np.isfinite(each.value) for each in targets)
