"""The prior covariance of tabular jobs: the correlation of configurations.

Additive kernel over scaled features (log slots, log megabytes, up to three parameters of the job)
with terms for the same job and the same machine type. Its thirteen numbers are public: they are
fitted by marginal likelihood to public runs, never to releases of organizations.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedperf_shared.errors import ConfigurationError, InvalidInputError

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]

RECORD_VARIANCE = 0.003
"""(log seconds)^2 by which the median of some repeats differs from what the job takes."""

HYPERPRIOR_SD = 1.0
"""Spread of the kernel's numbers around the defaults, in logs."""

FIT_STEPS = 20

MIN_FEATURES = 2
"""Log slots and log megabytes. Parameters of the job may follow."""


@dataclass(frozen=True, slots=True, eq=False)
class JobPoints:
    """Configurations of jobs.

    Attributes:
        jobs: name of the job, [points].
        machines: machine type, [points].
        features: scaled into [-1, 1]; log slots, log megabytes, parameters; [points, features].
    """

    jobs: Texts
    machines: Texts
    features: Floats

    def __post_init__(self) -> None:
        points = len(self.jobs)
        features = self.features.shape[-1]
        if self.machines.shape != (points,) or self.features.shape != (points, features):
            raise InvalidInputError("points have one job, one machine and one row of features")
        if not features >= MIN_FEATURES:
            raise InvalidInputError(f"points have at least {MIN_FEATURES} features, not {features}")
        if not np.all(np.isfinite(self.features)):
            raise InvalidInputError("a feature is not finite")

    def __len__(self) -> int:
        return len(self.jobs)

    def joined(self, other: "JobPoints") -> "JobPoints":
        """These points, then the others."""
        return JobPoints(
            np.concatenate([self.jobs, other.jobs]),
            np.concatenate([self.machines, other.machines]),
            np.concatenate([self.features, other.features]),
        )


@dataclass(frozen=True, slots=True)
class JobKernel:
    """Variances in (log seconds)^2, of features that span [-1, 1], and two lengths.

    Attributes:
        level: one offset for everything.
        slots: slope over log slots, everywhere the same.
        machine: per machine type.
        job_and_machine: per pair.
        job: per job.
        job_slots: slope over log slots, per job.
        job_size: slope over log megabytes, per job.
        job_parameters: slopes over the parameters, per job.
        single: smooth function of each feature, per job.
        pair: smooth function of each pair of features, per job.
        joint: smooth function of all features, per job.
        length: of the smooth functions of one or two features.
        joint_length: of the smooth function of all.
    """

    level: float = 0.5
    slots: float = 0.1
    machine: float = 0.02
    job_and_machine: float = 0.02
    job: float = 0.5
    job_slots: float = 0.1
    job_size: float = 0.1
    job_parameters: float = 0.1
    single: float = 0.1
    pair: float = 0.03
    joint: float = 0.03
    length: float = 1.0
    joint_length: float = 1.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 < value < math.inf:
                raise ConfigurationError(f"kernel {each.name} must be positive, got {value!r}")

    def covariance(self, points: JobPoints) -> Floats:
        """Prior covariance, [points, points]."""
        return _covariance_and_slopes(self.logs(), points)[0]

    def logs(self) -> Floats:
        """Logs of the thirteen numbers, in their order."""
        return np.log([getattr(self, each.name) for each in fields(self)])


def fit_kernel(
    points: JobPoints, residuals: Floats, *, start: JobKernel | None = None
) -> JobKernel:
    """Return the kernel under which published residuals are most likely, near `start`.

    Args:
        points: of the published runs.
        residuals: log measured seconds minus the prior mean, [points].
        start: centre of the log-normal prior over the numbers; the defaults where None.
    """
    centre = (start or JobKernel()).logs()
    noise = RECORD_VARIANCE * np.eye(len(points))

    def loss(logs: Floats) -> tuple[float, Floats]:
        covariance, slopes = _covariance_and_slopes(logs, points)
        inverse = np.linalg.inv(covariance + noise)
        _, log_determinant = np.linalg.slogdet(covariance + noise)
        weights = inverse @ residuals
        away = (logs - centre) / HYPERPRIOR_SD
        value = 0.5 * (residuals @ weights + log_determinant + away @ away)
        curvature = inverse - np.outer(weights, weights)
        gradient = 0.5 * np.array([np.sum(curvature * each) for each in slopes])
        return float(value), gradient + away / HYPERPRIOR_SD

    result = minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": FIT_STEPS})
    return JobKernel(*(float(each) for each in np.exp(result.x)))


def _covariance_and_slopes(logs: Floats, points: JobPoints) -> tuple[Floats, list[Floats]]:
    """Return the covariance, and its derivative by the log of each number of the kernel."""
    *variances, length, joint_length = (float(each) for each in np.exp(logs))
    same_job = (points.jobs[:, None] == points.jobs).astype(np.float64)
    same_machine = (points.machines[:, None] == points.machines).astype(np.float64)
    slots, size, parameters = (points.features[:, part] for part in (0, 1, slice(2, None)))
    apart = (points.features[:, None, :] - points.features[None, :, :]) ** 2
    near = np.exp(-apart / (2 * length**2))
    single, squares = near.sum(axis=2), (near**2).sum(axis=2)
    joint = np.exp(-apart.sum(axis=2) / (2 * joint_length**2))
    parts = [
        np.ones_like(same_job),
        np.outer(slots, slots),
        same_machine,
        same_job * same_machine,
        same_job,
        same_job * np.outer(slots, slots),
        same_job * np.outer(size, size),
        same_job * (parameters @ parameters.T),
        same_job * single,
        same_job * (single**2 - squares) / 2,
        same_job * joint,
    ]
    slopes = [variance * part for variance, part in zip(variances, parts, strict=True)]
    covariance = np.sum(slopes, axis=0)
    steep = near * apart / length**2
    by_length = variances[8] * steep.sum(axis=2) + variances[9] * (
        single * steep.sum(axis=2) - (near * steep).sum(axis=2)
    )
    by_joint_length = variances[10] * joint * apart.sum(axis=2) / joint_length**2
    return covariance, [*slopes, same_job * by_length, same_job * by_joint_length]
