"""Cost models of folds, and runs of their choices, of rules of thumb and of the optimum.

Every assignment of a case has been measured once. The fastest of so many single runs was
partly lucky, so the fastest few are run again, interleaved with every choice. Regret uses the
medians of those runs.

A model of a fold learns from the measured set and from the other folds: no logical plan of the fold
is among them at any size. Models and heads are kept as files, so that what was trained once is not
trained again.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.learners.base_learners import PUBLIC, public_learners
from fedperf_client.prediction.prediction import (
    SURE,
    Floats,
    Prediction,
    PredictLog,
    StudentT,
    probability_faster,
)
from fedperf_client.workers.machine import available_memory_bytes
from fedperf_engines.advice.advice import run_interleaved
from fedperf_engines.optimizer.additive_surrogate import (
    AdditiveSurrogate,
    load_surrogate,
    save_surrogate,
)
from fedperf_engines.optimizer.costs import Constraints
from fedperf_engines.optimizer.distillation import distil
from fedperf_engines.optimizer.enumeration import Assignment, choose
from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS, supports
from fedperf_engines.platforms.operations import Sink
from fedperf_engines.platforms.program import Program
from fedperf_engines.trials.profiler import Profiler, TrialLimits, WorkerPool
from fedperf_engines.workloads.data import prepare
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.checkpoint import load_checkpoint
from fedperf_shared.model.pretrained import pretrained_half_width
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cost_models import CostModel, TrainingPlan, train_ggfn
from fedperf_simulations.baselines.platform_rules import (
    PlatformRule,
    best_rule,
    class_rules,
    constant_rules,
)
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, workflow_with
from fedperf_simulations.corpus.comparisons import Case, folds_of
from fedperf_simulations.corpus.training_set import Measurements, TrainingFilter
from fedperf_simulations.experiments.platform_choice.tables import (
    FAILED,
    LOG_COLUMNS,
    NEAR,
    ModelPredictions,
    case_queries,
)
from fedperf_simulations.harness.experiment import Row
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.model.ggfn import save_model


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The comparison set partitioned into folds.

    Attributes:
        measurements: all that there is to learn from.
        fold_of: of every workload of the comparison set.
    """

    measurements: Measurements
    fold_of: Mapping[str, int]

    @classmethod
    def of(cls, measurements: Measurements) -> Self:
        """Dealt by the seed of the measurements."""
        return cls(measurements, folds_of(measurements.cases, seed=measurements.seed))

    @property
    def cases(self) -> tuple[Case, ...]:
        """The cases of all folds."""
        return self.measurements.cases

    def held_out_cases(self, fold: int) -> list[Case]:
        """Return the cases of a fold."""
        return [case for case in self.cases if self.fold_of[case.workload] == fold]

    def is_training(self, fold: int) -> TrainingFilter:
        """Return a predicate for the workloads that a model of the fold trains on."""
        return lambda workload: self.fold_of.get(workload) != fold

    def training_plan(self, fold: int) -> TrainingPlan:
        """Return the training data of a model of the fold."""
        return self.measurements.training_plan(self.is_training(fold))


@dataclass(frozen=True, slots=True)
class FoldModels:
    """GGFN and its head of every fold, kept in a directory. Trained where they are missing."""

    folds: Folds
    directory: Path
    epochs: int
    seed: int

    def model_of(self, fold: int) -> PredictLog:
        """Return the GGFN of a fold."""
        path = self.directory / f"ggfn-{fold}.safetensors"
        if not path.is_file():
            self.directory.mkdir(parents=True, exist_ok=True)
            training_plan = self.folds.training_plan(fold)
            model = train_ggfn(training_plan, epochs=self.epochs, seed=self.seed)
            save_model(path, model, model_version=1)
        return predictor(load_checkpoint(path))

    def head(self, fold: int) -> AdditiveSurrogate:
        """Return the additive head of a fold."""
        path = self.directory / f"head-{fold}.safetensors"
        if not path.is_file():
            workflows = self.folds.measurements.workflows(self.folds.is_training(fold))
            head = distil(
                self.model_of(fold), workflows, EMBEDDED_PLATFORMS, supports, seed=self.seed
            )
            save_surrogate(head, path)
        return load_surrogate(path)


def prediction_rows(folds: Folds, learn: Callable[[int], PredictLog], fold: int) -> Iterator[Row]:
    """Yield a model's predictions for every plan of a fold's cases: log seconds, in their order.

    Each plan is predicted with actual and with estimated cardinalities.

    Args:
        folds: the comparison set.
        learn: the model of a fold.
        fold: which.
    """
    predict_log = learn(fold)
    for case in folds.held_out_cases(fold):
        predictions = [predict_log(case_queries(case, each)).tolist() for each in LOG_COLUMNS]
        for seconds in zip(*predictions, strict=True):
            yield {"case": case.name, **dict(zip(LOG_COLUMNS.values(), seconds, strict=True))}


def baseline(folds: Folds, model: CostModel) -> Callable[[int], PredictLog]:
    """Return a model for `prediction_rows` that is trained on first use."""
    return lambda fold: model(folds.training_plan(fold))


CHOICE = "our choice"
ROBUST = "our choice, where a difference can be told"
FASTEST = "fastest"
BEST_ALONE = "best single platform of each case"
BEST_ALONE_AGAIN = "best single platform of each case, by interleaved runs"
LOG_PREDICTED, HALF_WIDTH = "log seconds said", "half width"
RERUN = 8
"""So many of the fastest assignments run again."""

TIMEOUT_SECONDS = 60.0

RunAgain = Callable[[Case, Sequence[Assignment]], Mapping[Assignment, float]]
"""Median seconds of each plan of a case. Infinity where a run did not end well."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """The settings of running plans again.

    Attributes:
        pool: children that run them.
        data_directory: of generated data.
        repeats: runs of each.
        clock: moments with time zone.
    """

    pool: WorkerPool
    data_directory: Path
    repeats: int
    clock: Callable[[], datetime]

    def __call__(self, case: Case, plans: Sequence[Assignment]) -> dict[Assignment, float]:
        """Return median seconds of each plan."""
        prepare(case.program.datasets, self.data_directory)
        profiler = Profiler(
            self.pool,
            data_directory=self.data_directory,
            limits=TrialLimits(TIMEOUT_SECONDS, available_memory_bytes() * 7 // 10),
            clock=self.clock,
            new_id=lambda: "not stored",
        )
        run = partial(profiler.trial, case.program, threads=1)
        measured = run_interleaved(run, plans, repeats=self.repeats)
        return {
            plan: math.inf if runs.runtime_seconds is None else runs.runtime_seconds
            for plan, runs in zip(plans, measured, strict=True)
        }


def named_with(chooser: str, information: str) -> str:
    """Return a chooser that was given that."""
    return chooser if information == ACTUAL else f"{chooser}, {information}"


def chosen_plan(
    case: Case, predict_log: PredictLog, head: AdditiveSurrogate, *, information: str
) -> Assignment:
    """The optimizer's choice for engines that are awake, as those of the measurements are."""
    workflow = workflow_with(case.workflow, information)
    costs = head.costs(workflow, case.cluster, EMBEDDED_PLATFORMS, startup_seconds={})

    def predict(queries: Sequence[PlanOnCluster]) -> list[Prediction]:
        return [Prediction(each, StudentT.within()) for each in predict_log(queries).tolist()]

    def can_run(position: int, platform: Platform) -> bool:
        return supports(case.program.steps[position].operation, platform)

    constraints = Constraints(EMBEDDED_PLATFORMS, can_run)
    choice = choose(workflow, case.cluster, constraints, predict, costs=costs)
    return sinks_at_home(case.program, choice.plan.platforms)


def robust_plan(
    case: Case, choice: Assignment, predict_log: PredictLog, *, information: str
) -> Assignment:
    """The choice, or the best single platform by prediction where they are not distinguishable."""
    workflow = workflow_with(case.workflow, information)
    single = [plan for plan in case.seconds if len(set(plan)) == 1]
    queries = [PlanOnCluster(Plan(workflow, each), case.cluster) for each in (choice, *single)]
    mix = fit_personalized_ensemble(
        History((), (), np.zeros(0)), {PUBLIC: predict_log}, public_learners()
    )
    of_choice, *others = mix.predict(queries)
    medians = [each.median_seconds for each in others]
    best = int(np.argmin(medians))
    is_distinguishable = probability_faster(of_choice, others[best]) >= SURE
    return choice if is_distinguishable else single[best]


def choice_row(
    case: Case, choice: Assignment, predict_log: PredictLog, *, name: str, information: str
) -> Row:
    """Return the predicted log seconds of a choice, and the half width that is claimed of them."""
    query = PlanOnCluster(Plan(workflow_with(case.workflow, information), choice), case.cluster)
    [log_seconds] = predict_log([query]).tolist()
    return {
        f"{name}, {LOG_PREDICTED}": log_seconds,
        f"{name}, {HALF_WIDTH}": pretrained_half_width(query),
    }


def covered_row(cells: Sequence[Row], name: str) -> Row:
    """Return the coverage of chosen mixed plans, by the median of their interleaved runs."""
    seconds = np.array([_number(each[name]) for each in cells])
    predicted, width = (
        np.array([_number(each[f"{name}, {what}"]) for each in cells])
        for what in (LOG_PREDICTED, HALF_WIDTH)
    )
    hits = (np.abs(np.log(seconds) - predicted) <= width).astype(float)
    covered = float(hits.mean())
    return {"part": "chosen, mixed", "chooser": name, "cases": len(hits), "covered": covered}


def sinks_at_home(program: Program, plan: Assignment) -> Assignment:
    """Return the plan with every sink where its input runs: a sink hands on what is there."""
    return tuple(
        plan[step.inputs[0]] if isinstance(step.operation, Sink) else platform
        for step, platform in zip(program.steps, plan, strict=True)
    )


def rules_of_thumb(cases: Sequence[Case]) -> Mapping[str, Mapping[str, Assignment]]:
    """Return the plans of every rule, by the names of the cases.

    The rule per class is the best of all in hindsight, by the cases themselves.
    """

    def mean_regret(rule: PlatformRule) -> float:
        return float(np.mean([c.regret(rule.plan(c.program, c.workflow)) for c in cases]))

    rules = [*constant_rules(), best_rule(class_rules(), mean_regret)]
    return {
        rule.name: {case.name: rule.plan(case.program, case.workflow) for case in cases}
        for rule in rules
    }


def best_alone(cases: Sequence[Case]) -> Mapping[str, Assignment]:
    """Return the best single platform of each case, in hindsight."""
    assignments: dict[str, Assignment] = {}
    for case in cases:
        seconds = case.on_one_platform()
        best = min(seconds, key=lambda platform: seconds[platform])
        assignments[case.name] = (best,) * len(case.program.steps)
    return assignments


def least_predicted(
    predictions: ModelPredictions, cases: Sequence[Case]
) -> Mapping[str, Assignment]:
    """Return a model's choice among all assignments that were measured, by case."""
    return {
        case.name: list(case.seconds)[int(np.argmin(predictions.log_seconds[case.name]))]
        for case in cases
    }


def rerun_row(case: Case, assignments: Mapping[str, Assignment], rerun: RunAgain) -> Row:
    """Seconds of each chooser's plan and of the fastest of all, in interleaved runs."""
    fastest = sorted(case.seconds, key=lambda plan: case.seconds[plan])[:RERUN]
    plans = [sinks_at_home(case.program, plan) for plan in (*assignments.values(), *fastest)]
    seconds = rerun(case, list(dict.fromkeys(plans)))
    row: dict[str, float | str] = {"case": case.name, "family": case.family.value}
    row |= {name: seconds[sinks_at_home(case.program, plan)] for name, plan in assignments.items()}
    alone = [took for plan, took in seconds.items() if len(set(plan)) == 1]
    return row | {BEST_ALONE_AGAIN: min(alone), FASTEST: min(seconds.values())}


def mixed_rows(cells: Sequence[Row], choosers: Sequence[str]) -> Iterator[Row]:
    """Regret of every chooser, as a share of the fastest plan's seconds."""
    for name in choosers:
        regrets = mixed_regrets(cells, name)
        counted = PairedComparison.points(np.minimum(regrets, FAILED))
        low, high = counted.interval or (None, None)
        median_low, median_high = counted.median_interval or (None, None)
        yield {
            "part": "mixed",
            "chooser": name,
            "cases": len(regrets),
            "mean regret": counted.mean,
            "low": low,
            "high": high,
            "median": counted.median,
            "median low": median_low,
            "median high": median_high,
            "p95 regret": float(np.percentile(regrets, 95, method="higher")),
            "within a tenth": float(np.mean(regrets <= NEAR)),
        }


def beyond(cells: Sequence[Row], name: str, rivals: Sequence[str]) -> PairedComparison:
    """Return a chooser's regret less that of the rival with the least mean, program by program."""
    ours, *theirs = (np.minimum(mixed_regrets(cells, each), FAILED) for each in (name, *rivals))
    return PairedComparison.points(ours, min(theirs, key=lambda regrets: float(regrets.mean())))


def mixed_regrets(cells: Sequence[Row], chooser: str) -> Floats:
    """Return the regrets of one chooser, [cases]."""
    return np.array([_number(each[chooser]) / _number(each[FASTEST]) - 1 for each in cells])


def _number(value: object) -> float:
    """JSON has no infinity: a plan that failed is kept as nothing."""
    return float(value) if isinstance(value, int | float) else math.inf
