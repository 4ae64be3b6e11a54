"""Train the pretrained models: the public one that ships, and the limited one of simulations.

The public model is trained on all measurements except the validation and the test part of the
measured set. Coordinators judge versions by the validation part. Its plans are written to the same
folder as the model. The limited model is trained on the public part alone (`limited_start`). Made
anew only when the measurements or the model change.

Distil the additive head that ships with fedperf from the pretrained model.

With workflows of the comparison set, which are drawn from a public seed; measured run times are not
read. It is distilled again with the pretrained model.

Measure the accuracy of the pretrained model, by models trained without a part.

One learns from all but a fifth of the shapes of workflows, and is evaluated on these. One learns
from small inputs on one core alone, and is evaluated on the rest. Its errors, less what shapes
explain, determine how widths grow with the decades beyond. Every workload counts the same. SQL
plans are evaluated with estimated cardinalities. The error that estimates add is measured on all
plans of left-out shapes, programs of the training set included. Prices of the analytic cost model,
some constants a platform that the networks correct, were fitted to all measurements.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_engines.optimizer.additive_surrogate import save_surrogate
from fedperf_engines.optimizer.surrogate_store import SHIPPED_SURROGATE, distill_surrogate
from fedperf_shared.execution import Execution, MeasuredPlan, PlanOnCluster
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.pretrained import (
    PRETRAINED_PATH,
    PRETRAINED_VERSION,
    PretrainedWidth,
    is_relational,
)
from fedperf_shared.model.public_plans import PUBLIC_PLANS_PATH, save_public_plans
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cost_models import (
    CostModel,
    TrainingPlan,
    train_ggfn,
    zero_constant_inputs,
)
from fedperf_simulations.corpus.limited_start import LIMITED_MODEL_PATH
from fedperf_simulations.corpus.organizations import WorkloadPart, one_per_workload, split
from fedperf_simulations.corpus.training_set import Measurements, measured_plans
from fedperf_simulations.data.datasets import at_one_speed
from fedperf_simulations.model.fit import fit, predict
from fedperf_simulations.model.ggfn import GGFN, save_model

EPOCHS = 40
LIMITED_DROPOUT, LIMITED_EPOCHS = 0.1, 60
"""The limited model is unchanged since the claims about joining were measured."""

Progress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The report of a training: plans and prefixes it was trained on, median q-errors."""

    trained_on: int
    error_on_validation: float
    error_on_test: float


def train_public_model(
    measurements: Measurements,
    *,
    epochs: int = EPOCHS,
    on_progress: Progress | None = None,
    start_path: Path = PRETRAINED_PATH,
    plans_path: Path = PUBLIC_PLANS_PATH,
) -> TrainingReport:
    """Train and write the pretrained model and the public plans.

    A seed gives the same files on one machine.
    """
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
    return _report(model, len(training_plan.queries), parts)


def train_limited_model(
    executions: Iterable[Execution],
    *,
    seed: int = 0,
    epochs: int = LIMITED_EPOCHS,
    on_progress: Progress | None = None,
    path: Path = LIMITED_MODEL_PATH,
) -> TrainingReport:
    """Train and write the limited model. A seed gives the same file on one machine."""
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


def error_on(model: GGFN, plans: Sequence[MeasuredPlan]) -> float:
    """Return median q-error of the model on measured plans."""
    graphs = [featurize(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_seconds for each in plans])
    return median_q_error(np.exp(predict(model, graphs)), seconds)


def _report(
    model: GGFN, trained_on: int, parts: Mapping[WorkloadPart, Sequence[Execution]]
) -> TrainingReport:
    validation, test = (
        error_on(model, measured_plans(one_per_workload(parts[part])))
        for part in (WorkloadPart.VALIDATION, WorkloadPart.TEST)
    )
    return TrainingReport(trained_on, validation, test)


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The size of a head's training set, and that of its file."""

    workflows: int
    bytes: int


def distil_shipped_head(
    measurements: Measurements,
    *,
    on_progress: Progress | None = None,
    start_path: Path = PRETRAINED_PATH,
    path: Path = SHIPPED_SURROGATE,
) -> HeadReport:
    """Distil and write the head. A seed gives the same file on one machine."""
    teacher = predictor(load_checkpoint(start_path))
    workflows = measurements.workflows(lambda _: True)
    head = distill_surrogate(teacher, workflows, seed=measurements.seed, on_progress=on_progress)
    save_surrogate(head, path)
    return HeadReport(len(workflows), path.stat().st_size)


LEFT_OUT = 5
"""One of this number of shapes is left out."""

SMALL_SHARE = 1 / 30
"""Upper bound on small inputs, as a share of the most rows on a platform."""

LEVEL = 0.9
LEAST_WORKLOADS = 20
"""Workloads needed to estimate a width."""

LEAST_DECADES = 1.0
"""Smallest distance beyond the training support for estimating the growth of errors.

Errors are divided by it.
"""


@dataclass(frozen=True, slots=True)
class MeasuredSingleEnginePlan:
    """A plan on one platform that was measured.

    Attributes:
        workload: of the execution.
        shape: fingerprint of its workflow.
        plan: its run time and its input.
    """

    workload: str
    shape: str
    plan: MeasuredPlan

    @property
    def platform(self) -> Platform:
        """All operators run there."""
        return self.plan.plan.platforms[0]

    @property
    def query(self) -> PlanOnCluster:
        """The plan and its resources."""
        return PlanOnCluster(self.plan.plan, self.plan.cluster)


def measure_widths(measurements: Measurements, learn: CostModel) -> dict[Platform, PretrainedWidth]:
    """Return the widths of every platform with enough measured workloads.

    Args:
        measurements: all of them.
        learn: trains a model. It is called twice.
    """
    queries = evaluation_plans(measurements)
    all_shapes = {each.shape for each in queries}
    shapes = _left_out(sorted(all_shapes), measurements.seed)
    programs = programs_of(measurements)
    further = {each.shape for each in programs} - all_shapes
    shapes |= _left_out(sorted(further), measurements.seed)
    workloads = measurements.workloads_of(shapes)
    without_shapes = learn(measurements.training_plan(lambda workload: workload not in workloads))
    of_shapes = errors_of(without_shapes, [each for each in queries if each.shape in shapes])
    left_out = [each for each in (*queries, *programs) if each.shape in shapes]
    estimated = [before for each in left_out if (before := before_its_run(each)) is not None]
    of_estimated = errors_of(without_shapes, estimated)
    widths = {
        platform: _small(of_platform) for platform, of_platform in _by_platform(queries).items()
    }
    small = [each for each in queries if widths[each.platform].decades_beyond(each.query) == 0]
    large = [each for each in queries if widths[each.platform].decades_beyond(each.query) > 0]
    of_sizes = errors_of(learn(TrainingPlan.of([each.plan for each in small])), large)
    return {
        platform: _with_estimates(
            width, [each for each in of_estimated if each[0].platform is platform]
        )
        for platform, of_platform in _by_platform(queries).items()
        if (width := _width(of_platform, widths[platform], of_shapes, of_sizes)) is not None
    }


def evaluation_plans(measurements: Measurements) -> tuple[MeasuredSingleEnginePlan, ...]:
    """Plans of the measured set and of sessions that keep to one platform."""
    runs = [(each, False) for each in measurements.executions]
    runs += [(each, True) for each in measurements.sessions]
    plans = []
    for execution, is_session in runs:
        if len(set(execution.plan.platforms)) != 1:
            continue
        shape = fingerprint(execution.plan.workflow)
        for plan in measured_plans([execution]):
            before = (
                replace(plan, plan=plan_with_estimated_cardinalities(plan.plan))
                if is_session
                else plan
            )
            plans.append(MeasuredSingleEnginePlan(execution.workload, shape, before))
    return tuple(plans)


def programs_of(measurements: Measurements) -> tuple[MeasuredSingleEnginePlan, ...]:
    """Plans of the training set that keep to one platform."""
    programs = []
    for case in measurements.further:
        shape = fingerprint(case.workflow)
        for platform, seconds in case.on_one_platform().items():
            if seconds < math.inf:
                plan = Plan.on_one_platform(case.workflow, platform)
                measured = MeasuredPlan(plan, case.cluster, math.log(seconds))
                programs.append(MeasuredSingleEnginePlan(case.workload, shape, measured))
    return tuple(programs)


def before_its_run(measured: MeasuredSingleEnginePlan) -> MeasuredSingleEnginePlan | None:
    """The plan with estimated cardinalities. None where it has no actual ones."""
    plan = plan_with_estimated_cardinalities(measured.plan.plan)
    if not plan.workflow.rows_are_estimates:
        return None
    return replace(measured, plan=replace(measured.plan, plan=plan))


def errors_of(
    model: PredictLog, plans: Sequence[MeasuredSingleEnginePlan]
) -> list[tuple[MeasuredSingleEnginePlan, float]]:
    """Return each with the absolute error of the pretrained model, log seconds."""
    if not plans:
        return []
    measured = np.array([each.plan.log_seconds for each in plans])
    errors = np.abs(model([each.query for each in plans]) - measured).tolist()
    return list(zip(plans, errors, strict=True))


def quantile_over_workloads(values: Floats, workloads: Sequence[str], level: float) -> float:
    """The value that `level` of the workloads stay at or below, each of which counts the same."""
    number = np.unique(workloads, return_inverse=True)[1]
    share = 1.0 / np.bincount(number)[number]
    order = np.argsort(values)
    reached = np.cumsum(share[order]) / share.sum()
    place = int(np.searchsorted(reached, level - 1e-9))
    return float(values[order][min(place, len(values) - 1)])


def _width(
    plans: Sequence[MeasuredSingleEnginePlan],
    small: PretrainedWidth,
    of_shapes: Iterable[tuple[MeasuredSingleEnginePlan, float]],
    of_sizes: Iterable[tuple[MeasuredSingleEnginePlan, float]],
) -> PretrainedWidth | None:
    platform = plans[0].platform
    shapes = [(each.workload, error) for each, error in of_shapes if each.platform is platform]
    if len({workload for workload, _ in shapes}) < LEAST_WORKLOADS:
        return None
    names, errors = zip(*shapes, strict=True)
    half_width = quantile_over_workloads(np.array(errors), names, LEVEL)
    growths = [
        (each.workload, math.sqrt(max(0.0, error**2 - half_width**2)) / decades)
        for each, error in of_sizes
        if each.platform is platform
        and (decades := small.decades_beyond(each.query)) >= LEAST_DECADES
    ]
    growth = 0.0
    if len({workload for workload, _ in growths}) >= LEAST_WORKLOADS:
        names, each_growth = zip(*growths, strict=True)
        growth = quantile_over_workloads(np.array(each_growth), names, LEVEL)
    return PretrainedWidth(half_width, growth, *_most(plans))


def _with_estimates(
    width: PretrainedWidth, of_estimated: Sequence[tuple[MeasuredSingleEnginePlan, float]]
) -> PretrainedWidth:
    """Return the width, with a part added in squares so that it covers `LEVEL` of these workloads.

    It is estimated on relational programs, and on each other class with enough of them.
    """
    needed: dict[bool, list[tuple[str, float]]] = {True: [], False: []}
    for each, error in of_estimated:
        more = math.sqrt(max(0.0, error**2 - width.at(each.query) ** 2))
        needed[is_relational(each.plan.plan.workflow)].append((each.workload, more))
    of_kind = {True: 0.0, False: 0.0}
    for kind, plans in needed.items():
        names = [workload for workload, _ in plans]
        if len(set(names)) >= LEAST_WORKLOADS:
            more_of = np.array([more for _, more in plans])
            of_kind[kind] = quantile_over_workloads(more_of, names, LEVEL)
    return replace(width, of_estimates=of_kind[True], of_other_estimates=of_kind[False])


def _most(plans: Sequence[MeasuredSingleEnginePlan]) -> tuple[float, float]:
    rows = max(each.plan.plan.workflow.source_rows for each in plans)
    return float(rows), float(max(each.plan.cluster.cores for each in plans))


def _small(plans: Sequence[MeasuredSingleEnginePlan]) -> PretrainedWidth:
    return PretrainedWidth(most_rows=max(1.0, SMALL_SHARE * _most(plans)[0]), most_cores=1.0)


def _by_platform(
    plans: Iterable[MeasuredSingleEnginePlan],
) -> Mapping[Platform, list[MeasuredSingleEnginePlan]]:
    by_platform: dict[Platform, list[MeasuredSingleEnginePlan]] = {}
    for each in plans:
        by_platform.setdefault(each.platform, []).append(each)
    return by_platform


def _left_out(shapes: Sequence[str], seed: int) -> frozenset[str]:
    order = np.random.default_rng([seed, 2]).permutation(len(shapes)).tolist()
    return frozenset(shapes[place] for place in order[: len(shapes) // LEFT_OUT])
