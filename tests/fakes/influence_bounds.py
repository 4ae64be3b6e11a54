"""Bounds on the influence of one organization, as stated in the docstrings of `inference`."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.corrections import DEFAULT_KERNEL, Kernel
from fedperf_server.inference.gaussian_process import (
    GaussianPosterior,
    Observation,
    _covariance,
    max_norm,
    posterior_gain,
)
from fedperf_server.rounds.linearized_avg import (
    WEIGHT_SDS,
    LinearizedSum,
    _gains,
    _max_length,
)
from fedperf_shared.model.linearization import Tangent

Floats = NDArray[np.float64]


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


def influence_bounds(
    prior: GaussianPosterior, observations: Sequence[Observation], sender: int, *, scale: float
) -> Floats:
    """Return the maximum change of the mean by one sender in one update, log seconds, [points].

    The mean is linear in the sender's vector v, which has |L^-1 v| <= `max_norm(count)`, with L L'
    its covariance under the prior alone. So two vectors differ by at most twice that, and the
    mean at point x by at most 2 * max_norm * |gain(x) L|. The bound does not depend on the
    values sent at a given scale. If false values change the scale too, the sum over all
    senders at either scale bounds the mean.
    """
    gain, _ = posterior_gain(prior, observations, scale)
    first = sum(len(each.values) for each in observations[:sender])
    own = observations[sender]
    root = np.linalg.cholesky(_covariance(prior, own, scale))
    change = gain[:, first : first + len(own.values)] @ root
    return np.asarray(2 * max_norm(len(own.values)) * np.linalg.norm(change, axis=1))


def influence_bound(clip: float, others: int, *, kernel: Kernel = DEFAULT_KERNEL) -> float:
    """Return the maximum change by one organization, root mean square over the cells.

    See the docstring of `fedperf_server.inference.corrections`. `clip` is the widest clip,
    including the adversary's.
    """
    bound = 2 * (clip + kernel.organization_sd) / others if others > 0 else math.inf
    return min(bound, 2 * clip)
