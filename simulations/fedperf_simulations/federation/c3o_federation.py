"""A C3O job as a federation: one slice of its runs is the new participant, the others are members.

All begin with the same public posterior: the physics prior and a Gaussian process conditioned on 48
published runs. The constants of the process are fitted to those runs and to the job `sort`, never
to a run time of the judged jobs. The new participant holds the configurations of its slice, and the
members hold those of the other slices. The coordinator queries points in the job's public box.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.data.c3o import C3O, JOBS, JobConfigurations
from fedperf_simulations.federation.channel import Sender
from fedperf_simulations.federation.job_kernel import (
    RECORD_VARIANCE,
    JobKernel,
    JobPoints,
    fit_kernel,
)
from fedperf_simulations.federation.point_queries import condition, marginal

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

TARGET_POINTS = 80
"""Random points of the job's box that the coordinator queries."""


@dataclass(frozen=True, slots=True, eq=False)
class JobFederation:
    """A new participant, the organizations of its job, and what is public.

    Attributes:
        number: of the new participant.
        public_prior: the public prior, over others, new participant and box.
        others: the federation's workloads.
        new_participant: the new participant's, only to judge by.
        box: scaled features of the job's public box, those that vary.
        features: the others', scaled the same.
    """

    number: int
    public_prior: GaussianPosterior
    others: JobConfigurations
    new_participant: JobConfigurations
    box: Floats
    features: Floats

    @property
    def targets(self) -> Positions:
        """Positions of the box in the posterior."""
        return np.arange(len(self.box)) + len(self.others) + len(self.new_participant)

    def organizations(self) -> list[Sender]:
        """Everybody of the federation by itself."""
        names = sorted(set(self.others.organizations.tolist()))
        return [
            Sender(np.flatnonzero(members), self.others.log_seconds[members])
            for members in (self.others.organizations == name for name in names)
        ]

    def together(self) -> Sender:
        """Everybody of the federation with one noise, as secure aggregation would give."""
        return Sender(np.arange(len(self.others)), self.others.log_seconds)

    def query_posterior(self, posterior: GaussianPosterior) -> GaussianPosterior:
        """Return the part of `posterior` about the new participant's configurations."""
        return marginal(posterior, np.arange(len(self.new_participant)) + len(self.others))


def published_kernel(data: C3O) -> JobKernel:
    """Return the kernel fitted to the job `sort` and to the published runs."""
    points = _points(data.sort).joined(_points(data.published))
    both = (data.sort, data.published)
    return fit_kernel(points, np.concatenate([each.log_seconds - each.physics for each in both]))


def job_federation(data: C3O, kernel: JobKernel, number: int, *, seed: int) -> JobFederation:
    """Return the federation of new participant `number`. `seed` draws the box's points."""
    name = data.new_participants[number]
    new_participant = data.slices.of(name)
    job = JOBS[str(new_participant.jobs[0])]
    same_job = data.slices.jobs == job.name
    others = data.slices.where(same_job & (data.slices.organizations != name))
    rng = np.random.default_rng([seed, number])
    box = job.random_features(rng, TARGET_POINTS)
    machine = new_participant.machines[:1].repeat(TARGET_POINTS)
    queries = JobPoints(new_participant.jobs[:1].repeat(TARGET_POINTS), machine, box)
    points = _points(data.published).joined(_points(others)).joined(_points(new_participant))
    physics = [
        data.published.physics,
        others.physics,
        new_participant.physics,
        np.zeros(TARGET_POINTS),
    ]
    prior = GaussianPosterior(np.concatenate(physics), kernel.covariance(points.joined(queries)))
    published = np.arange(len(data.published))
    public_prior = condition(prior, published, data.published.log_seconds, RECORD_VARIANCE)
    low, high = job.feature_box
    varies = low < high

    def scaled(features: Floats) -> Floats:
        return 2 * (features[:, varies] - low[varies]) / (high - low)[varies] - 1

    return JobFederation(
        number,
        marginal(public_prior, np.arange(len(data.published), len(prior.mean))),
        others,
        new_participant,
        scaled(box),
        scaled(others.features),
    )


def _points(configurations: JobConfigurations) -> JobPoints:
    return JobPoints(configurations.jobs, configurations.machines, configurations.features)
