"""How a mix stands against the best start, on own executions that are like a question.

Learners are weighed on all own executions. Where most of these were of other kinds, the mix is
one for those: it may be right in its folds and know nothing of the question. So mix and start
are weighed once more, by the same rule, on the executions that share an operator's kind and
platform with the question, at about its rows. Where all executions do, there is nothing to
weigh again; where none does, the start speaks alone. A start that is farther off there than is
claimed of any is not believed for what own executions do not know either.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.mixture.intervals import (
    DEFAULT_HALF_WIDTH,
    STRANGE_ROWS,
    Spread,
    source_rows,
)
from fedperf_client.prediction.mixture.learner_weights import mixing_weights
from fedperf_client.prediction.mixture.mixture import Known
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind

Mask = NDArray[np.bool_]

_CELLS = len(OperatorKind) * len(NAMED_PLATFORMS)


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What a mix is worth beside the start.

    Attributes:
        weight: of the mix where own executions know all operators, in [0, 1].
        disbelief: in the start, in [0, 1], whatever own executions know.
        spread: of the errors of both together, in folds.
        variance: mean square of these errors; of the public half width without any.
    """

    weight: float
    disbelief: float
    spread: Spread
    variance: float

    def weight_at(self, share: float) -> float:
        """Weight of the mix where own executions know such a share of the operators."""
        return 1 - (1 - self.disbelief) * (1 - share * self.weight)


def of_mix_alone(errors: Floats, groups: NDArray[np.int64]) -> Standing:
    """The mix has what own executions know, and its `errors` [executions] in folds."""
    variance = float(np.mean(errors**2)) if len(errors) else DEFAULT_HALF_WIDTH**2
    return Standing(1.0, 0.0, Spread.of(errors, groups), variance)


def of_start_alone() -> Standing:
    """No own execution is alike: the start speaks, with the public half width."""
    nothing = of_mix_alone(np.zeros(0), np.zeros(0, np.int64))
    return replace(nothing, weight=0.0)


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
    found = of_mix_alone(together, groups)
    return Standing(weight, disbelief, found.spread, found.variance)


def told_by_start(start: Learner, known: Known, asked: Samples, plans: Sequence[Plan]) -> Floats:
    """What `start` says, log seconds [questions]; its own level is that of executions alike."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row, plan in enumerate(plans):
        groups[alike(known, plan, sources=True).tobytes()].append(row)
    found = np.zeros(len(plans))
    for mask, rows in groups.items():
        own = np.flatnonzero(np.frombuffer(mask, np.bool_))
        fitted = start.fit(known.samples.take(own), known.log_seconds[own])
        found[rows] = fitted(asked.take(np.array(rows)))
    return found


def alike(known: Known, plan: Plan, *, sources: bool = False) -> Mask:
    """Executions that share an operator's kind and platform with `plan`, at about its rows.

    Read off the flat features, so that plans need not be kept. These tell kinds apart on named
    platforms only: on the others all executions without a named one are alike.

    Args:
        known: own executions.
        plan: what is asked about.
        sources: whether a source counts as well; without, only where a plan has nothing else.
    """
    operators = list(zip(plan.workflow.operators, plan.platforms, strict=True))
    work = [(each.kind, where) for each, where in operators if each.inputs or sources]
    pairs = work or [(each.kind, where) for each, where in operators]
    named = [(kind, where) for kind, where in pairs if where in NAMED_PLATFORMS]
    columns = [kind * len(NAMED_PLATFORMS) + where for kind, where in named]
    shared = (known.samples.features[:, columns] > 0).any(axis=1)
    if len(named) < len(pairs):
        shared |= ~platforms_used(known).any(axis=1)
    near = np.abs(known.places.size - np.log1p(source_rows(plan))) <= STRANGE_ROWS
    return np.asarray(shared & near)


def platforms_used(known: Known) -> Mask:
    """Which of the named platforms each execution used, [executions, NAMED_PLATFORMS]."""
    cells = known.samples.features[:, :_CELLS]
    counts = cells.reshape(-1, len(OperatorKind), len(NAMED_PLATFORMS))
    return np.asarray(counts.sum(axis=1) > 0)


def _weights(of_start: Floats, of_mix: Floats, groups: NDArray[np.int64]) -> tuple[float, float]:
    """Of the mix against the start, and of a guess at the public half width against it."""
    against = mixing_weights(np.stack([of_start, of_mix]), groups)[1]
    guess = np.full(len(groups), DEFAULT_HALF_WIDTH)
    return float(against), float(mixing_weights(np.stack([np.abs(of_start), guess]), groups)[1])
