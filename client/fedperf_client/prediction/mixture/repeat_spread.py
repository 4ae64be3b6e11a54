"""Answers about a configuration that ran before, with intervals from the spread of its repeats.

The log seconds of a configuration's runs are normal around its level, with a variance of its own.
Before the first repeat that variance has a scaled inverse chi-square prior. The prior is learnt
from the home's other repeated configurations, then from those of the same platforms: repeats in a
cloud differ by factors, those on a quiet machine by a percent. The prior of the level is the mix,
with its errors in folds as the spread. Where the mix is off by more than that, it counts less.

Together they give a Student t around the posterior mean. Its scale says how many runs there are
(1 + 1 / k), its tails how little is known of the variance (Gelman et al., Bayesian Data Analysis,
sections 2.6 and 3.2; learnt variances: Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004). Heavy tails of repeats are learnt as a variance that differs more between
configurations.

Runs on other resources count as well, moved by what the start says that the change brings
(`ResourceChange`): a plan that ran once on 128 cores is known on 64, up to how it scales.

In made-up worlds (normal, Student t of 3 degrees, skewed, one run in ten slow; repeats of 2 %,
of 45 %, of anything between) intervals cover 85 to 94 %. Their interval scores are mostly below
those of the pooled spread of the other configurations. A drift between days has no part of its
own: `level_shifts` handles what shifts a whole kind of work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from fedperf_client.prediction.learners.prior_slopes import USUAL_DEPARTURE
from fedperf_client.prediction.mixture.spreads import Student, half_width
from fedperf_client.prediction.prediction import Floats

Ints = NDArray[np.int64]

CLOCK_SD = 0.005
"""Repeats that agree better than that do so by chance, or by the steps of a clock; log seconds."""

MOST_REPEATED = 2_000
"""Of more repeated configurations the last ones tell how repeats differ."""

_SD = np.geomspace(0.003, 2.0, 40)
_COUNTS = np.array([0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
_LOG_GRID = np.log(_SD)[:, None], np.log(_COUNTS)

_SURE_OF_HOME, _SURE_OF_PLATFORM = 0.7, 0.5
"""Log units by which a home may differ from what is public, and a platform from its home."""


@dataclass(frozen=True, slots=True)
class RepeatBelief:
    """Of the variance of a repeat, a scaled inverse chi-square.

    Attributes:
        sd: log seconds.
        count: as so many repeats it counts.
    """

    sd: float
    count: float

    def learnt(self, evidence: Floats, sure: float) -> "RepeatBelief":
        """The likeliest one where this was believed before.

        Args:
            evidence: log likelihood of every belief on the grid, as `_evidence` gives it.
            sure: log units by which it may be off.
        """
        off = (_LOG_GRID[0] - math.log(self.sd)) ** 2 + (_LOG_GRID[1] - math.log(self.count)) ** 2
        likely = evidence - off / (2 * sure**2)
        row, column = np.unravel_index(int(np.argmax(likely)), likely.shape)
        return RepeatBelief(float(_SD[row]), float(_COUNTS[column]))


PUBLIC_BELIEF = RepeatBelief(0.25, 2.0)
"""Before any repeat is known. Quiet machines repeat within 1 to 4 %, processors in clouds within 5
to 25 % (Schad et al., PVLDB 3, 2010), what waits for shared disks and networks within a factor
of 2 to 3; a home with one job alone must be covered in all of these. So half of all homes are
put between 0.21 and 0.47, and it counts as two repeats: in made-up clouds (0.42 to 0.45) at
least 85 % are covered at 1, 2, 4 and 10 runs, where 0.15 that counts as one covers 83 to 97 %."""


SLOPE_SD = 0.35
"""How far the power of cores may be off by which a start scales: as for columns of machines
(`tables.roles`), where jobs of public clusters lie between no speedup and a full one."""


class ResourceChange(NamedTuple):
    """The way from own runs of a plan to the same plan on other resources.

    Attributes:
        configuration: of these runs.
        log_seconds: by which the start says that it takes longer.
        log_cores: by which the cores differ, over all nodes.
    """

    configuration: int
    log_seconds: float
    log_cores: float

    @property
    def variance(self) -> float:
        """Of the error of `log_seconds`: the power may be off, and no job keeps to a power."""
        return (SLOPE_SD * self.log_cores) ** 2 + USUAL_DEPARTURE**2


@dataclass(frozen=True, slots=True)
class RepeatAnswer:
    """An answer that rests on own runs of the very configuration, or moved from another.

    Attributes:
        log_seconds: posterior mean.
        spread: of another run around it.
        runs: how many there are.
        is_exact: whether the very configuration ran.
        kinship: share of its squared error that answers have in common that were moved from
            the same runs; 0 on their own resources.
    """

    log_seconds: float
    spread: Student
    runs: int
    is_exact: bool = True
    kinship: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Own executions by configuration: those that no feature tells apart.

    Attributes:
        configurations: those that were measured, ascending.
        kinds: of each, the same for those whose repeats are alike: their platforms.
        first: of each, when it was measured first.
        begins: where its runs begin among all, [configurations + 1].
        log_seconds: of all runs, configuration by configuration.
    """

    configurations: Ints
    kinds: Ints
    first: Ints
    begins: Ints
    log_seconds: Floats
    _evidence: dict[int | None, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, configurations: Ints, kinds: Ints, log_seconds: Floats) -> Self:
        """Of own executions, oldest first.

        Args:
            configurations: of each.
            kinds: of each, the same for executions whose repeats are alike.
            log_seconds: natural log of the wall seconds, [executions].
        """
        order = np.argsort(configurations, kind="stable")
        found, begins = np.unique(configurations[order], return_index=True)
        first = order[begins]
        ends = np.append(begins, len(order))
        return cls(found, kinds[first], first, ends, log_seconds[order])

    def runs_of(self, configuration: int) -> Floats:
        """Log seconds of its runs; none where it never ran."""
        place = int(np.searchsorted(self.configurations, configuration))
        if place == len(self.configurations) or self.configurations[place] != configuration:
            return np.zeros(0)
        return self._runs(place)

    def answer(
        self,
        configuration: int,
        of_mix: float,
        mix_variance: float,
        *,
        change: ResourceChange | None = None,
    ) -> RepeatAnswer | None:
        """What own runs say together with a mix; None where it never ran.

        Args:
            configuration: that is asked about.
            of_mix: log seconds.
            mix_variance: mean square of its errors, log seconds squared.
            change: from own runs on other resources, which speak where the very configuration
                never ran.
        """
        runs, moved, of_change = self.runs_of(configuration), 0.0, 0.0
        is_exact = len(runs) > 0
        if not is_exact and change is not None:
            configuration, moved = change.configuration, change.log_seconds
            of_change = change.variance
            runs = self.runs_of(configuration)
        if len(runs) == 0:
            return None
        count, mean = len(runs), float(runs.mean()) + moved
        belief = self.belief(configuration)
        degrees = belief.count + count - 1
        variance = (belief.count * belief.sd**2 + _squares(runs)) / degrees
        of_mean = variance / count + of_change
        off = max(mix_variance, (mean - of_mix) ** 2 - of_mean)
        share = off / (off + of_mean)
        # As of own runs alone: the mix has seen them too.
        spread = Student(math.sqrt(variance + variance / count), degrees)
        log_seconds = of_mix + share * (mean - of_mix)
        if is_exact:
            return RepeatAnswer(log_seconds, spread, count)
        kinship = variance / count / (variance + of_mean)
        spread = _sum(spread, of_change)
        return RepeatAnswer(log_seconds, spread, count, is_exact=False, kinship=kinship)

    def belief(self, configuration: int) -> RepeatBelief:
        """What all other configurations tell of the variance of its repeats."""
        place = int(np.searchsorted(self.configurations, configuration))
        own, kind = _evidence([self._runs(place)]), int(self.kinds[place])
        of_home = PUBLIC_BELIEF.learnt(self._told(None) - own, _SURE_OF_HOME)
        return of_home.learnt(self._told(kind) - own, _SURE_OF_PLATFORM)

    def _runs(self, place: int) -> Floats:
        return self.log_seconds[self.begins[place] : self.begins[place + 1]]

    def _told(self, kind: int | None) -> Floats:
        """What all configurations of a kind tell, of any for None; computed once."""
        if kind not in self._evidence:
            repeated = np.diff(self.begins) > 1
            chosen = np.flatnonzero(repeated if kind is None else repeated & (self.kinds == kind))
            last = chosen[np.argsort(self.first[chosen])][-MOST_REPEATED:]
            self._evidence[kind] = _evidence([self._runs(place) for place in last.tolist()])
        return self._evidence[kind]


def _sum(spread: Student, variance: float) -> Student:
    """With an independent normal error added.

    Squares of 90 % half widths add up. Tails become lighter, by Satterthwaite's rule.
    """
    degrees = spread.degrees * (1 + variance / spread.scale**2) ** 2
    widths = half_width(spread, 0.9), math.sqrt(variance) * float(ndtri(0.95))
    return Student.within(math.hypot(*widths), degrees)


def _evidence(repeated: Sequence[Floats]) -> Floats:
    """Log likelihood of every belief on the grid, up to a constant, [SD, counts].

    A sum of squares of d degrees over the believed variance is F-distributed.
    """
    degrees = np.array([len(runs) - 1 for runs in repeated])
    squares = np.array([_squares(runs) for runs in repeated])
    half, believed = _COUNTS / 2, _COUNTS * _SD[:, None] ** 2
    found = np.zeros((len(_SD), len(_COUNTS)))
    for each in np.unique(degrees[degrees > 0]).tolist():
        own = squares[degrees == each]
        constant = gammaln(half + each / 2) - gammaln(half) + half * np.log(believed)
        likely = (half + each / 2) * np.log(believed + own[:, None, None])
        found += len(own) * constant - likely.sum(axis=0)
    return found


def _squares(runs: Floats) -> float:
    """Sum of squares around the mean, not smaller than a clock can tell."""
    return float(((runs - runs.mean()) ** 2).sum()) + (len(runs) - 1) * CLOCK_SD**2
