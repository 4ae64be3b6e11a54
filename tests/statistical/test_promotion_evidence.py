"""Promotion rates of noise and of real improvements, over many random federations.

Three organizations report by the real mechanism, with noise as at epsilon 1. The effect of a
candidate and the error of the reference are drawn per cell, so the true gain is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server.controllers.promotion import (
    BestErrors,
    PromotionMetrics,
    ReportedOffset,
    compute_gain,
    decide_promotion,
)
from fedperf_server.inference.corrections import DEFAULT_KERNEL, ReceivedReport
from fedperf_server.rehearsal.synthetic_batch import cell_shares
from fedperf_server.state.database import VersionStatus
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, SlotKey
from tests.fakes.corrections import correct
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise

pytestmark = pytest.mark.statistical

Floats = NDArray[np.float64]

DRAWS = 300
RATE = 0.01
"""Stated rate of false promotions, `promotion.SURE`."""

MOST = int(binom.ppf(0.999, DRAWS, RATE))
PARAMETERS = ReportParameters(3.0, 1.5)
WORKLOADS, USED = 700, 12
BEST = BestErrors(2.0, {})
IN_FORCE = PromotionMetrics(2.0, np.zeros(CELLS), {})
SMOOTH = np.linalg.cholesky(DEFAULT_KERNEL.matrix())


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Error of the reference, activity by cell, and the reports about both."""

    off: Floats
    shares: Floats
    reported: ReportedOffset
    rng: np.random.Generator

    def gain(self, step: Floats) -> float:
        """Return the true gain of a version that differs by `step`, defined as in `gain_of`."""
        truth = ReportedOffset(self.off, np.zeros((CELLS, CELLS)), self.shares)
        return compute_gain(candidate(step), IN_FORCE, truth)[0]

    def promotes(self, step: Floats) -> bool:
        """Return True if a version that differs by `step` is promoted."""
        found = decide_promotion(candidate(step), IN_FORCE, best=BEST, reported=self.reported)
        return found.status is VersionStatus.PROMOTED

    def noise(self, size: float) -> Floats:
        """Return a random step, independent of all workloads and smooth over cells."""
        return size * SMOOTH @ self.rng.standard_normal(CELLS)


def candidate(step: Floats) -> PromotionMetrics:
    """Return a candidate that equals the best one on public plans, so that reports decide."""
    return PromotionMetrics(2.0, step, {})


def drawn(seed: int, far: float) -> Federation:
    """Draw a federation whose reference is off by `far` times the public prior."""
    rng = np.random.default_rng([11, seed])
    off = far * SMOOTH @ rng.standard_normal(CELLS)
    reports, shares = [], np.zeros(CELLS)
    slot = SlotKey(ReleaseKind.RESIDUAL_REPORT, 1, 0)
    for organization in range(3):
        used = rng.choice(CELLS, USED, replace=False)
        cells = rng.choice(used, WORKLOADS)
        own = off + DEFAULT_KERNEL.organization_sd * far * rng.standard_normal(CELLS)
        residuals = own[cells] + DEFAULT_KERNEL.execution_sd * rng.standard_normal(WORKLOADS)
        shares += np.bincount(cells, minlength=CELLS) / WORKLOADS / 3
        report = residual_report(
            [
                WorkloadResiduals(np.array([cell]), np.array([residual]))
                for cell, residual in zip(cells, residuals, strict=True)
            ],
            SeededNoise(100_000 + 10 * seed + organization),
            slot=slot,
            parameters=PARAMETERS,
            reference_version=1,
        )
        reports.append(ReceivedReport(str(organization), report, PARAMETERS))
    found = correct(reports, reference_version=1)
    believed = cell_shares(reports, reference_version=1)
    return Federation(off, shares, ReportedOffset(found.mean, found.covariance, believed), rng)


@cache
def federations(far: float) -> tuple[Federation, ...]:
    """Return one federation for each draw."""
    return tuple(drawn(seed, far) for seed in range(DRAWS))


def noises(size: float, far: float) -> Iterator[tuple[bool, float]]:
    """Yield promotion and true gain of a step of noise in each federation."""
    for federation in federations(far):
        step = federation.noise(size)
        yield federation.promotes(step), federation.gain(step)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_random_candidate_without_offset_is_promoted_within_stated_rate(
    size: float,
) -> None:
    assert sum(promoted for promoted, _ in noises(size, 0.0)) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_random_candidate_that_is_worse_is_promoted_within_stated_rate(
    size: float,
) -> None:
    """Noise may improve a reference that is off by luck. Such promotions are not false."""
    found = list(noises(size, 1.0))
    assert sum(promoted and not gain > 0 for promoted, gain in found) <= MOST
    assert any(gain > 0 for _, gain in found)


@pytest.mark.slow
def test_candidate_correcting_most_of_the_offset_is_promoted_in_most_draws() -> None:
    found = [each.promotes(0.7 * each.off + each.noise(0.05)) for each in federations(1.0)]
    assert sum(found) >= 0.8 * DRAWS
