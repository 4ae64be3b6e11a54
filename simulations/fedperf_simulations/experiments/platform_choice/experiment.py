"""Experiment: GGFN against its baselines, in predicting and in choosing, on plans that really ran.

The comparison set is partitioned into five folds by logical plan. A model predicts a fold without
having seen any of its logical plans at any size (`fold_models`). The parts:

- accuracy: errors of GGFN, boosting, the forest, the deep network, the analytic costs alone and
  Wayang's on all plans, with actual and with estimated cardinalities.
  Boosting and the network have GGFN's loss and the analytic costs that it corrects.
- paired: GGFN against each of them, case by case, by errors and by what is chosen.
- chosen: the share of chosen platforms', and chosen mixed plans', times that 90 % intervals cover.
- fastest: how often each platform is the fastest, per family and size.
- one platform: of plans that keep to one platform, the one that is predicted to be fastest.
- mixed: platforms per operator, where every assignment has been measured. Run again side by side
  are our choice, the same where a difference to one platform is distinguishable, rules of thumb,
  and what GGFN, boosting and the network find least among all assignments. Beside them run the best
  single platform of each case in hindsight and the fastest of the log, so that no run is lucky.
- labels: run times between measured sizes, by the published rule and by others.
- charts: measured run time over input size per platform, with our choice marked.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

from fedperf_client.prediction.prediction import PredictLog
from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.trials.profiler import WorkerPool
from fedperf_shared.model.pretrained import WIDTHS_PATH
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.baselines.cost_models import (
    analytic,
    boosting,
    deep_network,
    forest,
    wayang,
)
from fedperf_simulations.baselines.platform_rules import PER_CLASS, constant_rules
from fedperf_simulations.corpus.cardinality_mode import ACTUAL, BOTH
from fedperf_simulations.corpus.comparisons import FOLDS, Case
from fedperf_simulations.corpus.measured_log import Role
from fedperf_simulations.corpus.measurement import one_core_for_trials
from fedperf_simulations.corpus.training_set import SESSION_FOLDERS, Measurements
from fedperf_simulations.data.datasets import (
    COMPARISONS,
    TRAINING,
    MissingDataError,
    is_measured,
    measured_files,
)
from fedperf_simulations.experiments.platform_choice.models import (
    BEST_ALONE,
    BEST_ALONE_AGAIN,
    CHOICE,
    ROBUST,
    FoldModels,
    Folds,
    Rerun,
    baseline,
    best_alone,
    beyond,
    choice_row,
    chosen_plan,
    covered_row,
    least_predicted,
    mixed_rows,
    named_with,
    prediction_rows,
    rerun_row,
    robust_plan,
    rules_of_thumb,
)
from fedperf_simulations.experiments.platform_choice.tables import (
    ALL,
    INFORMATION,
    ModelPredictions,
    accuracy_rows,
    case_rows,
    chosen_row,
    comparable,
    fastest_rows,
    label_rows,
    one_platform_row,
    paired_rows,
    size_charts,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

EPOCHS, QUICK_EPOCHS = 30, 1
NETWORK_EPOCHS = 60
TREES, QUICK_TREES = 200, 5
REPEATS, QUICK_REPEATS = 5, 1
QUICK_CASES = 1
GGFN, FOREST, NETWORK, WAYANG = "GGFN", "forest", "deep network", "Wayang costs"
BOOSTING, ANALYTIC = "boosting", "analytic costs"
ROUNDS, QUICK_ROUNDS = 500, 5

MOST_ERROR, BELOW_NETWORK, BELOW_FOREST = 0.20, 0.08, 0.02
BEST, NEAR_BEST, MOST_REGRET = 0.87, 0.95, 0.05
COVERED = 0.85

RIVALS = (BOOSTING, NETWORK)
"""Baselines of the mixed choice, by their smallest prediction among all assignments."""

NOTES = (
    "cases of this set were looked at twice before, with earlier models; GGFN's loss was chosen on "
    "lessons, which are not judged; of boosting's parameters nothing was searched",
    "the best single platform of each case is that of the log's single runs; by interleaved runs "
    "it is the minimum of medians, which favours it",
)


class PlatformChoice:
    """The experiment."""

    name = "platform_choice"
    claim = "GGFN beats forest and deep network, and picks the best platform in 87 % of cases"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Rows of all parts, see the module."""
        folds = _folds(settings.seed)
        predictions = _model_predictions(settings)
        cases = [case for case in folds.cases if case.role is not Role.EXHAUSTIVE]
        series = [case for case in cases if case.role is Role.SERIES]
        model_rows = [row for each in predictions for row in case_rows(each, cases)]
        mixed = _mixed(settings, predictions)
        rows = [
            *(row for each in predictions for row in accuracy_rows(each, _by_fold(folds, cases))),
            *paired_rows(model_rows, GGFN),
            *fastest_rows(cases),
            *_one_platform(predictions, cases),
            *(chosen_row(each, cases) for each in predictions if each.model == GGFN),
            *(covered_row(mixed, named_with(CHOICE, each)) for each in BOTH),
            *mixed_rows(mixed, [*_choosers(), *_rules(), BEST_ALONE, BEST_ALONE_AGAIN]),
            *label_rows(series),
        ]
        return ExperimentOutcome(
            rows,
            [*_targets(rows), *_mixed_targets(mixed)],
            self.public_files(settings.data),
            size_charts(series, predictions[0], settings.out),
            [*model_rows, *mixed],
            [_of_spark(cases), *_of_widths(), *NOTES],
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the measured sets, and Wayang's costs where there are any."""
        sets = [None, COMPARISONS, TRAINING, *filter(is_measured, SESSION_FOLDERS)]
        measured = [f for name in sets for f in measured_files(name)]
        costs = [] if data is None else sorted(_wayang_files(data).glob("*"))
        return [*measured, *(path for path in costs if path.is_file())]


def _of_spark(cases: Sequence[Case]) -> str:
    alone = [case.on_one_platform() for case in comparable(cases)]
    ran = [each for each in alone if Platform.SPARK in each]
    won = sum(min(each, key=lambda platform: each[platform]) is Platform.SPARK for each in ran)
    return f"Spark, in a session of one machine, ran in {len(ran)} cases and was fastest in {won}"


def _of_widths() -> Iterator[str]:
    if not WIDTHS_PATH.exists():
        yield "the model's error was not measured: intervals are the prediction times or over 16"


def _by_fold(folds: Folds, cases: Sequence[Case]) -> list[list[Case]]:
    return [
        [case for case in cases if folds.fold_of[case.workload] == fold] for fold in range(FOLDS)
    ]


@cache
def _folds(seed: int) -> Folds:
    """Return the folds, which each process reads once, as they are large to hand over."""
    return Folds.of(Measurements.read(seed))


def _model_predictions(settings: Settings) -> list[ModelPredictions]:
    """Return every model's predictions of every case with either information, GGFN's first."""
    names = [GGFN, BOOSTING, FOREST, NETWORK, ANALYTIC, WAYANG]
    if settings.data is None:
        names.remove(WAYANG)
    tasks = [(name, fold) for name in names for fold in range(FOLDS)]
    results = computed(partial(_answers, settings), tasks, "models of folds", jobs=settings.jobs)
    by_task = dict(zip(tasks, results, strict=True))
    rows = {name: [row for fold in range(FOLDS) for row in by_task[name, fold]] for name in names}
    return [ModelPredictions.of(name, rows[name], each) for each in BOTH for name in names]


def _answers(settings: Settings, task: tuple[str, int]) -> Sequence[Row]:
    name, fold = task

    def rows_of_fold() -> list[Row]:
        return list(prediction_rows(_folds(settings.seed), _model(settings, name), fold))

    return settings.cases(f"{name.replace(' ', '-')}-{fold}", rows_of_fold)


def _model(settings: Settings, name: str) -> Callable[[int], PredictLog]:
    """For a fold, the model of that name."""
    if name == GGFN:
        return _fold_models(settings).model_of
    folds = _folds(settings.seed)
    if name == BOOSTING:
        rounds = QUICK_ROUNDS if settings.quick else ROUNDS
        return baseline(folds, boosting(rounds=rounds, seed=settings.seed))
    if name == ANALYTIC:
        return baseline(folds, analytic())
    if name == FOREST:
        trees = QUICK_TREES if settings.quick else TREES
        return baseline(folds, forest(trees=trees, seed=settings.seed))
    if name == NETWORK:
        epochs = QUICK_EPOCHS if settings.quick else NETWORK_EPOCHS
        return baseline(folds, deep_network(epochs=epochs, seed=settings.seed))
    return baseline(folds, wayang(_wayang_files(settings.data)))


def _wayang_files(data: Path | None) -> Path:
    if data is None:
        raise MissingDataError("Wayang's costs are in no --data")
    return data / "wayang"


def _fold_models(settings: Settings) -> FoldModels:
    folds = _folds(settings.seed)
    epochs = QUICK_EPOCHS if settings.quick else EPOCHS
    return FoldModels(folds, settings.models, epochs, settings.seed)


def _one_platform(predictions: Sequence[ModelPredictions], cases: Sequence[Case]) -> Iterator[Row]:
    for each in predictions:
        row = one_platform_row(each.model, each.cheapest_platform, cases)
        yield {**row, INFORMATION: each.information}
    for rule in constant_rules():
        platform = next(iter(rule.platforms.values()))
        yield one_platform_row(rule.name, partial(_always, platform), cases)


def _mixed(settings: Settings, predictions: Sequence[ModelPredictions]) -> list[Row]:
    """Return what each chooser's plans took when they ran again, a row per program."""
    folds = _folds(settings.seed)
    cases = [case for case in folds.cases if case.role is Role.EXHAUSTIVE]
    cases = cases[: QUICK_CASES if settings.quick else None]
    rivals = {
        named_with(each.model, each.information): least_predicted(each, cases)
        for each in predictions
        if each.model in (GGFN, *RIVALS)
    }
    models = _fold_models(settings)
    others = {**rules_of_thumb(cases), **rivals, BEST_ALONE: best_alone(cases)}
    with one_core_for_trials() as cores, WorkerPool(cores=cores, max_workers=16) as pool:
        repeats = QUICK_REPEATS if settings.quick else REPEATS
        rerun = Rerun(pool, settings.out / "data", repeats, lambda: datetime.now(UTC))
        again = partial(_rerun_cell, settings, models, others, rerun)
        return list(computed(again, cases, "programs run again", jobs=1))


def _always(platform: Platform, case: Case) -> Platform:
    del case
    return platform


def _rerun_cell(
    settings: Settings,
    models: FoldModels,
    others: Mapping[str, Mapping[str, Assignment]],
    rerun: Rerun,
    case: Case,
) -> Row:
    return settings.cell(f"mixed-{case.name}", partial(_rerun, models, others, rerun, case))


def _rerun(
    models: FoldModels, others: Mapping[str, Mapping[str, Assignment]], rerun: Rerun, case: Case
) -> Row:
    fold = models.folds.fold_of[case.workload]
    model, head = models.model_of(fold), models.head(fold)
    assignments = {name: plans[case.name] for name, plans in others.items()}
    row: Row = {}
    for each in BOTH:
        plan, name = chosen_plan(case, model, head, information=each), named_with(CHOICE, each)
        assignments[name] = plan
        assignments[named_with(ROBUST, each)] = robust_plan(case, plan, model, information=each)
        row = {**row, **choice_row(case, plan, model, name=name, information=each)}
    return {**rerun_row(case, assignments, rerun), **row}


def _targets(rows: Sequence[Row]) -> list[Target]:
    """With the rows that a run counted."""
    mixed = {r["chooser"]: number(r["mean regret"]) for r in rows if r["part"] == "mixed"}
    rows = [row for row in rows if row.get(INFORMATION) == ACTUAL]
    error = {r["model"]: number(r["relative error"]) for r in rows if r.get("family") == ALL}
    alone = {r["chooser"]: r for r in rows if r["part"] == "one platform"}
    ours, [choice_row] = alone[GGFN], [row for row in rows if row["part"] == "chosen"]
    covered = number(choice_row["covered"]) if WIDTHS_PATH.exists() else math.nan
    return [
        Target("relative error of GGFN", MOST_ERROR, error[GGFN]),
        Target(
            "relative error below that of the deep network",
            BELOW_NETWORK,
            error[NETWORK] - error[GGFN],
            at_most=False,
        ),
        Target(
            "relative error below that of the forest",
            BELOW_FOREST,
            error[FOREST] - error[GGFN],
            at_most=False,
        ),
        Target("best platform chosen", BEST, number(ours["best"]), at_most=False),
        Target("within a tenth of it", NEAR_BEST, number(ours["within a tenth"]), at_most=False),
        Target("mean regret of mixed plans", MOST_REGRET, mixed[CHOICE]),
        Target("covered, the chosen platform", COVERED, covered, at_most=False),
        *_against_boosting(rows),
    ]


def _against_boosting(rows: Sequence[Row]) -> Iterator[Target]:
    """Upper ends of the paired intervals, in prediction and in the choice of one platform."""
    for row in rows:
        if row["part"] == "paired" and row["rival"] == BOOSTING:
            what = f"{row['less']} less that of {BOOSTING}: upper end of its interval"
            yield Target(what, 0.0, number(row["high"]))


def _mixed_targets(mixed: Sequence[Row]) -> Iterator[Target]:
    """Against the best rule, each rival, and the best single platform of each case."""
    for information in BOTH:
        models = [named_with(name, information) for name in RIVALS]
        comparisons = [("the best rule", _rules())]
        comparisons += [(name, [name]) for name in (*models, BEST_ALONE, BEST_ALONE_AGAIN)]
        for name, rivals in comparisons:
            change = beyond(mixed, named_with(CHOICE, information), rivals)
            what = f"mixed plans, {information}: mean regret beyond {name}"
            yield Target(what, 0.0, change.mean, paired=change)


def _choosers() -> list[str]:
    return [named_with(name, each) for each in BOTH for name in (CHOICE, ROBUST, GGFN, *RIVALS)]


def _rules() -> list[str]:
    return [*(rule.name for rule in constant_rules()), PER_CLASS]


EXPERIMENT = PlatformChoice()
