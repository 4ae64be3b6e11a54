"""Tests of pretraining: the training workloads, and the held-out plans written with a model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import Execution
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.workflow.features import Features
from fedperf_simulations.baselines.cost_models import TrainingPlan, train_ggfn
from fedperf_simulations.corpus import pretraining
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.pretraining import (
    train_limited_model,
    train_public_model,
)
from fedperf_simulations.corpus.training_set import Measurements
from fedperf_simulations.model.fit import fit
from fedperf_simulations.model.ggfn import GGFN
from tests.unit.client.executions import make_execution

ONE_CORE = replace(make_execution().cluster, cores=1)
EXECUTIONS = tuple(
    make_execution(number, workload=f"relational-{number}", cluster=ONE_CORE)
    for number in range(100)
)
PARTS = split(EXECUTIONS)


def log_seconds(executions: Iterable[Execution]) -> list[float]:
    """Their run times, each of which one execution alone has, in order."""
    return sorted(
        math.log(each.measurement.runtime_seconds) for each in executions if each.measurement
    )


@pytest.fixture
def learnt_from(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Log run times that models were trained on."""
    seen: list[float] = []

    def train_watched(plan: TrainingPlan, **options: Any) -> GGFN:
        seen.extend(plan.log_seconds)
        return train_ggfn(plan, **options)

    def fit_watched(
        model: GGFN, graphs: Sequence[Features], labels: Floats, **options: Any
    ) -> None:
        seen.extend(labels)
        fit(model, graphs, labels, **options)

    monkeypatch.setattr(pretraining, "train_ggfn", train_watched)
    monkeypatch.setattr(pretraining, "fit", fit_watched)
    return seen


def test_pretrained_model_training_excludes_validation_and_test_workloads(
    tmp_path: Path, learnt_from: list[float]
) -> None:
    start, plans = tmp_path / "start.safetensors", tmp_path / "plans.binpb"
    measured = Measurements((), EXECUTIONS, {}, seed=1)
    report = train_public_model(measured, epochs=1, start_path=start, plans_path=plans)
    judged = {*PARTS[WorkloadPart.VALIDATION], *PARTS[WorkloadPart.TEST]}
    assert sorted(learnt_from) == pytest.approx(log_seconds(set(EXECUTIONS) - judged))
    assert report.trained_on == len(learnt_from) > 0
    assert min(report.error_on_validation, report.error_on_test) >= 1
    public = sorted(each.log_seconds for each in load_public_plans(plans))
    assert public == pytest.approx(log_seconds(PARTS[WorkloadPart.VALIDATION])) != []
    assert load_checkpoint(start).arrays


def test_limited_pretrained_model_is_trained_on_the_public_part_only(
    tmp_path: Path, learnt_from: list[float]
) -> None:
    start = tmp_path / "limited.safetensors"
    report = train_limited_model(EXECUTIONS, epochs=1, path=start)
    assert sorted(learnt_from) == pytest.approx(log_seconds(PARTS[WorkloadPart.PUBLIC]))
    assert report.trained_on == len(learnt_from) > 0
    assert load_checkpoint(start).arrays
