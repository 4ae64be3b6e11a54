"""Predictions from runs of the same job.

The log run times of a configuration are normal around its level, with a variance of
its own. Before the first repeat that variance has a scaled inverse chi-squared prior, learned from
the other repeated configurations on the same platforms: repeats in a cloud differ by factors, those
on a quiet machine by a percent. The prior of the level is the ensemble, with the spread of its
errors in folds. An ensemble that is off by more than that counts less.

The posterior is a Student t around the posterior mean. Its scale depends on the number of
runs (1 + 1 / k), its tails on the uncertainty of the variance (Gelman et al., Bayesian Data
Analysis, sections 2.6 and 3.2; learned variances: Smyth, Statistical Applications in Genetics and
Molecular Biology 3, 2004). Heavy tails of repeats are learned as a variance that differs more
between configurations. A run of exactly the job always counts: the ensemble moves the median at
most `MOST_PULLED` away from it.

Runs on other resources count as well, moved by the change that the pretrained model predicts
(`ResourceChange`). A plan that ran once on 128 cores is predictable on 64, up to how it scales.
Jobs that only their own runs predict (`IsolatedRuns`) are moved by what is usual for any job.

In synthetic worlds (normal, Student t of 3 degrees, skewed, one run in ten slow; repeats of 2 %,
of 45 %, of anything between) intervals cover 85 to 94 %. Their interval scores are mostly below
those of the pooled spread of the other configurations. Day-to-day drift has no part of its own:
drift shifts a whole kind of work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from fedperf_client.prediction.encoding import Identity, Ints
from fedperf_client.prediction.prediction import (
    CLAIMED_LEVEL,
    USUAL_HALF_WIDTH,
    Evidence,
    EvidenceSource,
    Floats,
    Prediction,
    StudentT,
)

# Repeats that agree better do so by chance, or by the resolution of a clock; log seconds.
CLOCK_SD = 0.005

# Newest repeated configurations from which the prior of the variance is learned.
MOST_REPEATED = 2_000

_SD = np.geomspace(0.003, 2.0, 40)
_COUNTS = np.array([0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
_LOG_GRID = np.log(_SD)[:, None], np.log(_COUNTS)

# Log units by which a platform of an organization may differ from the public prior.
_PRIOR_SD = 0.86


@dataclass(frozen=True, slots=True)
class VariancePosterior:
    """A scaled inverse chi-squared distribution of the variance of a repeat."""

    sd: float  # log seconds
    count: float  # of repeats that it is worth


# Before any repeat. Quiet machines repeat within 1 to 4 %, processors in clouds within 5
# to 25 % (Schad et al., PVLDB 3, 2010), and jobs that wait for shared disks and networks within a
# factor of 2 to 3. An organization with a single job must be covered in all of these. So half of
# all organizations are put between 0.21 and 0.47, and the prior counts as two repeats. In synthetic
# clouds (0.42 to 0.45) at least 85 % are covered at 1, 2, 4 and 10 runs; a prior of 0.15 that
# counts as one repeat covers 83 to 97 %.
PUBLIC_PRIOR = VariancePosterior(0.25, 2.0)


# For runs of a workload that are not of exactly the same job: a factor of 4 at 90 %, until their
# own spread is known.
OTHER_SIZE_PRIOR = VariancePosterior(USUAL_HALF_WIDTH / float(ndtri(0.95)), 2.0)

# Standard deviation of the power of cores by which run time scales, as for columns of machines
# (`tables.roles`): jobs of public clusters lie between no speed-up and a full one.
SLOPE_SD = 0.35

# Log seconds by which a job departs from a power of its resources or from a law of scaling: caches,
# spills, waves of tasks.
USUAL_DEPARTURE = 0.15

# Slope of log seconds over log cores without evidence of how a job scales. With `SLOPE_SD` its 90 %
# interval reaches from no speed-up to a full one.
USUAL_SLOPE = -0.5

# Log seconds by which an ensemble may move the level of runs of the same configuration.
MOST_PULLED = math.log(1.08)

ALIKE_BYTES = math.log(1.1)  # jobs whose read bytes differ by less are of one size, log units


class ResourceChange(NamedTuple):
    """The change from runs of a plan to the same plan on other resources."""

    configuration: int  # of these runs
    log_seconds: float  # by which the pretrained model predicts a longer run time
    log_cores: float  # difference of the cores over all nodes

    @property
    def variance(self) -> float:
        """Variance of the error of `log_seconds`: of the power, and of departures from a power."""
        return (SLOPE_SD * self.log_cores) ** 2 + USUAL_DEPARTURE**2


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Local executions by configuration; runs of one configuration have equal features."""

    configurations: Ints  # ascending, [configurations]
    # Equal for configurations whose repeats are alike: their platforms, [configurations].
    kinds: Ints
    first: Ints  # index of the first run of each, [configurations]
    begins: Ints  # where the runs of each begin in `log_seconds`, [configurations + 1]
    log_seconds: Floats  # of all runs, configuration by configuration
    _likelihoods: dict[int, Floats] = field(default_factory=dict)

    @classmethod
    def from_runs(cls, configurations: Ints, kinds: Ints, log_seconds: Floats) -> Self:
        """Group executions, oldest first, by their configurations; all [executions]."""
        order = np.argsort(configurations, kind="stable")
        distinct, begins = np.unique(configurations[order], return_index=True)
        first = order[begins]
        return cls(distinct, kinds[first], first, np.append(begins, len(order)), log_seconds[order])

    def runs_of(self, configuration: int) -> Floats:
        """Return the log seconds of the runs of a configuration; empty if it never ran."""
        place = int(np.searchsorted(self.configurations, configuration))
        if place == len(self.configurations) or self.configurations[place] != configuration:
            return np.zeros(0)
        return self._runs(place)

    def predict(
        self,
        configuration: int,
        log_seconds: float,
        variance: float,
        *,
        change: ResourceChange | None = None,
    ) -> Prediction | None:
        """Combine the runs of a configuration with an ensemble; None if it never ran.

        Args:
            configuration: of the query.
            log_seconds: predicted by the ensemble.
            variance: mean squared error of the ensemble, log seconds squared.
            change: from runs on other resources, used if the same configuration never ran.
        """
        runs = self.runs_of(configuration)
        if len(runs) > 0:
            distribution, of_mean = _posterior(runs, self.posterior(configuration))
            apart = log_seconds - float(runs.mean())
            pulled = (1 - _weight_of_runs(apart, variance, of_mean)) * apart
            level = float(runs.mean()) + min(max(pulled, -MOST_PULLED), MOST_PULLED)
            evidence = Evidence(EvidenceSource.OWN_RUNS, len(runs))
            return Prediction(level, distribution, evidence=evidence)
        runs = np.zeros(0) if change is None else self.runs_of(change.configuration)
        if change is None or len(runs) == 0:
            return None
        posterior = self.posterior(change.configuration)
        prior = _moved(
            runs,
            posterior,
            change.log_seconds,
            change.variance,
            source=EvidenceSource.OTHER_RESOURCES,
        )
        of_mean = _posterior(runs, posterior)[1] + change.variance
        weight = _weight_of_runs(log_seconds - prior.log_seconds, variance, of_mean)
        return replace(prior, log_seconds=log_seconds + weight * (prior.log_seconds - log_seconds))

    def posterior(self, configuration: int) -> VariancePosterior:
        """Return the posterior of the variance of its repeats from all other configurations."""
        place = int(np.searchsorted(self.configurations, configuration))
        kind = int(self.kinds[place])
        if kind not in self._likelihoods:
            repeated = np.flatnonzero((np.diff(self.begins) > 1) & (self.kinds == kind))
            newest = repeated[np.argsort(self.first[repeated])][-MOST_REPEATED:]
            self._likelihoods[kind] = _log_likelihood(
                [self._runs(each) for each in newest.tolist()]
            )
        others = self._likelihoods[kind] - _log_likelihood([self._runs(place)])
        log_sd, log_count = _LOG_GRID
        off = (log_sd - math.log(PUBLIC_PRIOR.sd)) ** 2
        off = off + (log_count - math.log(PUBLIC_PRIOR.count)) ** 2
        likely = others - off / (2 * _PRIOR_SD**2)
        row, column = np.unravel_index(int(np.argmax(likely)), likely.shape)
        return VariancePosterior(float(_SD[row]), float(_COUNTS[column]))

    def _runs(self, place: int) -> Floats:
        return self.log_seconds[self.begins[place] : self.begins[place + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedRuns:
    """Runs that predict their own jobs only, see `Identity`; [runs] each."""

    job: Ints  # ascending. configuration, read_bytes, mark: see `Identity`.
    configuration: Ints
    read_bytes: Floats
    mark: Ints
    log_cores: Floats  # over all nodes
    is_ok: NDArray[np.bool_]  # whether it ended well; the others are right-censored
    log_seconds: Floats  # natural log of the wall seconds

    def predict(self, identity: Identity, log_cores: float, *, tasks: int = 0) -> Prediction | None:
        """Predict from runs of the job; None if none of its workload ended well.

        Runs of exactly this job take precedence over those of another size of it. Among these,
        runs on its resources take precedence over those on the nearest others.

        Args:
            identity: of a job that only its own runs predict.
            log_cores: of the query, over all nodes.
            tasks: of the job; cores beyond them are idle. 0 if unknown.
        """
        rows, is_alike = self._runs_of_job(identity)
        rows, is_alike = rows[self.is_ok[rows]], is_alike[self.is_ok[rows]]
        is_same_job = bool(is_alike.any())
        rows = rows[is_alike] if is_same_job else rows
        if len(rows) == 0:
            return None
        here = rows[self.configuration[rows] == identity.configuration]
        apart = np.abs(self.log_cores[rows] - log_cores)
        nearest = here if len(here) > 0 else rows[apart == apart.min()]
        runs = self.log_seconds[nearest]
        if len(here) > 0 and is_same_job:
            evidence = Evidence(EvidenceSource.OWN_RUNS, len(runs))
            distribution, _ = _posterior(runs, PUBLIC_PRIOR)
            return Prediction(float(runs.mean()), distribution, evidence=evidence)
        most = math.log(tasks) if tasks else math.inf
        by = min(log_cores, most) - min(float(self.log_cores[nearest[-1]]), most)
        variance = 0.0 if len(here) > 0 else (SLOPE_SD * by) ** 2 + USUAL_DEPARTURE**2
        prior, source = PUBLIC_PRIOR, EvidenceSource.OTHER_RESOURCES
        if not is_same_job:
            prior, source = OTHER_SIZE_PRIOR, EvidenceSource.OTHER_SIZE
            read_bytes = self.read_bytes[nearest]
            if identity.read_bytes > 0 and (read_bytes > 0).all():
                variance += float(np.log(read_bytes / identity.read_bytes).mean()) ** 2
        return _moved(runs, prior, USUAL_SLOPE * by, variance, source=source)

    def runs_of(self, identity: Identity, *, is_ok: bool) -> Floats:
        """Return the log seconds of exactly this job's runs on its resources that ended so."""
        rows, is_alike = self._runs_of_job(identity)
        rows = rows[is_alike]
        here = (self.configuration[rows] == identity.configuration) & (self.is_ok[rows] == is_ok)
        log_seconds: Floats = self.log_seconds[rows[here]]
        return log_seconds

    def _runs_of_job(self, identity: Identity) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the runs of the job's workload, and which of them are of its size."""
        rows = np.arange(*np.searchsorted(self.job, [identity.job, identity.job + 1]))
        read_bytes, mark = self.read_bytes[rows], self.mark[rows]
        if identity.read_bytes == 0:
            return rows, np.asarray((read_bytes == 0) & (mark == identity.mark))
        off = np.abs(np.log(np.maximum(read_bytes, 1.0) / identity.read_bytes))
        return rows, np.asarray((read_bytes > 0) & (off <= ALIKE_BYTES))


def _moved(
    runs: Floats,
    prior: VariancePosterior,
    by: float,
    variance: float,
    *,
    source: EvidenceSource,
) -> Prediction:
    """Predict from runs on other resources, or of another size.

    Args:
        runs: log seconds, at least one.
        prior: of the variance of a repeat.
        by: log seconds that the change brings.
        variance: of the error of `by`.
        source: of the evidence.
    """
    repeat, of_mean = _posterior(runs, prior)
    around_level = repeat.scale**2 - of_mean
    correlation = of_mean / (around_level + of_mean + variance)
    # Squares of 90 % half-widths add up. Tails become lighter, by Satterthwaite's rule.
    degrees = repeat.degrees * (1 + variance / repeat.scale**2) ** 2
    half_widths = repeat.half_width(CLAIMED_LEVEL), math.sqrt(variance) * float(ndtri(0.95))
    return Prediction(
        float(runs.mean()) + by,
        StudentT.within(math.hypot(*half_widths), degrees),
        evidence=Evidence(source, len(runs), correlation),
    )


def _posterior(runs: Floats, prior: VariancePosterior) -> tuple[StudentT, float]:
    """Return the distribution of another run around their mean, and the variance of the mean.

    It is that of the runs alone: an ensemble has used them too.
    """
    count = len(runs)
    degrees = prior.count + count - 1
    variance = (prior.count * prior.sd**2 + _sum_of_squares(runs)) / degrees
    return StudentT(math.sqrt(variance + variance / count), degrees), variance / count


def _weight_of_runs(apart: float, variance: float, of_mean: float) -> float:
    """Return the weight of a mean against an ensemble that lies `apart` from it."""
    off = max(variance, apart**2 - of_mean)
    return off / (off + of_mean)


def _log_likelihood(repeated: Sequence[Floats]) -> Floats:
    """Return the log likelihood of every posterior on the grid, up to a constant, [SD, counts].

    A sum of squares of d degrees over the variance is F-distributed.
    """
    degrees = np.array([len(runs) - 1 for runs in repeated])
    squares = np.array([_sum_of_squares(runs) for runs in repeated])
    half, scaled = _COUNTS / 2, _COUNTS * _SD[:, None] ** 2
    likelihood = np.zeros((len(_SD), len(_COUNTS)))
    for each in np.unique(degrees[degrees > 0]).tolist():
        own = squares[degrees == each]
        constant = gammaln(half + each / 2) - gammaln(half) + half * np.log(scaled)
        likely = (half + each / 2) * np.log(scaled + own[:, None, None])
        likelihood += len(own) * constant - likely.sum(axis=0)
    return likelihood


def _sum_of_squares(runs: Floats) -> float:
    """Return the sum of squares around the mean, at least what a clock can resolve."""
    return float(((runs - runs.mean()) ** 2).sum()) + (len(runs) - 1) * CLOCK_SD**2
