"""The gain from joining: an organization's errors with and without it, on other executions."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.prediction.evidence import History
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.residual_learners import PUBLIC, REFERENCE, SHARED
from fedperf_client.prediction.mixture.candidates import candidates_of
from fedperf_client.prediction.mixture.learner_catalogue import local_learners
from fedperf_client.prediction.mixture.personal import PersonalMix, personalize
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.model.metrics import median_q_error


@dataclass(frozen=True, slots=True)
class Gain:
    """Median q-errors on held-out executions.

    Attributes:
        executions: own executions that were learnt from.
        held_out: executions that were asked about.
        local: own executions alone.
        base: the public start as it is, without joining.
        shared: the shared model as it is; the public start before there is one.
        personalized: the mix that `fedperf` predicts with.
        coverage: share of held-out executions inside the personalized 90 % interval.
    """

    executions: int
    held_out: int
    local: float
    base: float
    shared: float
    personalized: float
    coverage: float

    def as_row(self) -> dict[str, object]:
        """The figures by name, rounded for reading."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def personalized_predictor(history: History, models: FetchedModels) -> PersonalMix:
    """The mix of everything an organization has: own executions, starts and correction."""
    return personalize(history, models.starts(), models.learners())


def gain_on(
    history: History, workloads: Iterable[str], held_out: Iterable[Execution], models: FetchedModels
) -> Gain:
    """Compare on executions of workloads that never ran here.

    Args:
        history: own executions that are learnt from.
        workloads: all own ones.
        held_out: executions that are asked about.
        models: what was fetched.

    Raises:
        InvalidInputError: nothing was held out, or a held-out workload is among the own.
    """
    asked = History.from_executions(held_out)
    known = set(workloads) & set(asked.workloads)
    if not len(asked):
        raise InvalidInputError(
            "no held-out execution ended well with rows that are known: there is nothing to ask"
        )
    if known:
        raise InvalidInputError(
            f"{len(known)} of the {len(set(asked.workloads))} held-out workloads ran here too, "
            f"such as {min(known)!r}; --held-out asks about jobs that did not, and without it "
            "fedperf gain keeps own ones away"
        )
    starts = models.starts()
    joined, local = models.learners(), local_learners()
    candidates = candidates_of(history, starts, every_one([*joined, *local]))
    answers = PersonalMix.of(candidates, joined).predict(asked.questions)
    seconds = np.exp(asked.log_seconds)
    inside = [answer.covers(measured) for answer, measured in zip(answers, seconds, strict=True)]

    def error_of(log_seconds: Floats) -> float:
        return median_q_error(np.exp(log_seconds), seconds)

    return Gain(
        executions=len(history),
        held_out=len(asked),
        local=error_of(PersonalMix.of(candidates, local).predict_log(asked.questions)),
        base=error_of(starts[PUBLIC](asked.questions)),
        shared=error_of(starts.get(SHARED, starts[REFERENCE])(asked.questions)),
        personalized=median_q_error(np.array([each.median_seconds for each in answers]), seconds),
        coverage=float(np.mean(inside)),
    )


def every_one(learners: Iterable[Learner]) -> list[Learner]:
    """The first of each name."""
    return list({learner.name: learner for learner in reversed(list(learners))}.values())[::-1]
