"""What own executions know: kinds on platforms, at which sizes, and executions like a question.

`TrainingSupport` is a box around everything that ran, with the sizes at which each kind of operator
ran on each platform. `ExecutionSimilarity` finds the executions that are like a question.
`PlatformSizeLimits` is the largest job that ran on each platform: the hull of all executions holds
a small engine at the size of a large one as soon as each was seen somewhere, and a comparison of
platforms for one job must not rely on that. So a plan is out of reach where one of its platforms
never ran a tenth of the job's source rows.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.ensemble import TrainingSet
from fedperf_client.prediction.ensemble.intervals import Estimate
from fedperf_client.prediction.ensemble.weighting import ScaleAndSize
from fedperf_client.prediction.query_encoding import UNNAMED, engine_of
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform

Mask = NDArray[np.bool_]

Predict = Callable[[Sequence[PlanOnCluster]], list[Estimate]]

HULL_MARGIN = math.log(2.0)
"""Sizes up to twice, or down to half, of what was seen count as inside."""

KNOWN_ROWS = math.log(10.0)
STRANGE_ROWS = math.log(100.0)
"""Own executions know a kind on a platform at up to ten times the source rows that it was seen at,
or a tenth, and nothing of it at a hundred times: that far other costs are the largest (starts,
memory, disks), and a line through what was seen is a guess. Between, ever less."""

KNOWN_CORES = math.log(4.0)
STRANGE_CORES = math.log(32.0)
"""The same of cores over all nodes: a laptop's say little of a cluster's, with its shuffles."""

LEAST_SHARE = 0.5
"""Of the operators that must be known on their platforms, for a question to lie inside."""

Pair = tuple[OperatorKind, Platform]
"""A kind of operator on a platform."""

Sizes = tuple[float, ...]
"""Logs of source rows, largest output, cores, nodes, operators, and cores of a node."""

Ends = tuple[Sizes, Sizes]
"""The least and the most of each."""

ROWS, CORES = 0, 2
_NOWHERE: Ends = ((math.inf,) * 6, (-math.inf,) * 6)


TIMES = 10.0
"""Jobs up to so many times larger than any before are within reach."""


@dataclass(frozen=True, slots=True)
class TrainingSupport:
    """A box around the questions seen, and which kinds ran on which platforms in them.

    A kind seen on one platform and a platform seen with another kind say nothing of both
    together, so pairs are kept.

    Attributes:
        pairs: of every kind on a platform, the ends of the questions that it was seen in.
    """

    pairs: Mapping[Pair, Ends]

    def of_engines(self, engines: int) -> "TrainingSupport":
        """What was seen on some engines, bits as of `engine_of`."""
        return TrainingSupport(
            {each: ends for each, ends in self.pairs.items() if engine_of(each) & engines}
        )

    @property
    def lowest(self) -> Sizes:
        """Of all pairs."""
        return _ends(*zip(*self.pairs.values(), strict=True))[0]

    @property
    def highest(self) -> Sizes:
        """Of all pairs."""
        return _ends(*zip(*self.pairs.values(), strict=True))[1]

    @property
    def platforms(self) -> frozenset[Platform]:
        """Platforms seen."""
        return frozenset(platform for _, platform in self.pairs)

    def contains(self, question: PlanOnCluster) -> bool:
        """Whether `question` lies inside, and most of it is known on its platforms.

        More cores on a node than any had is another machine, however many all nodes had together.
        """
        if not self.pairs:
            return False
        *sizes, cores_on_node = _sizes(question)
        inside = all(
            low - HULL_MARGIN <= size <= high + HULL_MARGIN
            for low, size, high in zip(self.lowest, sizes, self.highest, strict=False)
        )
        return (
            inside
            and self.share_seen_apart(question.plan) == 1
            and self.support_fraction(question) >= LEAST_SHARE
            and cores_on_node <= self.highest[-1]
        )

    def support_fraction(self, question: PlanOnCluster) -> float:
        """Share of the operators whose kind was seen on their platform so, in [0, 1].

        That is at such source rows and on so many cores. Sources count only where a plan has
        nothing else: every plan has them, so that having seen one says nothing of the work
        behind it. Rows and cores that nothing at all had are no reason to know less: they are a
        question of sizes and scales, which folds mimic.
        """
        known, operators = self._known(question), question.plan.workflow.operators
        work = [each for each, o in zip(known, operators, strict=True) if o.inputs]
        counted = work or known
        return sum(counted) / len(counted)

    def share_seen_apart(self, plan: Plan) -> float:
        """Share of the operators whose kind and platform were both seen, be it in others."""
        kinds, platforms = {kind for kind, _ in self.pairs}, self.platforms
        seen = [kind in kinds and where in platforms for kind, where in _pairs(plan)]
        return sum(seen) / len(seen)

    def _known(self, question: PlanOnCluster) -> list[float]:
        """How far each operator is known, in [0, 1]."""
        plan = question.plan
        if not self.pairs:
            return [0.0] * len(plan.platforms)
        sizes = np.clip(_sizes(question), self.lowest, self.highest).tolist()
        ends = [self.pairs.get(pair, _NOWHERE) for pair in _pairs(plan)]
        return [
            min(
                _nearness(sizes[at], (low[at], high[at]), known, strange)
                for at, known, strange in (
                    (ROWS, KNOWN_ROWS, STRANGE_ROWS),
                    (CORES, KNOWN_CORES, STRANGE_CORES),
                )
            )
            for low, high in ends
        ]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionSimilarity:
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
    places: ScaleAndSize

    @classmethod
    def of(cls, known: TrainingSet) -> Self:
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

    def alike(self, question: PlanOnCluster, *, sources: bool = False) -> Mask:
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


@dataclass(frozen=True, slots=True)
class PlatformSizeLimits:
    """The most source rows of an own execution that used each platform."""

    rows: Mapping[Platform, float]

    @classmethod
    def of(cls, hull: TrainingSupport) -> Self:
        """The reach of own executions, from the hull around them."""
        rows: dict[Platform, float] = {}
        for (_, platform), (_, most) in hull.pairs.items():
            if platform in NAMED_PLATFORMS:
                rows[platform] = max(rows.get(platform, 0.0), math.expm1(most[0]))
        return cls(rows)

    def beyond(self, plan: Plan) -> tuple[Platform, ...]:
        """Platforms of the plan that ran, but only much smaller jobs."""
        asked = plan.workflow.source_rows
        known = sorted(set(plan.platforms) & self.rows.keys())
        return tuple(each for each in known if asked > TIMES * self.rows[each])

    def estimate(self, predict: Predict, questions: Sequence[PlanOnCluster]) -> list[Estimate]:
        """The estimates of these questions; those beyond reach count as extrapolating."""
        return [
            found.widened() if self.beyond(question.plan) else found
            for question, found in zip(questions, predict(questions), strict=True)
        ]


def _pairs(plan: Plan) -> list[Pair]:
    kinds = (operator.kind for operator in plan.workflow.operators)
    return list(zip(kinds, plan.platforms, strict=True))


def _ends(low: Iterable[Sizes], high: Iterable[Sizes]) -> Ends:
    """Of the least and the most of some."""
    return tuple(map(min, zip(*low, strict=True))), tuple(map(max, zip(*high, strict=True)))


def _nearness(value: float, ends: tuple[float, ...], known: float, strange: float) -> float:
    """1 up to `known` beyond what was seen, 0 from `strange` on."""
    apart = max(ends[0] - value, value - ends[1], 0.0)
    return min(1.0, max(0.0, (strange - apart) / (strange - known)))


def _sizes(question: PlanOnCluster) -> Sizes:
    operators = question.plan.workflow.operators
    largest = max(operator.output_rows for operator in operators)
    return (
        math.log1p(question.plan.workflow.source_rows),
        math.log1p(largest),
        math.log(question.cluster.cores),
        math.log(question.cluster.nodes),
        math.log(len(operators)),
        math.log(question.cluster.cores / question.cluster.nodes),
    )
