"""Train the starts: the public one that ships, and the limited one of simulations.

The public start learns from everything that was measured but the validation and the test
part of the measured set. By the validation part coordinators judge versions: its plans are
written beside the start. The limited start knows the public part alone (`limited_start`).
Made anew only when the measurements or the model change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_shared.execution import Execution, MeasuredPlan
from fedperf_shared.model.checkpoint import save_model
from fedperf_shared.model.fit import fit, predict
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.pretrained import PRETRAINED_PATH, PRETRAINED_VERSION
from fedperf_shared.model.public_plans import PUBLIC_PLANS_PATH, save_public_plans
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.baselines.cost_models import train_ggfn, zero_constant_inputs
from fedperf_simulations.corpus.limited_start import LIMITED_START_PATH
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.training_set import Measurements, measured_plans
from fedperf_simulations.data.datasets import at_one_speed

EPOCHS = 40
LIMITED_DROPOUT, LIMITED_EPOCHS = 0.1, 60
"""The limited start is as it was when the claims about joining were measured."""

Progress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class StartReport:
    """The report of a start: plans and prefixes it was trained on, median q-errors."""

    trained_on: int
    error_on_validation: float
    error_on_test: float


def train_public_start(
    measurements: Measurements,
    *,
    epochs: int = EPOCHS,
    on_progress: Progress | None = None,
    start_path: Path = PRETRAINED_PATH,
    plans_path: Path = PUBLIC_PLANS_PATH,
) -> StartReport:
    """Train and write the start and the public plans; the same for a seed on one machine."""
    parts = split(measurements.executions)
    held_out = {
        e.workload for part in (WorkloadPart.VALIDATION, WorkloadPart.TEST) for e in parts[part]
    }
    training_plan = measurements.training_plan(lambda workload: workload not in held_out)
    model = train_ggfn(
        training_plan, epochs=epochs, seed=measurements.seed, on_progress=on_progress
    )
    save_model(start_path, model, model_version=PRETRAINED_VERSION)
    save_public_plans(measured_plans(one_per_workload(parts[WorkloadPart.VALIDATION])), plans_path)
    return _report(model, len(training_plan.questions), parts)


def train_limited_start(
    executions: Iterable[Execution],
    *,
    seed: int = 0,
    epochs: int = LIMITED_EPOCHS,
    on_progress: Progress | None = None,
    path: Path = LIMITED_START_PATH,
) -> StartReport:
    """Train and write the limited start; the same for a seed on one machine."""
    parts = split(at_one_speed(executions))
    public = measured_plans(parts[WorkloadPart.PUBLIC])
    model = GGFN(dropout=LIMITED_DROPOUT, seed=seed)
    graphs = [featurize(each.plan, each.cluster) for each in public]
    labels = np.array([each.log_seconds for each in public])
    fit(
        model,
        zero_constant_inputs(model, graphs),
        labels,
        epochs=epochs,
        seed=seed,
        on_progress=on_progress,
    )
    save_model(path, model, model_version=PRETRAINED_VERSION)
    return _report(model, len(public), parts)


def one_per_workload(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """The first execution of every workload."""
    first: dict[str, Execution] = {}
    for execution in executions:
        first.setdefault(execution.workload, execution)
    return tuple(first.values())


def error_on(model: GGFN, plans: Sequence[MeasuredPlan]) -> float:
    """Median q-error of the model on measured plans."""
    graphs = [featurize(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_seconds for each in plans])
    return median_q_error(np.exp(predict(model, graphs)), seconds)


def _report(
    model: GGFN, trained_on: int, parts: Mapping[WorkloadPart, Sequence[Execution]]
) -> StartReport:
    validation, test = (
        error_on(model, measured_plans(one_per_workload(parts[part])))
        for part in (WorkloadPart.VALIDATION, WorkloadPart.TEST)
    )
    return StartReport(trained_on, validation, test)
