"""The model's next step, inferred from noisy sums over features of private plans.

Each sender computes a sum over its workloads of unit features * clip(residual, +-clip) / clip at
the tangent of the current model (`fedperf_shared.model.linearization`,
`linear_queries.unit_feature_design`), with its own noise. If a residual is the effect of a step u
plus an error, the sums are about n H u, with H from the anchors' features and n the declared number
of workloads. The step is the posterior mean of u, under a prior of small weight changes. In
directions that are dominated by noise, the model does not change.

The linearization is accurate only near the model. So the prior is narrowed until the change of the
predictions at the anchors matches the linearization (`reliable_step`). This is a computation on
public data.

A regime has few steps. Each is linearized at its base model, with a tighter clip than the one
before. The first clip is wide, because the first model may have a large error.

Only releases are used, so nothing here costs privacy. Influence is bounded: a vector is shortened
to the length that its sender's workloads and noise explain (`step_bound`). In addition, a sender
can shorten the whole step, down to zero, with sums that fit no model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import max_norm
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.linearization import Tangent
from fedperf_shared.releases.release import InvalidReleaseError
from fedperf_shared.workflow.features import Features

Floats = NDArray[np.float64]

STEP_CLIPS = (0.5, 0.3, 0.2, 0.15, 0.15, 0.15, 0.12, 0.1)
"""Clips of consecutive steps in units of the standardised output."""

WEIGHT_SD = 0.1
"""Prior standard deviation of the weight change along one direction."""

WEIGHT_SDS = tuple(WEIGHT_SD * 0.7**times for times in range(30))
"""Candidate priors, widest first. The last ones are for sums with almost no noise."""

MAX_LINEARIZATION_ERROR = 0.6
"""Maximum relative error of the linearized change of the predictions at the anchors."""

WITHIN_CLIP = 0.75
"""Expected share of residuals below their clip."""

CAUTION = 2.0
"""Damping factor on the effect of a step. Only a part of a step is taken, since it affects other
plans differently, and the next step is linearized at the new model."""

RESIDUAL_MEAN_SQUARE = 0.3
"""Mean square of a clipped residual, relative to the clip."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedSum:
    """A sender's released linearized sum.

    Attributes:
        values: noisy sum of unit features * clipped residual / clip, float64 [directions].
        workloads: declared number of workloads.
        noise_multiplier: standard deviation of the noise in each value.
    """

    values: Floats
    workloads: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.values)):
            raise InvalidReleaseError("a linearized sum contains a value that is not finite")
        if not (0 < self.workloads < math.inf and 0 < self.noise_multiplier < math.inf):
            raise ConfigurationError(
                "workloads and noise multiplier must be positive and finite, got "
                f"{self.workloads!r} and {self.noise_multiplier!r}"
            )

    @property
    def declared(self) -> tuple[float, float]:
        """Return workloads and noise multiplier."""
        return self.workloads, self.noise_multiplier


def next_step(
    tangent: Tangent, sums: Sequence[LinearizedSum], *, clip: float, weight_sd: float = WEIGHT_SD
) -> Floats:
    """Return the step of the model [directions], zero without sums.

    Args:
        tangent: tangent of the sums.
        sums: one sum per sender.
        clip: bound on a residual, in units of the standardised output.
        weight_sd: see `WEIGHT_SD`.

    Raises:
        InvalidReleaseError: a sum has another number of directions.
        ConfigurationError: the clip is not positive.
    """
    if not 0 < clip < math.inf:
        raise ConfigurationError(f"a clip must be positive and finite, got {clip!r}")
    step = np.zeros(len(tangent.lengths))
    for gain, each in zip(_gains(tangent, sums, clip, weight_sd), sums, strict=True):
        step += gain @ _shorten(each)
    return step


def reliable_step(
    model: GGFN,
    anchors: Sequence[Features],
    tangent: Tangent,
    sums: Sequence[LinearizedSum],
    *,
    clip: float,
) -> Floats:
    """Return `next_step` under the widest prior with an accurate linearization, or zero.

    Args:
        model: model of the tangent.
        anchors: plans of `tangent.anchors`.
        tangent: tangent of the sums.
        sums: one sum per sender.
        clip: bound on a residual, in units of the standardised output.

    Raises:
        InvalidReleaseError, ConfigurationError: as `next_step`.
    """
    before = _outputs(model, anchors)
    for weight_sd in WEIGHT_SDS:
        step = next_step(tangent, sums, clip=clip, weight_sd=weight_sd)
        linear = tangent.anchors @ step
        actual = _outputs(tangent.step(model, step), anchors) - before
        if np.linalg.norm(actual - linear) <= MAX_LINEARIZATION_ERROR * np.linalg.norm(linear):
            return step
    return np.zeros(len(tangent.lengths))


def step_bound(
    tangent: Tangent, sums: Sequence[LinearizedSum], sender: int, *, clip: float
) -> float:
    """Return the maximum change of the step by one sender, as change of the weights (L2 norm).

    A step is linear in a sender's vector, whose length is at most `_max_length`. So two vectors of
    one sender differ by at most twice that. The bound is the maximum over all priors, and does not
    depend on the values sent.

    Args:
        tangent: tangent of the sums.
        sums: one sum per sender, of which only the declared parameters matter.
        sender: position in `sums`.
        clip: bound on a residual, in units of the standardised output.
    """
    gains = [_gains(tangent, sums, clip, weight_sd)[sender] for weight_sd in WEIGHT_SDS]
    max_gain = max(np.linalg.norm(gain / tangent.lengths[:, None], ord=2) for gain in gains)
    return float(2 * _max_length(sums[sender]) * max_gain)


def _outputs(model: GGFN, graphs: Sequence[Features]) -> Floats:
    """Return standardised predictions within the public bounds, [plans]."""
    return np.asarray(standardise(torch.from_numpy(predict(model, graphs))).numpy())


def _gains(
    tangent: Tangent, sums: Sequence[LinearizedSum], clip: float, weight_sd: float
) -> list[Floats]:
    """Return the gain matrix of each sender's vector, [directions, directions] each.

    It depends on the declared parameters, so it is computed once for equal parameters.
    """
    features = tangent.anchors
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = np.divide(features, norms, out=np.zeros_like(features), where=norms > 0)
    slope = CAUTION * WITHIN_CLIP / clip * unit.T @ features / len(features)
    spread = RESIDUAL_MEAN_SQUARE * unit.T @ unit / len(features)
    precision = np.diag(1 / (weight_sd * tangent.lengths) ** 2)
    weighted: dict[tuple[float, float], tuple[Floats, Floats]] = {}
    for each in sums:
        if each.values.shape != tangent.lengths.shape:
            raise InvalidReleaseError(
                f"a linearized sum has shape {each.values.shape}, expected {tangent.lengths.shape}"
            )
        if each.declared not in weighted:
            noise = each.noise_multiplier**2 * np.eye(len(slope)) + each.workloads * spread
            weight = each.workloads * np.linalg.solve(noise, slope).T
            weighted[each.declared] = weight, weight @ (each.workloads * slope)
        precision = precision + weighted[each.declared][1]
    gains = {key: np.asarray(np.linalg.solve(precision, w)) for key, (w, _) in weighted.items()}
    return [gains[each.declared] for each in sums]


def _shorten(each: LinearizedSum) -> Floats:
    length = float(np.linalg.norm(each.values))
    return each.values * min(1.0, _max_length(each) / length) if length > 0 else each.values


def _max_length(each: LinearizedSum) -> float:
    """Return the maximum length that the declared workloads and their noise explain."""
    return each.workloads + max_norm(len(each.values)) * each.noise_multiplier
