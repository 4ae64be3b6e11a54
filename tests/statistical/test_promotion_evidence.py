"""How often noise is promoted, and how often what is better: over many drawn federations.

Three organizations report by the real mechanism, with noise as at epsilon 1. What a candidate
changes and how far the reference is off are drawn per cell; its true gain is known here.
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
"""The stated rate of false promotions, `promotion.SURE`."""

MOST = int(binom.ppf(0.999, DRAWS, RATE))
PARAMETERS = ReportParameters(3.0, 1.5)
WORKLOADS, USED = 700, 12
BEST = BestErrors(2.0, {})
IN_FORCE = PromotionMetrics(2.0, np.zeros(CELLS), {})
SMOOTH = np.linalg.cholesky(DEFAULT_KERNEL.matrix())


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """How far the reference is off, where work happens, and what reports tell of both."""

    off: Floats
    shares: Floats
    reported: ReportedOffset
    rng: np.random.Generator

    def gain(self, step: Floats) -> float:
        """The true one of a version that differs by `step`, as `gain_of` estimates it."""
        truth = ReportedOffset(self.off, np.zeros((CELLS, CELLS)), self.shares)
        return compute_gain(candidate(step), IN_FORCE, truth)[0]

    def promotes(self, step: Floats) -> bool:
        """Whether a version that differs by `step` is promoted."""
        found = decide_promotion(candidate(step), IN_FORCE, best=BEST, reported=self.reported)
        return found.status is VersionStatus.PROMOTED

    def noise(self, size: float) -> Floats:
        """A step that knows nothing of anybody's workloads, smooth over cells as a model's are."""
        return size * SMOOTH @ self.rng.standard_normal(CELLS)


def candidate(step: Floats) -> PromotionMetrics:
    """As good as the best on public plans, so that reports alone decide."""
    return PromotionMetrics(2.0, step, {})


def drawn(seed: int, far: float) -> Federation:
    """A federation whose reference is off by `far` times what the public prior expects."""
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
    """One for each draw."""
    return tuple(drawn(seed, far) for seed in range(DRAWS))


def noises(size: float, far: float) -> Iterator[tuple[bool, float]]:
    """Of a step of noise in each federation: whether it is promoted, and its true gain."""
    for federation in federations(far):
        step = federation.noise(size)
        yield federation.promotes(step), federation.gain(step)


@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_noise_alone_is_promoted_at_the_stated_rate_at_most_where_nothing_is_to_be_learned(
    size: float,
) -> None:
    assert sum(promoted for promoted, _ in noises(size, 0.0)) <= MOST


@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_noise_that_makes_predictions_worse_is_promoted_at_the_stated_rate_at_most(
    size: float,
) -> None:
    """Where the reference is off, noise is better by luck at times; that is no false promotion."""
    found = list(noises(size, 1.0))
    assert sum(promoted and not gain > 0 for promoted, gain in found) <= MOST
    assert any(gain > 0 for _, gain in found)


def test_what_learned_most_of_what_the_reference_is_off_by_is_promoted_in_most_draws() -> None:
    found = [each.promotes(0.7 * each.off + each.noise(0.05)) for each in federations(1.0)]
    assert sum(found) >= 0.8 * DRAWS
