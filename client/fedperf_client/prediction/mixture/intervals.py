"""Answers with all that is known about how far off they may be, and the hull of what was seen.

Every figure of an `Estimate` is read off one distribution (`spreads`). Outside of the hull what
own executions tell is doubled in width and the prediction says `extrapolating`; what is claimed
of the start is claimed of jobs that nobody has seen, and stays as wide as it is. What questions
of a kind get is never narrower than what those inside get, whose folds know nothing of the
workload.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import engine_of
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.repeat_spread import RepeatAnswer
from fedperf_client.prediction.mixture.spreads import (
    CLAIMED_LEVEL,
    MIDDLE,
    UPPER_LEVEL,
    Distribution,
    WidenedDistribution,
    half_width,
)
from fedperf_client.prediction.prediction import (
    LOG_SECONDS_LIMIT,
    Floats,
    InvalidPredictionError,
    Prediction,
)
from fedperf_shared.execution import SizedPlan
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

WIDENING = 2.0
"""Factor on the width of what own executions tell, outside of the hull."""

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

KINSHIP = 0.5
"""Of the squared error, what two answers about one job have in common before own executions tell:
half, as work that a job brings is misjudged on all platforms and sizes alike, and what each of
these adds is not."""

KINSHIP_COUNTS = 10
"""As so many workloads that were measured in several ways it counts."""

MOST_COMMON = 0.99
"""Of the squared error, what answers about one job may have in common: never all."""

_SIGMA = 0.8413
"""Share of a normal distribution below one standard deviation."""

Pair = tuple[OperatorKind, Platform]
"""A kind of operator on a platform."""

Sizes = tuple[float, ...]
"""Logs of source rows, largest output, cores, nodes, operators, and cores of a node."""

Ends = tuple[Sizes, Sizes]
"""The least and the most of each."""

ROWS, CORES = 0, 2
_NOWHERE: Ends = ((math.inf,) * 6, (-math.inf,) * 6)


@unique
class RestsOn(StrEnum):
    """What an answer rests on for the most part."""

    OWN_RUNS = "own runs of it"
    OTHER_RESOURCES = "own runs of it on other resources"
    OTHER_SIZE = "own runs of it at other sizes"
    OWN_JOBS = "own jobs of its kind"
    OWN_JOBS_AND_START = "own jobs of its kind and the start"
    START = "the start that ships"
    SHARED = "the shared model"
    UNKNOWN_ROWS = "no own run of it there, and rows unknown"


@dataclass(frozen=True, slots=True)
class Basis:
    """Why an answer is worth something.

    Attributes:
        rests_on: what it rests on.
        runs: own runs of the very configuration, or of the plan on other resources.
        kinship: share of the squared error that it has in common with other answers about the
            same job, see `kinship_of`; 0 where it rests on own runs of the very configuration.
    """

    rests_on: RestsOn = RestsOn.OWN_JOBS
    runs: int = 0
    kinship: float = 0.0

    @classmethod
    def of_runs(cls, answer: RepeatAnswer) -> Self:
        """The basis of an answer by own runs."""
        rests_on = RestsOn.OWN_RUNS if answer.is_exact else RestsOn.OTHER_RESOURCES
        if not answer.is_same_job:
            rests_on = RestsOn.OTHER_SIZE
        return cls(rests_on, answer.runs, answer.kinship)

    def sharing(self, common: float, spread: Distribution) -> Self:
        """The basis where a part of the error is common to all answers about a job.

        Args:
            common: half width of the 90 % interval of that part alone.
            spread: of the answer, with that part; squares add.
        """
        if not common > 0:
            return self
        share = (common / half_width(spread, CLAIMED_LEVEL)) ** 2
        return replace(self, kinship=1 - (1 - self.kinship) * (1 - min(share, MOST_COMMON)))

    @property
    def is_own(self) -> bool:
        """Whether own executions tell a part of it."""
        return self.rests_on not in {RestsOn.START, RestsOn.SHARED, RestsOn.UNKNOWN_ROWS}

    @property
    def is_promise(self) -> bool:
        """Whether a deadline may be said to hold: not where the size of the job is unknown."""
        return self.rests_on not in {RestsOn.OTHER_SIZE, RestsOn.UNKNOWN_ROWS}

    @property
    def words(self) -> str:
        """For people."""
        words = self.rests_on.value
        if self.runs == 0:
            return words
        return f"{self.runs} {words if self.runs > 1 else words.replace('runs', 'run')}"


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A prediction with all that is known about how far off it may be.

    Attributes:
        prediction: median and interval.
        kind: what the question asks of the executions that are known.
        basis: what it rests on.
    """

    prediction: Prediction
    kind: Asks
    basis: Basis
    _center: float
    _spread: Distribution

    @classmethod
    def around(
        cls,
        log_seconds: float,
        spread: Distribution,
        *,
        kind: Asks,
        level: float,
        inside: bool,
        basis: Basis | None = None,
    ) -> Self:
        """The estimate around exp(`log_seconds`), its median where `spread` has its own at 0.

        Raises:
            InvalidPredictionError: `log_seconds` is not finite.
        """
        if not abs(log_seconds) < math.inf:
            raise InvalidPredictionError(f"a run time is some log seconds, got {log_seconds!r}")
        tail = (1 - level) / 2
        median, lower, upper = (
            _seconds(log_seconds + spread.quantile(share)) for share in (MIDDLE, tail, 1 - tail)
        )
        prediction = Prediction(median, lower, upper, level, extrapolating=not inside)
        return cls(prediction, kind, basis or Basis(), log_seconds, spread)

    @property
    def p90_seconds(self) -> float:
        """What 90 % of such executions stay below."""
        return self.seconds_at(UPPER_LEVEL)

    def seconds_at(self, share: float) -> float:
        """What such a share of such executions stays below."""
        return _seconds(self._center + self._spread.quantile(share))

    @property
    def deviation(self) -> float:
        """Half of the way between the ends that hold as much as one standard deviation does."""
        return (self._spread.quantile(_SIGMA) - self._spread.quantile(1 - _SIGMA)) / 2

    def widened(self) -> Self:
        """The same as extrapolating, for whoever knows that the hull promises too much."""
        if self.prediction.extrapolating:
            return self
        return type(self).around(
            self._center,
            WidenedDistribution(self._spread, WIDENING),
            kind=self.kind,
            level=self.prediction.level,
            inside=False,
            basis=self.basis,
        )

    def chance_within(self, deadline_seconds: float) -> float:
        """Chance that such an execution takes at most so long.

        Of a job of unknown size it is never more than even.

        Raises:
            InvalidPredictionError: the deadline is not positive and finite.
        """
        if not 0 < deadline_seconds < math.inf:
            raise InvalidPredictionError(f"a deadline is some seconds, got {deadline_seconds!r}")
        chance = self._spread.cdf(math.log(deadline_seconds) - self._center)
        return chance if self.basis.is_promise else min(chance, MIDDLE)


@dataclass(frozen=True, slots=True)
class Hull:
    """A box around the questions seen, and which kinds ran on which platforms in them.

    A kind seen on one platform and a platform seen with another kind say nothing of both
    together, so pairs are kept.

    Attributes:
        pairs: of every kind on a platform, the ends of the questions that it was seen in.
    """

    pairs: Mapping[Pair, Ends]

    def of_engines(self, engines: int) -> "Hull":
        """What was seen on some engines, bits as of `engine_of`."""
        return Hull({each: ends for each, ends in self.pairs.items() if engine_of(each) & engines})

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

    def contains(self, question: SizedPlan) -> bool:
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
            and self.share_seen(question) >= LEAST_SHARE
            and cores_on_node <= self.highest[-1]
        )

    def share_seen(self, question: SizedPlan) -> float:
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

    def _known(self, question: SizedPlan) -> list[float]:
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


def kinship_of(
    errors: Floats, workloads: NDArray[np.int64], configurations: NDArray[np.int64]
) -> float:
    """Share of the squared error that answers about one workload have in common, in [0, 1).

    Whoever compares two plans or sizes of one job gains by it: what both are off by together
    is no difference. Before own executions say better it is `KINSHIP`.

    Args:
        errors: of a mix in folds, signed, [executions].
        workloads: of each.
        configurations: of each; repeats of one count once.
    """
    places, first, group = np.unique(configurations, return_index=True, return_inverse=True)
    mean = np.bincount(group, errors) / np.bincount(group) if len(places) else np.zeros(0)
    of_workload = np.unique(workloads[first], return_inverse=True)[1]
    sizes = np.bincount(of_workload)
    several = sizes[of_workload] > 1
    squared = float((mean[several] ** 2).mean()) if several.any() else 0.0
    if not squared > 0:
        return KINSHIP
    level = np.bincount(of_workload, mean) / np.maximum(sizes, 1)
    count = int(np.count_nonzero(sizes > 1))
    apart = ((mean - level[of_workload])[several] ** 2).sum() / (several.sum() - count)
    own = 1 - min(1.0, float(apart) / squared)
    return (KINSHIP_COUNTS * KINSHIP + count * own) / (KINSHIP_COUNTS + count)


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


def _seconds(log_seconds: float) -> float:
    """Within what a prediction may hold, however far an end lies."""
    return math.exp(min(2 * LOG_SECONDS_LIMIT, max(-2 * LOG_SECONDS_LIMIT, log_seconds)))


def _sizes(question: SizedPlan) -> Sizes:
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
