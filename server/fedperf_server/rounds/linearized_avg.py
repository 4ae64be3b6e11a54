"""The linearized strategy: members send noisy sums along a few directions, the server steps.

The linear query of a round consists of directions and a clip. It depends on the base model and on
the number of steps in the regime. The coordinator stores it once, and the step is computed from the
stored query.

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

Only releases are used, so nothing here costs privacy. Influence is bounded. A sender counts as at
most `MAX_SENDER_WORKLOADS` workloads, for any declared number. Its vector is shortened to the
length that these workloads and its noise explain. A step is linear in that vector, so under any
prior a sender changes the step by at most twice that length times its gain. No step is longer than
half the sum of these bounds over all senders. With sums that fit no model, a sender can also
shorten a step, down to zero. The next round then sends a new query.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import max_norm
from fedperf_server.rounds.open_round import AcceptedUpdate, RoundStrategy
from fedperf_server.state.validation import ReportContext, check_contents
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights, named_arrays, standardise
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.linearization import (
    Gradients,
    Tangent,
    anchor_gradients,
    principal_coefficients,
)
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery, unit_feature_design
from fedperf_shared.releases.release import InvalidReleaseError, Slot, Update
from fedperf_shared.workflow.features import Features, featurize

Floats = NDArray[np.float64]

# Clips of consecutive steps in units of the standardised output.
STEP_CLIPS = (0.5, 0.3, 0.2, 0.15, 0.15, 0.15, 0.12, 0.1)

WEIGHT_SD = 0.1  # prior standard deviation of the weight change along one direction
# Candidate priors, widest first. The last ones are for sums with almost no noise.
WEIGHT_SDS = tuple(WEIGHT_SD * 0.7**times for times in range(30))

# Maximum relative error of the linearized change of the predictions at the anchors.
MAX_LINEARIZATION_ERROR = 0.6

WITHIN_CLIP = 0.75  # expected share of residuals below their clip
# Damping factor on the effect of a step. Only a part of a step is taken, since it affects other
# plans differently, and the next step is linearized at the new model.
CAUTION = 2.0

RESIDUAL_MEAN_SQUARE = 0.3  # mean square of a clipped residual, relative to the clip


# Maximum number of workloads as which an organization counts, since declarations are unchecked.
MAX_SENDER_WORKLOADS = 20_000.0

REHEARSAL_WEIGHT = 1.0  # weight of the rows of earlier regimes, relative to all senders together
# Minimum assumed noise of a sum per workload. An organization's plans differ from the anchors, so
# that a nearly exact sum does not match the anchors' features exactly. It also prevents a sender
# that declares almost no noise from dominating the others.
MISFIT = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class LinearizedSum:
    """A sender's released linearized sum."""

    values: Floats  # noisy sum of unit features * clipped residual / clip, float64 [directions]
    workloads: float  # declared number of workloads
    noise_multiplier: float  # standard deviation of the noise in each value

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
    model: Weights,
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


def _outputs(model: Weights, graphs: Sequence[Features]) -> Floats:
    """Return standardised predictions within the public bounds, [plans]."""
    return standardise(GgfnArrays.from_arrays(named_arrays(model)).log_seconds(graphs))


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


@dataclass(eq=False)
class LinearizedAvg(RoundStrategy):
    """A linearized step of GGFN from the sums of all senders."""

    anchors: Sequence[Features]  # the public plans
    # See `MISFIT`; 0 if the anchors are a sample of the organizations' plans.
    misfit: float = MISFIT
    # Computes gradients at the anchors; a simulation may cache them.
    gradients: Gradients = anchor_gradients

    def design_query(self, current: Weights, *, steps_made: int) -> LinearizedQuery:
        """Return directions at the model's tangent, with a tighter clip after every step."""
        coefficients = principal_coefficients(self.gradients(current, self.anchors))
        padded = np.zeros((len(coefficients), DIRECTIONS), dtype=np.float32)
        padded[:, : coefficients.shape[1]] = coefficients
        return LinearizedQuery(STEP_CLIPS[min(steps_made, len(STEP_CLIPS) - 1)], padded)

    def check(self, update: Update, slot: Slot) -> None:
        """Check the contents of an update."""
        check_contents(update, slot, ReportContext(), kind=TANGENT_UPDATE)

    def next(
        self,
        current: Weights,
        updates: Sequence[AcceptedUpdate],
        query: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """Return the next model as `RoundStrategy.next`. The rows count as a sender without noise.

        Raises:
            InvalidInputError: the round has no linear query.
        """
        if query is None:
            raise InvalidInputError("a linearized round needs a linear query")
        tangent = stored_tangent(current, self.anchors, query, gradients=self.gradients)
        sums = bounded_sums(updates, query, misfit=self.misfit)
        if rehearsed and sums:
            workloads = REHEARSAL_WEIGHT * sum(each.workloads for each in sums)
            sums.append(_rehearsal_sum(current, tangent, rehearsed, query.clip, workloads))
        step = reliable_step(current, self.anchors, tangent, sums, clip=query.clip)
        return tangent.step(current, step)


def stored_tangent(
    model: Weights,
    anchors: Sequence[Features],
    query: LinearizedQuery,
    *,
    gradients: Gradients = anchor_gradients,
) -> Tangent:
    """Return the tangent of the query, without unused directions."""
    coefficients = query.coefficients[:, _used_directions(query)]
    return Tangent.build(gradients(model, anchors), coefficients)


def bounded_sums(
    updates: Sequence[AcceptedUpdate], query: LinearizedQuery, *, misfit: float = MISFIT
) -> list[LinearizedSum]:
    """Return the sums in the used directions, each scaled to at most `MAX_SENDER_WORKLOADS`."""
    used, sums = _used_directions(query), []
    for each in updates:
        update = each.update
        parameters = TANGENT_UPDATE.as_parameters(each.slot.parameters)
        workloads = min(parameters.nominal_workloads, MAX_SENDER_WORKLOADS)
        share = workloads / parameters.nominal_workloads
        sums.append(
            LinearizedSum(
                share * update.natural()[used],
                workloads,
                max(share * parameters.noise_multiplier, misfit * workloads),
            )
        )
    return sums


def _rehearsal_sum(
    model: Weights, tangent: Tangent, rows: Sequence[SyntheticRow], clip: float, workloads: float
) -> LinearizedSum:
    """Return the noiseless sum of an organization whose workloads are like these rows.

    The rows have the labels of their teacher. `workloads` is their weight.
    """
    graphs = [featurize(row.plan, row.cluster) for row in rows]
    labels = np.array([row.log_seconds for row in rows])
    residuals = standardise(labels) - _outputs(model, graphs)
    design = unit_feature_design(tangent.features(model, graphs), clip)
    mean = (design.directions * np.clip(residuals, -clip, clip)).mean(axis=1)
    return LinearizedSum(workloads * mean, workloads, MISFIT * workloads)


def _used_directions(query: LinearizedQuery) -> NDArray[np.bool_]:
    return np.asarray(query.coefficients.any(axis=0))
