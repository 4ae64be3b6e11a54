"""The linearized strategy: members send noisy sums along a few directions, the server steps.

The linear query of a round consists of directions and a clip. It depends on the base model and on
the number of steps in the regime. The coordinator stores it once, and the step is computed from the
stored query.

Influence is bounded. A sender counts as at most `MAX_SENDER_WORKLOADS` workloads, whatever it
declares. Its vector is shortened to the length that these workloads and its noise explain. So under
any prior a sender changes the step by at most `linearized_steps.step_bound` of `bounded_sums`. No
step is longer than half the sum of all senders' bounds. With sums that fit no model, a sender can
also shorten a step, down to zero. The next round then sends a new query.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_server.inference.linearized_steps import STEP_CLIPS, LinearizedSum, reliable_step
from fedperf_server.rounds.round_messages import AcceptedUpdate
from fedperf_server.rounds.round_strategy import RoundStrategy
from fedperf_server.state.validation import ReportContext, check_contents
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights, named_arrays
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN, standardise
from fedperf_shared.model.linearization import (
    Gradients,
    Tangent,
    anchor_gradients,
    principal_coefficients,
)
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery, unit_feature_design
from fedperf_shared.releases.release import Slot, Update
from fedperf_shared.workflow.features import Features, featurize

MAX_SENDER_WORKLOADS = 20_000.0
"""Maximum number of workloads as which an organization counts, since declarations are unchecked."""

REHEARSAL_WEIGHT = 1.0
"""Weight of the rows of earlier regimes, relative to all senders together."""

MISFIT = 0.01
"""Minimum assumed noise of a sum per workload. An organization's plans differ from the anchors, so
that a nearly exact sum does not match the anchors' features exactly. It also prevents a sender that
declares almost no noise from dominating the others."""


@dataclass(eq=False)
class LinearizedAvg(RoundStrategy):
    """A linearized step of GGFN from the sums of all senders.

    Attributes:
        anchors: the public plans.
        misfit: see `MISFIT`; 0 if the anchors are a sample of the organizations' plans.
        gradients: computes gradients at the anchors; a simulation may cache them.
    """

    anchors: Sequence[Features]
    misfit: float = MISFIT
    gradients: Gradients = anchor_gradients

    def question(self, current: Weights, *, steps_made: int) -> LinearizedQuery:
        """Return directions at the model's tangent, with a tighter clip after every step."""
        gradients = self.gradients(_to_model(current), self.anchors)
        return _to_query(principal_coefficients(gradients), steps_made)

    def check(self, update: Update, slot: Slot) -> None:
        """Check an update as `RoundStrategy.check`."""
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
        model = _to_model(current)
        tangent = stored_tangent(model, self.anchors, query, gradients=self.gradients)
        state = self.step(model, tangent, updates, query, rehearsed=rehearsed).state_dict()
        return [state[name].numpy() for name in ARRAY_SHAPES]

    def step(
        self,
        model: GGFN,
        tangent: Tangent,
        updates: Sequence[AcceptedUpdate],
        query: LinearizedQuery,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> GGFN:
        """Return the model that `next` returns, given its `stored_tangent`."""
        sums = bounded_sums(updates, query, misfit=self.misfit)
        if rehearsed and sums:
            workloads = REHEARSAL_WEIGHT * sum(each.workloads for each in sums)
            sums.append(
                rehearsal_sum(model, tangent, rehearsed, clip=query.clip, workloads=workloads)
            )
        step = reliable_step(model, self.anchors, tangent, sums, clip=query.clip)
        return tangent.step(model, step)


def stored_tangent(
    model: GGFN,
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


def rehearsal_sum(
    model: GGFN,
    tangent: Tangent,
    rows: Sequence[SyntheticRow],
    *,
    clip: float,
    workloads: float,
) -> LinearizedSum:
    """Return the noiseless sum of an organization whose workloads are like these rows.

    Args:
        model: model of the tangent.
        tangent: tangent of the query.
        rows: rows with the labels of their teacher.
        clip: bound on a residual of the standardised output.
        workloads: number of workloads, the weight of the rows.
    """
    graphs = [featurize(row.plan, row.cluster) for row in rows]
    labels = torch.tensor([row.log_seconds for row in rows], dtype=torch.float64)
    residuals = (
        standardise(labels) - standardise(torch.from_numpy(predict(model, graphs)))
    ).numpy()
    design = unit_feature_design(tangent.features(model, graphs), clip)
    mean = (design.directions * np.clip(residuals, -clip, clip)).mean(axis=1)
    return LinearizedSum(workloads * mean, workloads, MISFIT * workloads)


def _to_query(coefficients: NDArray[np.float32], steps_made: int) -> LinearizedQuery:
    padded = np.zeros((len(coefficients), DIRECTIONS), dtype=np.float32)
    padded[:, : coefficients.shape[1]] = coefficients
    return LinearizedQuery(STEP_CLIPS[min(steps_made, len(STEP_CLIPS) - 1)], padded)


def _used_directions(query: LinearizedQuery) -> NDArray[np.bool_]:
    return np.asarray(query.coefficients.any(axis=0))


def _to_model(arrays: Weights) -> GGFN:
    return model_from_arrays(named_arrays(arrays))
