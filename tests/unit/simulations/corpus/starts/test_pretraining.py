"""The starts are trained on what they may know, and written with the plans that judge them."""

from dataclasses import replace
from pathlib import Path

from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.pretraining import (
    train_limited_start,
    train_public_start,
)
from fedperf_simulations.corpus.training_set import Measurements
from tests.unit.client.executions import make_execution

ONE_CORE = replace(make_execution().cluster, cores=1)
EXECUTIONS = tuple(
    make_execution(number, workload=f"relational-{number}", cluster=ONE_CORE)
    for number in range(100)
)
PARTS = split(EXECUTIONS)


def test_the_public_start_never_saw_what_versions_are_judged_by(tmp_path: Path) -> None:
    start, plans = tmp_path / "start.safetensors", tmp_path / "plans.binpb"
    measured = Measurements((), EXECUTIONS, {}, seed=1)
    report = train_public_start(measured, epochs=1, start_path=start, plans_path=plans)
    judged = [*PARTS[WorkloadPart.VALIDATION], *PARTS[WorkloadPart.TEST]]
    assert report.trained_on == len(EXECUTIONS) - len(judged) > 0
    assert min(report.error_on_validation, report.error_on_test) >= 1
    assert len(load_public_plans(plans)) == len(PARTS[WorkloadPart.VALIDATION]) > 0
    assert load_checkpoint(start).arrays


def test_the_limited_start_knows_the_public_part_alone(tmp_path: Path) -> None:
    start = tmp_path / "limited.safetensors"
    report = train_limited_start(EXECUTIONS, epochs=1, path=start)
    assert report.trained_on == len(PARTS[WorkloadPart.PUBLIC]) > 0
    assert load_checkpoint(start).arrays
