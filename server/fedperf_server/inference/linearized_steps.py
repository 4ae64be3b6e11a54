"""The model's next step, inferred from noisy sums over features of private plans.

Each sender adds up, over its workloads, unit features * clip(residual, +-clip) / clip at
the tangent of the current model (`fedperf_shared.model.linearization`,
`directions.unit_feature_design`), with noise of its own. Were a residual the effect
of a step u plus chance, the sums would be about n H u: H from the anchors' features, n the
declared number of workloads. The step is the posterior mean of u, under a prior that
weights change little: where noise drowns a direction, the model stays as it is.

A tangent tells what a step does only near the model. So the prior is narrowed until the
model, once stepped, does at the anchors about what the tangent said (`trusted_step`);
that is public arithmetic and asks nobody anything.

The steps of an epoch are few. Each is at the tangent of the model that it starts from, with a
tighter clip than the one before: wide first, because a start may be far off.

Only releases are read, so nothing here costs privacy. Influence is bounded: a vector counts
with at most the length that its sender's workloads and noise explain (`step_bound`). Beyond
that a sender can make everybody's step shorter, down to none, by sums that no model follows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import longest
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.linearization import Tangent
from fedperf_shared.releases.release import InvalidReleaseError
from fedperf_shared.workflow.features import Features

Floats = NDArray[np.float64]

STEP_CLIPS = (0.5, 0.3, 0.2, 0.15, 0.15, 0.15, 0.12, 0.1)
"""Clips of the stages in units of the standardised output; as many steps make a training."""

WEIGHT_SD = 0.1
"""How far one step may be expected to move the weights along one direction."""

WEIGHT_SDS = tuple(WEIGHT_SD * 0.7**times for times in range(30))
"""The priors that are tried, widest first; the last ones hold back sums that hardly have noise."""

MOST_MISTOLD = 0.6
"""What a step does at the anchors may differ by so much, relative, from what the tangent told."""

WITHIN_CLIP = 0.75
"""Share of residuals that their clip is expected not to reach."""

CAUTION = 2.0
"""Sums count as if anchors felt every step so much more than they do: only a part of a step is
taken, since other plans feel it otherwise, and the next step is asked for where it led."""

CHANCE = 0.3
"""Mean square of a residual after the clip, relative to it."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedSum:
    """One sender's released sum at a tangent.

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

    @property
    def declared(self) -> tuple[float, float]:
        """Workloads and noise multiplier."""
        return self.workloads, self.noise_multiplier


def next_step(
    tangent: Tangent, sums: Sequence[LinearizedSum], *, clip: float, weight_sd: float = WEIGHT_SD
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


def trusted_step(
    model: GGFN,
    anchors: Sequence[Features],
    tangent: Tangent,
    sums: Sequence[LinearizedSum],
    *,
    clip: float,
) -> Floats:
    """The `next_step` under the widest prior whose step the tangent tells well; else none.

    Args:
        model: whose tangent it is.
        anchors: the plans of `tangent.anchors`.
        tangent: at which the sums were taken.
        sums: one of each sender.
        clip: bound on a residual, in units of the standardised output.

    Raises:
        InvalidReleaseError, ConfigurationError: as of `next_step`.
    """
    before = _outputs(model, anchors)
    for weight_sd in WEIGHT_SDS:
        step = next_step(tangent, sums, clip=clip, weight_sd=weight_sd)
        told = tangent.anchors @ step
        done = _outputs(tangent.stepped(model, step), anchors) - before
        if np.linalg.norm(done - told) <= MOST_MISTOLD * np.linalg.norm(told):
            return step
    return np.zeros(len(tangent.lengths))


def step_bound(
    tangent: Tangent, sums: Sequence[LinearizedSum], sender: int, *, clip: float
) -> float:
    """The most that one sender can change the step, as change of the weights (L2 norm).

    A step is linear in a sender's vector, which counts with at most `_length`; so two vectors of
    one sender differ by twice that at most. The bound is the largest over all priors, and does
    not depend on what anybody sent.

    Args:
        tangent: at which the sums were taken.
        sums: one of each sender; their declared workloads and noise count.
        sender: position in `sums`.
        clip: bound on a residual, in units of the standardised output.
    """
    gains = [_gains(tangent, sums, clip, weight_sd)[sender] for weight_sd in WEIGHT_SDS]
    reach = max(np.linalg.norm(gain / tangent.lengths[:, None], ord=2) for gain in gains)
    return float(2 * _length(sums[sender]) * reach)


def _outputs(model: GGFN, graphs: Sequence[Features]) -> Floats:
    """Standardised predictions, within the public bounds, [plans]."""
    return np.asarray(standardise(torch.from_numpy(predict(model, graphs))).numpy())


def _gains(
    tangent: Tangent, sums: Sequence[LinearizedSum], clip: float, weight_sd: float
) -> list[Floats]:
    """What each sender's vector is multiplied with, [directions, directions] each.

    It follows from what a sender declared, so it is computed once for all who declared the same.
    """
    features = tangent.anchors
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = np.divide(features, norms, out=np.zeros_like(features), where=norms > 0)
    slope = CAUTION * WITHIN_CLIP / clip * unit.T @ features / len(features)
    spread = CHANCE * unit.T @ unit / len(features)
    precision = np.diag(1 / (weight_sd * tangent.lengths) ** 2)
    weighted: dict[tuple[float, float], tuple[Floats, Floats]] = {}
    for each in sums:
        if each.values.shape != tangent.lengths.shape:
            raise InvalidReleaseError(
                f"a sum of {each.values.shape} at a tangent of {tangent.lengths.shape} directions"
            )
        if each.declared not in weighted:
            noise = each.noise_multiplier**2 * np.eye(len(slope)) + each.workloads * spread
            weight = each.workloads * np.linalg.solve(noise, slope).T
            weighted[each.declared] = weight, weight @ (each.workloads * slope)
        precision = precision + weighted[each.declared][1]
    gains = {of: np.asarray(np.linalg.solve(precision, own)) for of, (own, _) in weighted.items()}
    return [gains[each.declared] for each in sums]


def _believed(each: LinearizedSum) -> Floats:
    length = float(np.linalg.norm(each.values))
    return each.values * min(1.0, _length(each) / length) if length > 0 else each.values


def _length(each: LinearizedSum) -> float:
    """Longest vector that the declared workloads and their noise explain."""
    return each.workloads + longest(len(each.values)) * each.noise_multiplier
