"""The weight of a mix against the best start, from own executions that are like a question.

Learners are weighed on all own executions. Where most of these were of other kinds, the mix is one
for those: it may be right in its folds and know nothing of the question. So mix and start are
weighed once more, by the same rule, on executions that are like the question. These share an
operator's kind and platform with it, at about its rows and cores. Where all executions are alike,
there is nothing to weigh again; where none is, the start speaks alone. A start may be farther off
on them than is usual. Then it is not believed for what own executions do not know either.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.mixture.intervals import (
    STRANGE_CORES,
    STRANGE_ROWS,
)
from fedperf_client.prediction.mixture.learner_weights import typical_error, weights_of
from fedperf_client.prediction.mixture.matched_folds import Places
from fedperf_client.prediction.mixture.mixture import KnownRuns
from fedperf_client.prediction.mixture.spreads import USUAL_HALF_WIDTH, Spread
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import SizedPlan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Weights of a mix and of the start beside it.

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
    """The mix has all weight that own executions give; `errors` [executions] are of its folds."""
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
    found, number = np.unique(groups, return_inverse=True)
    count, halves = len(found), number % 2
    for half in (0, 1):
        held, others = halves == half, halves != half
        workloads = (count + half) // 2  # of the others
        weight, disbelief = _weights(of_start[others], of_mix[others], workloads)
        weight += disbelief * (1 - weight)
        together[held] = of_start[held] + weight * (of_mix[held] - of_start[held])
    weight, disbelief = _weights(of_start, of_mix, count)
    return Standing(weight, disbelief, Spread.of(together, groups))


def errors_alone(start: Learner, known: KnownRuns) -> Floats:
    """Log errors of the start on own executions, of which it has been told nothing."""
    nothing = np.zeros(0, np.int64)
    fitted = start.fit(known.samples.take(nothing), known.log_seconds[nothing])
    return known.log_seconds - fitted(known.samples)


def start_told(start: Learner, known: KnownRuns, alike: bytes) -> Fitted:
    """The start with the level of the executions that are alike, given as bytes of a `Mask`."""
    own = np.flatnonzero(np.frombuffer(alike, np.bool_))
    without_features = np.zeros((len(known), 0))  # none is read, and many are slow to copy
    told = Samples(without_features, known.samples.cells, known.samples.starts)
    return start.fit(told.take(own), known.log_seconds[own])


@dataclass(frozen=True, slots=True, eq=False)
class Likeness:
    """The likeness of own executions to a question.

    It is read off the flat features, so plans need not be kept. These tell kinds apart on named
    platforms only: on the others all executions without a named one are alike.

    Attributes:
        pairs: which kinds on named platforms each has, [pairs, executions].
        unnamed: which have no named platform, [executions].
        places: where they lie.
    """

    pairs: NDArray[np.bool_]
    unnamed: Mask
    places: Places

    @classmethod
    def of(cls, known: KnownRuns) -> Self:
        """To these own executions."""
        counts = known.samples.features[:, : len(OperatorKind) * len(NAMED_PLATFORMS)]
        unnamed = np.asarray(~known.samples.platforms().any(axis=1))
        return cls(np.ascontiguousarray((counts > 0).T), unnamed, known.places)

    def alike(self, question: SizedPlan, *, sources: bool = False) -> Mask:
        """Executions that share an operator's kind and platform, at about such rows and cores.

        Args:
            question: what is asked about.
            sources: whether a source counts as well; without, only where a plan has nothing else.
        """
        plan = question.plan
        operators = list(zip(plan.workflow.operators, plan.platforms, strict=True))
        work = {(each.kind, where) for each, where in operators if each.inputs or sources}
        pairs = work or {(each.kind, where) for each, where in operators}
        named = [kind * len(NAMED_PLATFORMS) + w for kind, w in pairs if w in NAMED_PLATFORMS]
        shared = self.pairs[named].any(axis=0)
        if len(named) < len(pairs):
            shared |= self.unnamed
        near = np.abs(self.places.size - np.log1p(plan.workflow.source_rows)) <= STRANGE_ROWS
        near &= np.abs(self.places.scale - np.log(question.cluster.cores)) <= STRANGE_CORES
        return np.asarray(shared & near)


def _weights(of_start: Floats, of_mix: Floats, workloads: int) -> tuple[float, float]:
    """Of the mix against the start, and of a guess that is off as is usual against it."""
    sizes, guess = np.abs(of_start), np.full(len(of_start), USUAL_HALF_WIDTH)
    start, mix, usual = (typical_error(each) for each in (sizes, np.abs(of_mix), guess))
    against = weights_of(np.stack([of_start, of_mix]), workloads, (start, mix))[1]
    return float(against), float(weights_of(np.stack([sizes, guess]), workloads, (start, usual))[1])
