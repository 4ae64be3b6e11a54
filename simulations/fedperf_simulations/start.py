"""Train the public start that ships with fedperf, from the public part of the measured set.

Writes two files into `fedperf_shared`: the checkpoint, and the public plans by which
coordinators judge versions (the validation part, one execution per workload). Private
parts and the test part are not touched. Made anew only when the measured set or the
model changes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_shared.execution import Execution, MeasuredPlan
from fedperf_shared.model.batching import PlanGraph
from fedperf_shared.model.checkpoint import save_model
from fedperf_shared.model.fitting import fit, predict
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.public_plans import PUBLIC_PLANS_PATH, save_public_plans
from fedperf_shared.model.public_start import PUBLIC_START_PATH, PUBLIC_START_VERSION
from fedperf_simulations.organizations import Part, split

EPOCHS = 60
DROPOUT = 0.1


@dataclass(frozen=True, slots=True)
class StartReport:
    """How the start turned out: plans it was trained on, median q-errors."""

    trained_on: int
    error_on_public: float
    error_on_validation: float


def train_public_start(
    executions: Iterable[Execution],
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    on_progress: Callable[[int, float], None] | None = None,
    start_path: Path = PUBLIC_START_PATH,
    plans_path: Path = PUBLIC_PLANS_PATH,
) -> StartReport:
    """Train and write the start and the public plans; the same for a seed on one machine."""
    parts = split(executions)
    public = measured_plans(parts[Part.PUBLIC])
    validation = measured_plans(one_per_workload(parts[Part.VALIDATION]))
    model = GGFN(dropout=DROPOUT, seed=seed)
    graphs = [PlanGraph.of(each.plan, each.cluster) for each in public]
    labels = np.array([each.log_runtime_seconds for each in public])
    fit(model, graphs, labels, epochs=epochs, seed=seed, on_progress=on_progress)
    save_model(start_path, model, model_version=PUBLIC_START_VERSION)
    save_public_plans(validation, plans_path)
    return StartReport(len(public), error_on(model, public), error_on(model, validation))


def measured_plans(executions: Iterable[Execution]) -> tuple[MeasuredPlan, ...]:
    """Plans with run times of the executions that ended well."""
    return tuple(
        MeasuredPlan(each.plan, each.cluster, float(np.log(each.measurement.runtime_seconds)))
        for each in executions
        if each.is_ok and each.measurement is not None
    )


def one_per_workload(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """The first execution of every workload."""
    first: dict[str, Execution] = {}
    for execution in executions:
        first.setdefault(execution.workload, execution)
    return tuple(first.values())


def error_on(model: GGFN, plans: Sequence[MeasuredPlan]) -> float:
    """Median q-error of the model on measured plans."""
    graphs = [PlanGraph.of(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_runtime_seconds for each in plans])
    return median_q_error(np.exp(predict(model, graphs)), seconds)
