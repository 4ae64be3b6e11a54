"""Measurement of the accuracy claimed of the start, by starts that never saw a part.

One learns from all but a fifth of the shapes of workflows, and is asked about these. One learns
from small inputs on one core alone, and is asked about the rest: by its errors, less what shapes
explain, widths grow with the decades beyond. Every workload counts the same; of a run of SQL
the plan is asked about with what was known before it. What estimates of rows add is told by
all plans of left out shapes, programs of the lessons as well, as they were before they ran.
Prices of the analytic cost model, some constants a platform that the networks correct, have seen
all of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.pretrained import PretrainedWidth, is_relational
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cost_models import CostModel, TrainingPlan
from fedperf_simulations.corpus.training_set import Measurements, measured_plans

LEFT_OUT = 5
"""Of so many shapes one is left out."""

SMALL_SHARE = 1 / 30
"""Of the most rows on a platform, that small inputs have at most."""

LEVEL = 0.9
LEAST_WORKLOADS = 20
"""That must be asked about, for a width to be told."""

LEAST_DECADES = 1.0
"""Beyond what was known, for an error to tell how errors grow: less would be divided by little."""


@dataclass(frozen=True, slots=True)
class MeasuredSingleEnginePlan:
    """A plan on one platform that was measured.

    Attributes:
        workload: of the execution.
        shape: fingerprint of its workflow.
        plan: its run time, and what it is asked about with.
    """

    workload: str
    shape: str
    plan: MeasuredPlan

    @property
    def platform(self) -> Platform:
        """All operators run there."""
        return self.plan.plan.platforms[0]

    @property
    def question(self) -> PlanOnCluster:
        """The plan and its resources."""
        return PlanOnCluster(self.plan.plan, self.plan.cluster)


def measure_widths(measurements: Measurements, learn: CostModel) -> dict[Platform, PretrainedWidth]:
    """The widths of every platform that was measured on workloads enough.

    Args:
        measurements: all of them.
        learn: trains a start; called twice.
    """
    asked = asked_of(measurements)
    all_shapes = {each.shape for each in asked}
    shapes = _left_out(sorted(all_shapes), measurements.seed)
    programs = programs_of(measurements)
    further = {each.shape for each in programs} - all_shapes
    shapes |= _left_out(sorted(further), measurements.seed)
    told = measurements.workloads_of(shapes)
    without_shapes = learn(measurements.training_plan(lambda workload: workload not in told))
    of_shapes = errors_of(without_shapes, [each for each in asked if each.shape in shapes])
    left_out = [each for each in (*asked, *programs) if each.shape in shapes]
    estimated = [before for each in left_out if (before := before_its_run(each)) is not None]
    of_estimated = errors_of(without_shapes, estimated)
    known = {platform: _small(of_platform) for platform, of_platform in _by_platform(asked).items()}
    small = [each for each in asked if known[each.platform].decades_beyond(each.question) == 0]
    large = [each for each in asked if known[each.platform].decades_beyond(each.question) > 0]
    of_sizes = errors_of(learn(TrainingPlan.of([each.plan for each in small])), large)
    return {
        platform: _with_estimates(
            width, [each for each in of_estimated if each[0].platform is platform]
        )
        for platform, of_platform in _by_platform(asked).items()
        if (width := _width(of_platform, known[platform], of_shapes, of_sizes)) is not None
    }


def asked_of(measurements: Measurements) -> tuple[MeasuredSingleEnginePlan, ...]:
    """Plans of the measured set and of sessions that keep to one platform."""
    runs = [(each, False) for each in measurements.executions]
    runs += [(each, True) for each in measurements.sessions]
    found = []
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
            found.append(MeasuredSingleEnginePlan(execution.workload, shape, before))
    return tuple(found)


def programs_of(measurements: Measurements) -> tuple[MeasuredSingleEnginePlan, ...]:
    """Plans of the lessons that keep to one platform."""
    found = []
    for case in measurements.further:
        shape = fingerprint(case.workflow)
        for platform, seconds in case.on_one_platform().items():
            if seconds < math.inf:
                plan = Plan.on_one_platform(case.workflow, platform)
                measured = MeasuredPlan(plan, case.cluster, math.log(seconds))
                found.append(MeasuredSingleEnginePlan(case.workload, shape, measured))
    return tuple(found)


def before_its_run(asked: MeasuredSingleEnginePlan) -> MeasuredSingleEnginePlan | None:
    """The plan with estimates in place of what only a run tells; None where that is nothing."""
    plan = plan_with_estimated_cardinalities(asked.plan.plan)
    if not plan.workflow.rows_are_estimates:
        return None
    return replace(asked, plan=replace(asked.plan, plan=plan))


def errors_of(
    start: PredictLog, asked: Sequence[MeasuredSingleEnginePlan]
) -> list[tuple[MeasuredSingleEnginePlan, float]]:
    """Each with the absolute error of the start, log seconds."""
    if not asked:
        return []
    measured = np.array([each.plan.log_seconds for each in asked])
    errors = np.abs(start([each.question for each in asked]) - measured).tolist()
    return list(zip(asked, errors, strict=True))


def quantile_over_workloads(values: Floats, workloads: Sequence[str], level: float) -> float:
    """The value that `level` of the workloads stay at or below, each of which counts the same."""
    number = np.unique(workloads, return_inverse=True)[1]
    share = 1.0 / np.bincount(number)[number]
    order = np.argsort(values)
    reached = np.cumsum(share[order]) / share.sum()
    place = int(np.searchsorted(reached, level - 1e-9))
    return float(values[order][min(place, len(values) - 1)])


def _width(
    asked: Sequence[MeasuredSingleEnginePlan],
    known: PretrainedWidth,
    of_shapes: Iterable[tuple[MeasuredSingleEnginePlan, float]],
    of_sizes: Iterable[tuple[MeasuredSingleEnginePlan, float]],
) -> PretrainedWidth | None:
    platform = asked[0].platform
    shapes = [(each.workload, error) for each, error in of_shapes if each.platform is platform]
    if len({workload for workload, _ in shapes}) < LEAST_WORKLOADS:
        return None
    names, errors = zip(*shapes, strict=True)
    half_width = quantile_over_workloads(np.array(errors), names, LEVEL)
    growths = [
        (each.workload, math.sqrt(max(0.0, error**2 - half_width**2)) / decades)
        for each, error in of_sizes
        if each.platform is platform
        and (decades := known.decades_beyond(each.question)) >= LEAST_DECADES
    ]
    growth = 0.0
    if len({workload for workload, _ in growths}) >= LEAST_WORKLOADS:
        names, each_growth = zip(*growths, strict=True)
        growth = quantile_over_workloads(np.array(each_growth), names, LEVEL)
    return PretrainedWidth(half_width, growth, *_most(asked))


def _with_estimates(
    width: PretrainedWidth, of_estimated: Sequence[tuple[MeasuredSingleEnginePlan, float]]
) -> PretrainedWidth:
    """The width with what it needs, squares added, to hold `LEVEL` of these workloads.

    It is told by relational programs, and by the others, of which there are enough.
    """
    needed: dict[bool, list[tuple[str, float]]] = {True: [], False: []}
    for each, error in of_estimated:
        more = math.sqrt(max(0.0, error**2 - width.at(each.question) ** 2))
        needed[is_relational(each.plan.plan.workflow)].append((each.workload, more))
    of_kind = {True: 0.0, False: 0.0}
    for kind, found in needed.items():
        names = [workload for workload, _ in found]
        if len(set(names)) >= LEAST_WORKLOADS:
            more_of = np.array([more for _, more in found])
            of_kind[kind] = quantile_over_workloads(more_of, names, LEVEL)
    return replace(width, of_estimates=of_kind[True], of_other_estimates=of_kind[False])


def _most(asked: Sequence[MeasuredSingleEnginePlan]) -> tuple[float, float]:
    rows = max(each.plan.plan.workflow.source_rows for each in asked)
    return float(rows), float(max(each.plan.cluster.cores for each in asked))


def _small(asked: Sequence[MeasuredSingleEnginePlan]) -> PretrainedWidth:
    return PretrainedWidth(most_rows=max(1.0, SMALL_SHARE * _most(asked)[0]), most_cores=1.0)


def _by_platform(
    asked: Iterable[MeasuredSingleEnginePlan],
) -> Mapping[Platform, list[MeasuredSingleEnginePlan]]:
    found: dict[Platform, list[MeasuredSingleEnginePlan]] = {}
    for each in asked:
        found.setdefault(each.platform, []).append(each)
    return found


def _left_out(shapes: Sequence[str], seed: int) -> frozenset[str]:
    order = np.random.default_rng([seed, 2]).permutation(len(shapes)).tolist()
    return frozenset(shapes[place] for place in order[: len(shapes) // LEFT_OUT])
