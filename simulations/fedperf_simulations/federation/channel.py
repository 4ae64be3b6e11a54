"""Directed reports between organizations and a coordinator, by the code of client and server.

Only an organization's `DirectedReport`s reach the coordinator. The channel works on any list of
public points with a Gaussian posterior (mean and covariance) about them. The organizations' points
and the points that the design is for are positions in that posterior.

There are two policies. By `public_configurations` the coordinator has the organizations' points and
designs directions for them. By `private_configurations` it has only the job's box.

Noise is seeded, so an experiment can be repeated.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_client.contributions.mechanisms import (
    GRID_EXPONENT,
    NoiseSource,
    PointResiduals,
    noise_steps,
    sum_points,
)
from fedperf_client.release.accountant import (
    PrivacyBudget,
    calibrate,
    epsilon,
    replace_one_epsilon,
    to_event,
)
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.cell_directions import STAGES, Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.releases.linear_queries import Design
from fedperf_shared.releases.release import DirectedReport, ReleaseKind, ReportParameters, SlotKey
from fedperf_simulations.federation.job_kernel import RECORD_VARIANCE
from fedperf_simulations.federation.latent_points import (
    HiddenStage,
    PublicBox,
    clip_over,
    feature_design,
    learn_hidden,
)
from fedperf_simulations.federation.point_queries import (
    DIRECTIONS,
    design_query,
    infer,
    stage_noise,
)

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

DELTA = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Sender:
    """A sender that adds up workloads: an organization, or several by secure aggregation.

    Attributes:
        positions: in the posterior, of the point of each workload, [workloads].
        log_seconds: what each took, [workloads]; only reports on it leave.
        lies: None for an honest sender; else it sends so many times its noise's scale,
            with random signs.
    """

    positions: Positions
    log_seconds: Floats
    lies: float | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """The public parameters of all stages.

    Attributes:
        noise_multiplier: one Gaussian of that would cost what all stages cost.
        stages: shares of the budget and clips.
        directions: of each sender in each stage.
        record_variance: of a record around its point, (log seconds)^2.
    """

    noise_multiplier: float
    stages: tuple[Stage, ...] = STAGES
    directions: int = DIRECTIONS
    record_variance: float = RECORD_VARIANCE

    def spent(self) -> tuple[float, float]:
        """Epsilon of all stages at DELTA: add or remove a workload, and replace one."""
        events = [
            to_event(ReportParameters(stage_noise(stage, self.noise_multiplier), 1.0))
            for stage in self.stages
        ]
        return epsilon(events, DELTA), replace_one_epsilon(events, DELTA)


def noise_for(promised: float, *, replace_one: bool = False, delta: float = DELTA) -> float:
    """Return the noise multiplier that meets epsilon `promised`.

    Replacing a workload moves a report by 2 where adding or removing one moves it by 1, so
    the same promise takes exactly twice the noise.
    """
    budget = PrivacyBudget(promised, delta)
    calibrated = calibrate(lambda noise: [to_event(ReportParameters(noise, 1.0))], budget)
    return 2 * calibrated if replace_one else calibrated


def public_configurations(
    posterior: GaussianPosterior,
    senders: Sequence[Sender],
    targets: Positions,
    *,
    channel: Channel,
    noise: SeededNoise,
) -> GaussianPosterior:
    """Return the posterior after all stages. Points are public, run times are secret.

    Args:
        posterior: the public prior, over the points of senders and targets and any others.
        senders: each with noise of its own.
        targets: positions for which the design is optimized.
        channel: public parameters.
        noise: of everybody; independent in every draw.
    """
    for number, stage in enumerate(channel.stages):
        noise_multiplier = stage_noise(stage, channel.noise_multiplier)
        query = design_query(
            posterior,
            [each.positions for each in senders],
            targets,
            kappa=stage.kappa,
            noise_multiplier=noise_multiplier,
            record_variance=channel.record_variance,
            directions=channel.directions,
        )
        reports = []
        for sender, design in zip(senders, query.designs, strict=True):
            report = directed_report(
                _residuals(posterior, sender),
                design,
                noise,
                slot=_slot(number),
                noise_multiplier=noise_multiplier,
                design_version=number,
            )
            reports.append(_noisy_report(sender, report, noise_multiplier, noise))
        posterior = infer(
            posterior,
            query,
            reports,
            noise_multiplier=noise_multiplier,
            record_variance=channel.record_variance,
        ).posterior
    return posterior


def private_configurations(
    posterior: GaussianPosterior,
    senders: Sequence[Sender],
    box: PublicBox,
    *,
    features: Sequence[Floats],
    declared: Sequence[float],
    offset_share: float,
    channel: Channel,
    noise: SeededNoise,
) -> GaussianPosterior:
    """Return the posterior after all stages. The points of the senders are secret as well.

    Args:
        posterior: over the box, and over the senders' points, which the coordinator's side never
            uses; the senders take the mean there, which follows from the posterior.
        senders: each with noise of its own.
        box: public points of the job, which are also the queries.
        features: of each sender's workloads, scaled as the box's, [workloads, features].
        declared: number of workloads that each sender declared.
        offset_share: of a report's squared norm, for the places of the workloads.
        channel: public parameters.
        noise: of everybody; independent in every draw.
    """
    reports: list[list[tuple[HiddenStage, DirectedReport]]] = [[] for _ in senders]
    for number, stage in enumerate(channel.stages):
        noise_multiplier = stage_noise(stage, channel.noise_multiplier)
        clip = clip_over(posterior, box, kappa=stage.kappa, record_variance=channel.record_variance)
        hidden = HiddenStage(clip, offset_share, noise_multiplier)
        for sender, places, sender_reports in zip(senders, features, reports, strict=True):
            report = directed_report(
                _residuals(posterior, sender),
                feature_design(places, clip, offset_share=offset_share),
                noise,
                slot=_slot(number),
                noise_multiplier=noise_multiplier,
                design_version=number,
            )
            sender_reports.append((hidden, _noisy_report(sender, report, noise_multiplier, noise)))
        posterior = learn_hidden(
            posterior, box, reports, declared, record_variance=channel.record_variance
        ).posterior
    return posterior


def directed_report(
    workloads: Iterable[PointResiduals],
    design: Design,
    noise: NoiseSource,
    *,
    slot: SlotKey,
    noise_multiplier: float,
    design_version: int,
) -> DirectedReport:
    """Return the report of `slot` over any design, a function of its arguments and of the noise.

    Args:
        workloads: each workload once.
        design: the linear query; its norm rule holds.
        noise: samples the one discrete Gaussian.
        slot: the slot that it fills.
        noise_multiplier: stddev of the noise / sensitivity to one workload more or less.
        design_version: the coordinator's number of the design.

    Raises:
        ConfigurationError: the noise is too small or too large for the grid.
    """
    samples = noise.discrete_gaussian(design.values, noise_steps(noise_multiplier))
    values = sum_points(workloads, design) + samples
    return DirectedReport(slot, design_version, GRID_EXPONENT, values)


def _residuals(posterior: GaussianPosterior, sender: Sender) -> list[PointResiduals]:
    """Computed at home: every workload of the sender, at its place in the sender's design."""
    residuals = sender.log_seconds - posterior.mean[sender.positions]
    return [
        PointResiduals(np.array([place]), np.array([residual]))
        for place, residual in enumerate(residuals)
    ]


def _noisy_report(
    sender: Sender, report: DirectedReport, noise_multiplier: float, noise: SeededNoise
) -> DirectedReport:
    if sender.lies is None:
        return report
    size = sender.lies * math.ldexp(noise_multiplier, -report.grid_exponent)
    signs = np.sign(noise.gaussian(len(report.values))).astype(np.int64)
    return DirectedReport(
        report.slot, report.design_version, report.grid_exponent, signs * int(size)
    )


def _slot(number: int) -> SlotKey:
    return SlotKey(ReleaseKind.RESIDUAL_REPORT, number, 0)
