"""Tests of the experiment `private_training`: its targets, rows and a quick run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.organizations import ANCHORS, MeasuredTimes, NewPlatform
from fedperf_simulations.experiments.private_training import (
    BASE,
    DP_SGD,
    EPSILONS,
    EXPERIMENT,
    NEW,
    NO_PRIVACY,
    TANGENT,
    TRAININGS,
    TWICE,
    TrainingCondition,
    _compared,
    _targets,
)
from fedperf_simulations.harness.experiment import Row, Settings
from fedperf_simulations.model.feature_names import feature_names
from tests.fakes.plans import ONE_CORE, diamond

FIGURES = {BASE: 0.9, NO_PRIVACY: 0.1, TWICE: 0.099, DP_SGD: 0.4}


def made_up(ours: float) -> list[dict[str, str | float | None]]:
    return [
        {"what": each.what, "epsilon": each.epsilon, "relative": FIGURES.get(each.what, ours)}
        for each in TRAININGS
    ]


def test_private_training_targets_cover_every_promised_value() -> None:
    good, bad = (_targets(rows, rows) for rows in (made_up(0.119), made_up(0.6)))
    assert len(good) == 2 * len(EPSILONS) + 1
    assert all(target.holds for target in good)
    assert [target.holds for target in bad] == [False] * (2 * len(EPSILONS)) + [True]


def test_private_training_rows_report_privacy_cost_and_closed_gap() -> None:
    rows = {(row["what"], row["epsilon"]): row for row in _compared(made_up(0.12))}
    ours = rows[TANGENT, 1.0]
    assert ours["worse, %"] == pytest.approx(20.0)
    assert ours["gap closed, %"] == pytest.approx(97.5)


def test_private_training_conditions_have_distinct_cell_keys() -> None:
    assert len({each.key for each in TRAININGS}) == len(TRAININGS)
    assert TrainingCondition(TANGENT, 1.0).key == "private-steps-at-the-tangent-eps1"


@pytest.mark.slow
def test_new_platform_data_has_expected_plan_and_anchor_counts() -> None:
    world = NewPlatform.load(NEW)
    on_platform = feature_names()[0].index(f"platform_{NEW.name.lower()}")
    assert NEW is Platform.POLARS
    assert len(world.private) > 6_300 > len(world.public) > 3_000
    assert not any(graph.operators[:, on_platform].any() for graph in world.public.graphs)
    assert all(graph.operators[:, on_platform].any() for graph in world.private.graphs)
    assert len(world.anchors) == ANCHORS
    assert {type(each) for each in world.anchors} == {PlanOnCluster}
    assert {platform for each in world.anchors for platform in each.plan.platforms} == {NEW}


def measured(count: int) -> MeasuredTimes:
    """Return workloads of one plan, each with its own graph."""
    graph = featurize(diamond(), ONE_CORE)
    return MeasuredTimes(tuple(replace(graph) for _ in range(count)), np.arange(count) / count)


def test_new_platform_partition_assigns_each_workload_once_by_seed() -> None:
    world = NewPlatform(measured(0), (), measured(100))
    first, other = (world.deal(3, 30, seed=seed) for seed in (1, 2))
    hands = [graph for each in first.organizations for graph in each.graphs]
    dealt = [*hands, *first.held_out.graphs]
    assert len({id(graph) for graph in dealt}) == len(dealt) == len(world.private)
    assert [len(each) for each in first.organizations] == [30] * 3
    assert not np.array_equal(first.held_out.log_seconds, other.held_out.log_seconds)
    with pytest.raises(ConfigurationError, match="more than"):
        world.deal(3, len(world.private), seed=1)


@pytest.mark.slow
def test_quick_private_training_run_spends_the_stated_epsilon_and_is_repeatable(
    tmp_path: Path,
) -> None:
    settings = Settings(seed=1, out=tmp_path, quick=True)
    outcome = EXPERIMENT.run(settings)
    rows: dict[object, Row] = {(row["what"], row["epsilon"]): row for row in outcome.rows}
    for what in (TANGENT, DP_SGD):
        for epsilon in EPSILONS:
            row = rows[what, epsilon]
            assert row["add or remove"] == pytest.approx(epsilon, rel=0.01)
            assert isinstance(row["replace one"], float)
            assert row["replace one"] > epsilon
    assert list(EXPERIMENT.run(settings).rows) == list(outcome.rows)
