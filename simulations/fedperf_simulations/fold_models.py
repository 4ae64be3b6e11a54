"""Cost models that have not seen a fold of the comparison set, and what they say of it.

A model of a fold learns from the measured set and from the other folds: complete plans by
their median run time, and one prefix of each execution that has any. No logical plan of the
fold is among them, whatever its size. Models, heads and answers are kept as files, so that
what was trained once is not trained again.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedperf_client.optimizer.distilling import distil
from fedperf_client.optimizer.head import Head, load_head, save_head
from fedperf_client.platforms.support import EMBEDDED_PLATFORMS, supports
from fedperf_client.prediction.prediction import Floats, PredictLog, Question
from fedperf_client.prediction.starts import predictor
from fedperf_shared.execution import ClusterConfig, Execution, MeasuredPlan
from fedperf_shared.model.checkpoint import load_checkpoint, save_model
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_simulations.comparisons import Case, folds_of, read_cases
from fedperf_simulations.cost_models import CostModel, Lesson, train_ggfn
from fedperf_simulations.datasets import COMPARISONS, measured_executions, measured_files
from fedperf_simulations.measured_prefixes import measured_prefixes
from fedperf_simulations.start import measured_plans

MOST_PLANS = 32
"""Plans of one case that models learn from; of exhaustive ones that is a sample."""

MOST_DISTILLED = 400
"""Workflows that a head is distilled from."""

Sized = tuple[Workflow, ClusterConfig]


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The comparison set dealt into folds, beside the measured set.

    Attributes:
        cases: of the comparison set.
        fold_of: of every workload of them.
        measured: executions of the measured set.
        prefixes: of executions of either set, each with its workload.
        seed: of what is drawn.
    """

    cases: tuple[Case, ...]
    fold_of: Mapping[str, int]
    measured: tuple[Execution, ...]
    prefixes: tuple[tuple[str, MeasuredPlan], ...]
    seed: int

    @classmethod
    def of(cls, seed: int) -> "Folds":
        """All of it; errors as `measured_files`, `read_cases`."""
        paths = measured_files(COMPARISONS)
        cases = tuple(case for path in paths for case in read_cases(path))
        rng = np.random.default_rng([seed, MOST_PLANS])
        prefixes = tuple(
            each for path in (*measured_files(), *paths) for each in _one_prefix_each(path, rng)
        )
        measured = tuple(measured_executions())
        return cls(cases, folds_of(cases, seed=seed), measured, prefixes, seed)

    def asked(self, fold: int) -> list[Case]:
        """The cases of a fold."""
        return [case for case in self.cases if self.fold_of[case.workload] == fold]

    def lesson(self, fold: int) -> Lesson:
        """What a model of the fold learns from."""
        rng = np.random.default_rng([self.seed, fold])
        others = [case for case in self.cases if self.fold_of[case.workload] != fold]
        return Lesson.of(
            [
                *measured_plans(e for e in self.measured if self._is_known(e.workload, fold)),
                *(plan for case in others for plan in _sampled(case, rng)),
                *(p for workload, p in self.prefixes if self._is_known(workload, fold)),
            ]
        )

    def workflows(self, fold: int) -> list[Sized]:
        """Of which a head of the fold is distilled."""
        rng = np.random.default_rng([self.seed, fold, MOST_DISTILLED])
        known = [(c.workflow, c.cluster) for c in self.cases if self.fold_of[c.workload] != fold]
        chosen = rng.permutation(len(known))[:MOST_DISTILLED].tolist()
        return [known[place] for place in chosen]

    def _is_known(self, workload: str, fold: int) -> bool:
        return self.fold_of.get(workload) != fold


@dataclass(frozen=True, slots=True)
class FoldModels:
    """GGFN and its head of every fold, kept in a directory; trained where they are missing."""

    folds: Folds
    directory: Path
    epochs: int

    def answer(self, fold: int) -> PredictLog:
        """The GGFN of a fold."""
        path = self.directory / f"ggfn-{fold}.safetensors"
        if not path.is_file():
            self.directory.mkdir(parents=True, exist_ok=True)
            lesson = self.folds.lesson(fold)
            model = train_ggfn(lesson, epochs=self.epochs, seed=self.folds.seed)
            save_model(path, model, model_version=1)
        return predictor(load_checkpoint(path))

    def head(self, fold: int) -> Head:
        """The additive head of a fold."""
        path = self.directory / f"head-{fold}.safetensors"
        if not path.is_file():
            teacher, workflows = self.answer(fold), self.folds.workflows(fold)
            head = distil(teacher, workflows, EMBEDDED_PLATFORMS, supports, seed=self.folds.seed)
            save_head(head, path)
        return load_head(path)


def answers(
    folds: Folds, learn: Callable[[int], PredictLog], fold: int, path: Path
) -> dict[str, Floats]:
    """What a model says of every plan of the cases of a fold, by name; kept at `path`.

    Args:
        folds: the comparison set.
        learn: the model of a fold, asked for where there is no such file.
        fold: which.
        path: of the file, npz.
    """
    if not path.is_file():
        predict_log = learn(fold)
        said = {case.name: predict_log(questions(case)) for case in folds.asked(fold)}
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".partial.npz")
        np.savez(scratch, allow_pickle=False, **said)
        scratch.replace(path)
    with np.load(path) as kept:
        return dict(kept)


def questions(case: Case) -> list[Question]:
    """One per measured plan, in their order."""
    return Question.of(case.workflow, list(case.seconds), case.cluster)


def baseline(folds: Folds, model: CostModel) -> Callable[[int], PredictLog]:
    """A model for `answers` that is trained when it is asked for."""
    return lambda fold: model(folds.lesson(fold))


def _sampled(case: Case, rng: np.random.Generator) -> Iterator[MeasuredPlan]:
    ended = [(plan, seconds) for plan, seconds in case.seconds.items() if seconds < math.inf]
    for place in sorted(rng.permutation(len(ended))[:MOST_PLANS].tolist()):
        platforms, seconds = ended[place]
        yield MeasuredPlan(Plan(case.workflow, platforms), case.cluster, math.log(seconds))


def _one_prefix_each(path: Path, rng: np.random.Generator) -> Iterator[tuple[str, MeasuredPlan]]:
    """Workload and a random prefix of executions that have any, of at most so many of each."""
    found: dict[str, dict[str, list[MeasuredPlan]]] = {}
    for execution, prefix in measured_prefixes(path):
        of_workload = found.setdefault(execution.workload, {})
        of_workload.setdefault(execution.execution_id, []).append(prefix)
    for workload, of_workload in found.items():
        of_executions = list(of_workload.values())
        for place in sorted(rng.permutation(len(of_executions))[:MOST_PLANS].tolist()):
            prefixes = of_executions[place]
            yield workload, prefixes[int(rng.integers(len(prefixes)))]
