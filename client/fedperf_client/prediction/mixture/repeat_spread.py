"""What ran before, exactly so: answered by its own times, as far apart as its repeats are.

The log seconds of a configuration's runs are taken as normal around its level, with a variance
of its own. Of that variance a scaled inverse chi-square is believed before the first repeat,
learnt from the home's other repeated configurations and then from those of the same platforms:
repeats in a cloud differ by factors where those on a quiet machine differ by a percent. Of the
level the mix is believed, as far as its errors in folds allow; where it is off by more than
that, it is believed less. Together they give a Student t around the posterior mean: its scale
says how many runs there are (1 + 1 / k), its tails how little is known of the variance (Gelman et
al., Bayesian Data Analysis, sections 2.6 and 3.2; learnt variances: Smyth, Statistical
Applications in Genetics and Molecular Biology 3, 2004). Heavy tails of repeats are learnt as a
variance that differs more between configurations.

In made-up worlds (normal, Student t of 3 degrees, skewed, one run in ten slow; repeats of 2 %,
of 45 %, of anything between) intervals cover 85 to 94 % and their interval scores are mostly
below those of the pooled spread of the other configurations. A drift between days has no part of
its own: what shifts a whole kind of work is known elsewhere (`level_shifts`).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.special import gammaln

from fedperf_client.prediction.mixture.spreads import Student
from fedperf_client.prediction.prediction import Floats

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


@dataclass(frozen=True, slots=True)
class Repeated:
    """An answer that rests on own runs of the very configuration.

    Attributes:
        log_seconds: posterior mean.
        spread: of another run around it.
        runs: how many there are.
    """

    log_seconds: float
    spread: Student
    runs: int


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Own executions by configuration: those that no feature tells apart.

    Attributes:
        log_seconds: of each configuration that was measured.
        kinds: of each configuration, those whose repeats are alike: its platforms.
    """

    log_seconds: Mapping[bytes, Floats]
    kinds: Mapping[bytes, bytes]
    _evidence: dict[bytes | None, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls, configurations: Sequence[bytes], kinds: Sequence[bytes], log_seconds: Floats
    ) -> Self:
        """Of own executions.

        Args:
            configurations: of each.
            kinds: of each, the same for executions whose repeats are alike.
            log_seconds: natural log of the wall seconds, [executions].
        """
        found: dict[bytes, list[float]] = defaultdict(list)
        for key, each in zip(configurations, log_seconds.tolist(), strict=True):
            found[key].append(each)
        measured = {key: np.array(each) for key, each in found.items()}
        return cls(measured, dict(zip(configurations, kinds, strict=True)))

    def answer(self, configuration: bytes, of_mix: float, mix_variance: float) -> Repeated | None:
        """What own runs say together with a mix; None where it never ran.

        Args:
            configuration: that is asked about.
            of_mix: log seconds.
            mix_variance: mean square of its errors, log seconds squared.
        """
        runs = self.log_seconds.get(configuration)
        if runs is None:
            return None
        count, mean = len(runs), float(runs.mean())
        belief = self.belief(configuration)
        degrees = belief.count + count - 1
        variance = (belief.count * belief.sd**2 + _squares(runs)) / degrees
        of_mean = variance / count
        off = max(mix_variance, (mean - of_mix) ** 2 - of_mean)
        share = off / (off + of_mean)
        scale = math.sqrt(variance + of_mean)  # as of own runs alone: the mix has seen them too
        return Repeated(of_mix + share * (mean - of_mix), Student(scale, degrees), count)

    def belief(self, configuration: bytes) -> RepeatBelief:
        """What all other configurations tell of the variance of its repeats."""
        own, kind = _evidence([self.log_seconds[configuration]]), self.kinds[configuration]
        of_home = PUBLIC_BELIEF.learnt(self._told(None) - own, _SURE_OF_HOME)
        return of_home.learnt(self._told(kind) - own, _SURE_OF_PLATFORM)

    def _told(self, kind: bytes | None) -> Floats:
        """What all configurations of a kind tell, of any for None; computed once."""
        if kind not in self._evidence:
            chosen = [
                runs
                for key, runs in self.log_seconds.items()
                if len(runs) > 1 and kind in (None, self.kinds[key])
            ]
            self._evidence[kind] = _evidence(chosen[-MOST_REPEATED:])
        return self._evidence[kind]


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
