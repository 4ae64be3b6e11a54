"""Cost models that have not seen a fold of the comparison set, and their answers for it.

A model of a fold learns from the measured set and from the other folds (`lessons`): no
logical plan of the fold is among them, whatever its size. Models and heads are kept as files,
so that what was trained once is not trained again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedperf_client.prediction.fetched_models import predictor
from fedperf_client.prediction.prediction import PredictLog
from fedperf_engines.optimizer.additive_surrogate import (
    AdditiveSurrogate,
    load_surrogate,
    save_surrogate,
)
from fedperf_engines.optimizer.distillation import distil
from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS, supports
from fedperf_shared.model.checkpoint import load_checkpoint, save_model
from fedperf_simulations.baselines.cost_models import CostModel, TrainingPlan, train_ggfn
from fedperf_simulations.corpus.comparisons import Case, folds_of
from fedperf_simulations.corpus.training_set import IsKnown, Measurements
from fedperf_simulations.experiments.platform_choice.tables import SAID, questions
from fedperf_simulations.harness.experiment import Row


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The comparison set dealt into folds.

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

    def asked(self, fold: int) -> list[Case]:
        """The cases of a fold."""
        return [case for case in self.cases if self.fold_of[case.workload] == fold]

    def known(self, fold: int) -> IsKnown:
        """Which workloads a model of the fold may know."""
        return lambda workload: self.fold_of.get(workload) != fold

    def training_plan(self, fold: int) -> TrainingPlan:
        """The training data of a model of the fold."""
        return self.measurements.training_plan(self.known(fold))


@dataclass(frozen=True, slots=True)
class FoldModels:
    """GGFN and its head of every fold, kept in a directory; trained where they are missing."""

    folds: Folds
    directory: Path
    epochs: int
    seed: int

    def answer(self, fold: int) -> PredictLog:
        """The GGFN of a fold."""
        path = self.directory / f"ggfn-{fold}.safetensors"
        if not path.is_file():
            self.directory.mkdir(parents=True, exist_ok=True)
            training_plan = self.folds.training_plan(fold)
            model = train_ggfn(training_plan, epochs=self.epochs, seed=self.seed)
            save_model(path, model, model_version=1)
        return predictor(load_checkpoint(path))

    def head(self, fold: int) -> AdditiveSurrogate:
        """The additive head of a fold."""
        path = self.directory / f"head-{fold}.safetensors"
        if not path.is_file():
            workflows = self.folds.measurements.workflows(self.folds.known(fold))
            head = distil(
                self.answer(fold), workflows, EMBEDDED_PLATFORMS, supports, seed=self.seed
            )
            save_surrogate(head, path)
        return load_surrogate(path)


def answers(folds: Folds, learn: Callable[[int], PredictLog], fold: int) -> Iterator[Row]:
    """A model's answers to every plan of a fold's cases: log seconds, in their order.

    With the rows that a run counted, and with what was known before it.

    Args:
        folds: the comparison set.
        learn: the model of a fold.
        fold: which.
    """
    predict_log = learn(fold)
    for case in folds.asked(fold):
        said = [predict_log(questions(case, each)).tolist() for each in SAID]
        for seconds in zip(*said, strict=True):
            yield {"case": case.name, **dict(zip(SAID.values(), seconds, strict=True))}


def baseline(folds: Folds, model: CostModel) -> Callable[[int], PredictLog]:
    """A model for `answers` that is trained when it is asked for."""
    return lambda fold: model(folds.training_plan(fold))
