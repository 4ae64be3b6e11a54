"""Experiment: the accuracy of the public pretrained model, and the remaining room for learning.

Figures are the median q-error and relative error per family on the public test part of the measured
set. Judged are:

- the pretrained model, which has seen all but the validation and the test part;
- the limited pretrained model of simulations, which has seen the public part alone;
- GGFN trained on the measured set but those two parts: what perfect sharing could reach there;
- a forest on the same two training sets.

Nothing is promised here, so there are no targets.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from fedperf_campaigns.tables.learners import Forest
from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import Execution
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.model.metrics import q_error, relative_errors
from fedperf_shared.model.pretrained import load_pretrained_model
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import WorkloadPart, one_per_workload, split
from fedperf_simulations.corpus.training_set import measured_plans
from fedperf_simulations.data.datasets import measured_executions, measured_files
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings
from fedperf_simulations.model.fit import fit
from fedperf_simulations.model.ggfn import GGFN, state_to_arrays

EPOCHS, QUICK_EPOCHS = 30, 2
QUICK_EXECUTIONS = 500
NOT_TRAINED_ON = (WorkloadPart.VALIDATION, WorkloadPart.TEST)

Predictor = Callable[[History], Floats]


class PublicStart:
    """The experiment."""

    name = "public_start"
    claim = "how well the shipped start predicts, and what sharing could add at the best"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return one row per model and family."""
        models: Mapping[str, Callable[[], Predictor]] = {
            "public start": lambda: _predictor(load_pretrained_model()),
            "limited start": lambda: _predictor(load_limited_model()),
            "forest on the public part": lambda: _forest(_parts()[WorkloadPart.PUBLIC]),
            "GGFN on everything": lambda: _pooled(_everything(settings), settings),
            "forest on everything": lambda: _forest(_everything(settings)),
        }
        rows = [
            row
            for name, make in models.items()
            for row in _cells(settings.cell(name.replace(" ", "-"), partial(_judge, make)), name)
        ]
        return ExperimentOutcome(rows, data_files=measured_files())


@cache
def _parts() -> Mapping[WorkloadPart, tuple[Execution, ...]]:
    return split(measured_executions())


def _everything(settings: Settings) -> list[Execution]:
    trained_on = (part for part in WorkloadPart if part not in NOT_TRAINED_ON)
    executions = [each for part in trained_on for each in _parts()[part]]
    return executions[: QUICK_EXECUTIONS if settings.quick else None]


def _judge(make: Callable[[], Predictor]) -> Row:
    queries = History.from_executions(one_per_workload(_parts()[WorkloadPart.TEST]))
    predictions = np.exp(make()(queries))
    seconds = np.exp(queries.log_seconds)
    families = np.array([workload.partition("-")[0] for workload in queries.workloads])
    figures: dict[str, float | int] = {}
    for family in ("all", *sorted(set(families))):
        is_in_family = np.ones(len(families), bool) if family == "all" else families == family
        errors = q_error(predictions[is_in_family], seconds[is_in_family])
        figures |= {
            f"{family} workloads": int(is_in_family.sum()),
            f"{family} q50": float(np.median(errors)),
            f"{family} q90": float(np.percentile(errors, 90)),
            f"{family} relative": float(
                np.mean(relative_errors(predictions[is_in_family], seconds[is_in_family]))
            ),
        }
    return figures


def _cells(figures: Row, model: str) -> list[Row]:
    families = dict.fromkeys(name.rpartition(" ")[0] for name in figures)
    measures = ("workloads", "q50", "q90", "relative")
    return [
        {"model": model, "family": family}
        | {measure: figures[f"{family} {measure}"] for measure in measures}
        for family in families
    ]


def _predictor(checkpoint: Checkpoint) -> Predictor:
    predict_log = predictor(checkpoint)
    return lambda queries: predict_log(queries.queries)


def _forest(executions: Sequence[Execution]) -> Predictor:
    fitted = fit_personalized_ensemble(History.from_executions(executions), {}, [Forest()])
    return lambda queries: fitted.predict_log(queries.queries)


def _pooled(executions: Sequence[Execution], settings: Settings) -> Predictor:
    plans = measured_plans(executions)
    model = GGFN(seed=settings.seed)
    fit(
        model,
        [featurize(each.plan, each.cluster) for each in plans],
        np.array([each.log_seconds for each in plans]),
        epochs=QUICK_EPOCHS if settings.quick else EPOCHS,
        seed=settings.seed,
    )
    return _predictor(Checkpoint(state_to_arrays(model), 1))


EXPERIMENT = PublicStart()
