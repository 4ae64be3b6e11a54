"""What the model's next step is, from noisy sums over features of plans that nobody shows.

Each sender adds up, over its workloads, unit features * clip(residual, +-clip) / clip at
the tangent of the current model (`fedperf_shared.model.tangent`,
`directions.unit_feature_design`), with noise of its own. Were a residual the effect
of a step u plus chance, the sums would be about n H u: H from the anchors' features, n the
declared number of workloads. The step is the posterior mean of u, under a prior that
weights change little: where noise drowns a direction, the model stays as it is.

Few steps, each at the tangent of the model it starts from, with a tighter clip than the
one before: wide first, because a start may be far off.

Post-processing of releases only: costs no privacy. Influence is bounded: a vector counts
with at most the length that its sender's workloads and noise explain (`step_bound`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.gaussian_process import longest
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.tangent import Tangent
from fedperf_shared.release import InvalidReleaseError

Floats = NDArray[np.float64]

STEP_CLIPS = (0.5, 0.3, 0.2, 0.15, 0.15, 0.15)
"""Clips of the stages in units of the standardised output; as many steps make a training."""

WEIGHT_SD = 0.1
"""How far one step may be expected to move the weights along one direction."""

WITHIN_CLIP = 0.75
"""Share of residuals that their clip is expected not to reach."""

CHANCE = 0.3
"""Mean square of a residual after the clip, relative to it."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentSum:
    """What one sender released at a tangent.

    Attributes:
        values: noisy sum of unit features * clipped residual / clip, float64 [directions].
        workloads: declared number of workloads in it.
        noise_multiplier: stddev of the noise in each value.
    """

    values: Floats
    workloads: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.values)):
            raise InvalidReleaseError("a sum at a tangent holds a number that is not finite")
        if not (0 < self.workloads < math.inf and 0 < self.noise_multiplier < math.inf):
            raise ConfigurationError(
                "workloads and noise multiplier must be positive and finite, got "
                f"{self.workloads!r} and {self.noise_multiplier!r}"
            )


def next_step(
    tangent: Tangent, sums: Sequence[TangentSum], *, clip: float, weight_sd: float = WEIGHT_SD
) -> Floats:
    """The step of the model [directions]; no step at all without sums.

    Args:
        tangent: at which the sums were taken.
        sums: one of each sender.
        clip: bound on a residual, in units of the standardised output.
        weight_sd: see `WEIGHT_SD`.

    Raises:
        InvalidReleaseError: a sum of other directions.
        ConfigurationError: the clip is not positive.
    """
    if not 0 < clip < math.inf:
        raise ConfigurationError(f"a clip must be positive and finite, got {clip!r}")
    step = np.zeros(len(tangent.lengths))
    for gain, each in zip(_gains(tangent, sums, clip, weight_sd), sums, strict=True):
        step += gain @ _believed(each)
    return step


def step_bound(
    tangent: Tangent,
    sums: Sequence[TangentSum],
    sender: int,
    *,
    clip: float,
    weight_sd: float = WEIGHT_SD,
) -> float:
    """Most that one sender can change the step, as length of the change of the weights.

    The step is linear in a sender's vector, which counts with at most `_length`; two vectors
    differ by twice that at most. Independent of what anybody sent.
    """
    gain = _gains(tangent, sums, clip, weight_sd)[sender]
    reach = np.linalg.norm(gain / tangent.lengths[:, None], ord=2)
    return float(2 * _length(sums[sender]) * reach)


def _gains(
    tangent: Tangent, sums: Sequence[TangentSum], clip: float, weight_sd: float
) -> list[Floats]:
    """What each sender's vector is multiplied with, [directions, directions] each."""
    features = tangent.anchors
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = np.divide(features, norms, out=np.zeros_like(features), where=norms > 0)
    slope = WITHIN_CLIP / clip * unit.T @ features / len(features)
    spread = CHANCE * unit.T @ unit / len(features)
    precision = np.diag(1 / (weight_sd * tangent.lengths) ** 2)
    weighted = []
    for each in sums:
        if each.values.shape != tangent.lengths.shape:
            raise InvalidReleaseError(
                f"a sum of {each.values.shape} at a tangent of {tangent.lengths.shape} directions"
            )
        noise = each.noise_multiplier**2 * np.eye(len(slope)) + each.workloads * spread
        weighted.append(each.workloads * np.linalg.solve(noise, slope).T)
        precision = precision + weighted[-1] @ (each.workloads * slope)
    return [np.asarray(np.linalg.solve(precision, each)) for each in weighted]


def _believed(each: TangentSum) -> Floats:
    length = float(np.linalg.norm(each.values))
    return each.values * min(1.0, _length(each) / length) if length > 0 else each.values


def _length(each: TangentSum) -> float:
    """Longest vector that the declared workloads and their noise explain."""
    return each.workloads + longest(len(each.values)) * each.noise_multiplier
