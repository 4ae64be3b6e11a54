"""The weight of a mix against the best start, from own executions that are like a question.

Learners are weighed on all own executions. Where most of these were of other kinds, the mix is one
for those: it may be right in its folds and know nothing of the question. So mix and start are
weighed once more, by the same rule, on executions that are like the question. These share an
operator's kind and platform with it, at about its rows and cores. Where all executions are alike,
there is nothing to weigh again; where none is, the start speaks alone. A start may be farther off
on them than is usual. Then it is not believed for what own executions do not know either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import UNNAMED, Samples, engine_of
from fedperf_client.prediction.learners.learner import Fitted, Learner
from fedperf_client.prediction.mixture.intervals import (
    STRANGE_CORES,
    STRANGE_ROWS,
)
from fedperf_client.prediction.mixture.learner_weights import mixing_weights
from fedperf_client.prediction.mixture.matched_folds import Places, fold_of
from fedperf_client.prediction.mixture.mixture import KnownRuns
from fedperf_client.prediction.mixture.spreads import (
    USUAL_HALF_WIDTH,
    Distribution,
    Spread,
    Student,
    widest,
    with_more,
)
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.execution import SizedPlan
from fedperf_shared.model.start_widths import estimates_half_width, half_width_about
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
            not seen the workload.
    """
    together, folds = np.zeros(len(groups)), fold_of(groups, 0)
    for fold in range(int(folds.max(initial=-1)) + 1):
        held, others = folds == fold, folds != fold
        weight, disbelief = _weights(of_start[others], of_mix[others], groups[others])
        weight += disbelief * (1 - weight)
        together[held] = of_start[held] + weight * (of_mix[held] - of_start[held])
    weight, disbelief = _weights(of_start, of_mix, groups)
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
    samples = known.samples
    told = Samples(without_features, samples.cells, samples.starts, samples.shares)
    return start.fit(told.take(own), known.log_seconds[own])


@dataclass(frozen=True, slots=True, eq=False)
class Likeness:
    """The likeness of own executions to a question.

    It is read off the flat features, so plans need not be kept. These tell kinds apart on named
    platforms only: on the others all executions without a named one are alike.

    Attributes:
        pairs: which kinds on named platforms each has, [pairs, executions].
        unnamed: which have no named platform, [executions].
        engines: of each, bits as of `engine_of`, [executions].
        places: where they lie.
    """

    pairs: NDArray[np.bool_]
    unnamed: Mask
    engines: NDArray[np.int64]
    places: Places

    @classmethod
    def of(cls, known: KnownRuns) -> Self:
        """To these own executions."""
        counts = known.samples.features[:, : len(OperatorKind) * len(NAMED_PLATFORMS)]
        unnamed = np.asarray(~known.samples.platforms().any(axis=1))
        pairs = np.ascontiguousarray((counts > 0).T)
        bits = [engine_of(pair) for pair in product(OperatorKind, NAMED_PLATFORMS)]
        engines = np.bitwise_or.reduce(pairs * np.array(bits)[:, None], axis=0)
        engines[unnamed] = UNNAMED
        return cls(pairs, unnamed, engines, known.places)

    def kin(self, engines: int) -> int:
        """Those of some engines that ran here, and all that ran with these in one plan."""
        found, wider = 0, engines
        while wider != found:
            found, wider = (
                wider,
                int(np.bitwise_or.reduce(self.engines[(self.engines & wider) != 0], initial=0)),
            )
        return found

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


def _weights(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> tuple[float, float]:
    """Of the mix against the start, and of a guess that is off as is usual against it."""
    sizes, guess = np.abs(of_start), np.full(len(of_start), USUAL_HALF_WIDTH)
    against = mixing_weights(np.stack([of_start, of_mix]), groups)[1]
    return float(against), float(mixing_weights(np.stack([sizes, guess]), groups)[1])


def spread_about(
    question: SizedPlan,
    own: Sequence[Spread],
    share: float = 0.0,
    *,
    factor: float = 1.0,
    level: float,
) -> Distribution:
    """What folds say of a question, and what is claimed of the start where that is wider.

    Args:
        question: that is asked.
        own: what folds say.
        share: of its operators that own executions know; where it is 1 they speak alone.
        factor: on the width of what folds say.
        level: of the interval that is compared.
    """
    added = estimates_half_width(question)
    found: list[Distribution] = [with_more(each, added, factor) for each in own]
    if share < 1 or not own:
        found.append(Student.within(half_width_about(question)))
    return widest(found, level)
