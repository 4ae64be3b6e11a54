"""How a mix stands against the best start, on own executions that are like a question.

Learners are weighed on all own executions. Where most of these were of other kinds, the mix is
one for those: it may be right in its folds and know nothing of the question. So mix and start
are weighed once more, by the same rule, on the executions that share an operator's kind and
platform with the question, at about its rows and cores. Where all executions do, there is
nothing to weigh again; where none does, the start speaks alone. A start that is farther off
there than is usual is not believed for what own executions do not know either.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.mixture.intervals import (
    STRANGE_CORES,
    STRANGE_ROWS,
)
from fedperf_client.prediction.mixture.learner_weights import mixing_weights
from fedperf_client.prediction.mixture.mixture import KnownRuns
from fedperf_client.prediction.mixture.spreads import USUAL_HALF_WIDTH, Spread
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import SizedPlan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What a mix is worth beside the start.

    Attributes:
        weight: of the mix where own executions know all operators, in [0, 1].
        disbelief: in the start, in [0, 1], whatever own executions know.
        spread: of the errors of both together, in folds.
    """

    weight: float
    disbelief: float
    spread: Spread

    @property
    def variance(self) -> float:
        """Mean square of these errors, beginning at what is usual."""
        return self.spread.student.scale**2

    def weight_at(self, share: float) -> float:
        """Weight of the mix where own executions know such a share of the operators."""
        return 1 - (1 - self.disbelief) * (1 - share * self.weight)


def of_mix_alone(errors: Floats, groups: NDArray[np.int64]) -> Standing:
    """The mix has what own executions know, and its `errors` [executions] in folds."""
    return Standing(1.0, 0.0, Spread.of(errors, groups))


def of_start_alone() -> Standing:
    """No own execution is alike: the start speaks."""
    return Standing(0.0, 0.0, Spread.of(np.zeros(0), np.zeros(0, np.int64)))


def against_start(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> Standing:
    """Mix and start weighed by their errors on the same executions.

    Args:
        of_start: log errors of the start, [executions], at least one.
        of_mix: out-of-fold log errors of the mix.
        groups: workload of each; the errors of both together are those of weights that have
            not seen half of the workloads.
    """
    together = np.zeros(len(groups))
    halves = np.unique(groups, return_inverse=True)[1] % 2
    for half in (0, 1):
        held, others = halves == half, halves != half
        weight, disbelief = _weights(of_start[others], of_mix[others], groups[others])
        weight += disbelief * (1 - weight)
        together[held] = of_start[held] + weight * (of_mix[held] - of_start[held])
    weight, disbelief = _weights(of_start, of_mix, groups)
    return Standing(weight, disbelief, Spread.of(together, groups))


def told_by_start(
    start: Learner, known: KnownRuns, asked: Samples, questions: Sequence[SizedPlan]
) -> Floats:
    """What `start` says, log seconds [questions]; its own level is that of executions alike."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row, question in enumerate(questions):
        groups[alike(known, question, sources=True).tobytes()].append(row)
    found = np.zeros(len(questions))
    without_features = np.zeros((len(known), 0))  # none is read, and many are slow to copy
    for mask, rows in groups.items():
        own = np.flatnonzero(np.frombuffer(mask, np.bool_))
        told = Samples(without_features, known.samples.cells, known.samples.starts)
        fitted = start.fit(told.take(own), known.log_seconds[own])
        found[rows] = fitted(asked.take(np.array(rows)))
    return found


def alike(known: KnownRuns, question: SizedPlan, *, sources: bool = False) -> Mask:
    """Executions that share an operator's kind and platform, at about such rows and cores.

    Read off the flat features, so that plans need not be kept. These tell kinds apart on named
    platforms only: on the others all executions without a named one are alike.

    Args:
        known: own executions.
        question: what is asked about.
        sources: whether a source counts as well; without, only where a plan has nothing else.
    """
    plan = question.plan
    operators = list(zip(plan.workflow.operators, plan.platforms, strict=True))
    work = [(each.kind, where) for each, where in operators if each.inputs or sources]
    pairs = work or [(each.kind, where) for each, where in operators]
    named = [(kind, where) for kind, where in pairs if where in NAMED_PLATFORMS]
    columns = [kind * len(NAMED_PLATFORMS) + where for kind, where in named]
    shared = (known.samples.features[:, columns] > 0).any(axis=1)
    if len(named) < len(pairs):
        shared |= ~known.samples.platforms().any(axis=1)
    near = np.abs(known.places.size - np.log1p(plan.workflow.source_rows)) <= STRANGE_ROWS
    near &= np.abs(known.places.scale - np.log(question.cluster.cores)) <= STRANGE_CORES
    return np.asarray(shared & near)


def _weights(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> tuple[float, float]:
    """Of the mix against the start, and of a guess that is off as is usual against it."""
    against = mixing_weights(np.stack([of_start, of_mix]), groups)[1]
    guess = np.full(len(groups), USUAL_HALF_WIDTH)
    return float(against), float(mixing_weights(np.stack([np.abs(of_start), guess]), groups)[1])
