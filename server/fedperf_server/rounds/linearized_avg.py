"""The strategy at the tangent: members send noisy sums along a few directions, we make the step.

The question of a round holds the directions and the clip. It follows from the base model and from
the number of steps that the epoch has made. It is made once and stored by the coordinator, and
the step is computed from what was stored.

Influence is bounded. A sender counts as at most `MOST_WORKLOADS` workloads, whatever it declares.
Its vector counts with at most the length that these workloads and its noise explain. So under any
prior a sender changes the step by at most `tangent_steps.step_bound` of `believed_sums`. No step
is longer than half the sum of all senders' bounds. By sums that no model follows, a sender can
also make a step shorter, down to none; the next round then asks anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedperf_server.inference.linearized_steps import STEP_CLIPS, LinearizedSum, trusted_step
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
    coefficients_at,
    gradients_at,
    tangent_of,
)
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery, unit_feature_design
from fedperf_shared.releases.release import Slot, Update
from fedperf_shared.workflow.features import Features, featurize

MOST_WORKLOADS = 20_000.0
"""As so many workloads an organization counts at most; what it declares is not checked."""

REHEARSAL_WEIGHT = 1.0
"""Of the rows of earlier epochs, relative to all senders together."""

MISFIT = 0.01
"""Least noise that a sum is believed to have, per workload: an organization's plans are not the
anchors, so that what little noise leaves exact is not what the anchors' features make of it;
and who declares no noise to speak of shall not drown the others."""


@dataclass(eq=False)
class LinearizedAvg(RoundStrategy):
    """A step of GGFN at the tangent that was asked about, from the sum of all senders.

    Attributes:
        anchors: the public plans.
        misfit: see `MISFIT`; 0 where the anchors are a sample of what organizations run.
        gradients: at the anchors; a process that plays members as well may take them once.
    """

    anchors: Sequence[Features]
    misfit: float = MISFIT
    gradients: Gradients = gradients_at

    def question(self, current: Weights, *, steps_made: int) -> LinearizedQuery:
        """Directions at the model's tangent, and a tighter clip with every step."""
        found = coefficients_at(_model(current), self.anchors, gradients=self.gradients)
        return _question(found, steps_made)

    def check(self, update: Update, slot: Slot) -> None:
        """As `RoundStrategy.check`."""
        check_contents(update, slot, ReportContext(), kind=TANGENT_UPDATE)

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """As `RoundStrategy.next`; the rows count like one more sender, without noise.

        Raises:
            InvalidInputError: the round has no question.
        """
        if question is None:
            raise InvalidInputError("a round at the tangent has a question")
        model = _model(current)
        tangent = stored_tangent(model, self.anchors, question, gradients=self.gradients)
        state = self.stepped(model, tangent, answers, question, rehearsed=rehearsed).state_dict()
        return [state[name].numpy() for name in ARRAY_SHAPES]

    def stepped(
        self,
        model: GGFN,
        tangent: Tangent,
        answers: Sequence[AcceptedUpdate],
        question: LinearizedQuery,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> GGFN:
        """The model that `next` makes of `model`, where its `stored_tangent` is at hand."""
        sums = believed_sums(answers, question, misfit=self.misfit)
        if rehearsed and sums:
            workloads = REHEARSAL_WEIGHT * sum(each.workloads for each in sums)
            sums.append(
                rehearsed_sum(model, tangent, rehearsed, clip=question.clip, workloads=workloads)
            )
        step = trusted_step(model, self.anchors, tangent, sums, clip=question.clip)
        return tangent.stepped(model, step)


def stored_tangent(
    model: GGFN,
    anchors: Sequence[Features],
    question: LinearizedQuery,
    *,
    gradients: Gradients = gradients_at,
) -> Tangent:
    """The tangent that was asked about, without the directions that were not used."""
    coefficients = question.coefficients[:, _used(question)]
    return tangent_of(model, anchors, coefficients, gradients=gradients)


def believed_sums(
    answers: Sequence[AcceptedUpdate], question: LinearizedQuery, *, misfit: float = MISFIT
) -> list[LinearizedSum]:
    """The sums in the directions that were used, each scaled to at most `MOST_WORKLOADS`."""
    used, sums = _used(question), []
    for each in answers:
        update = each.update
        parameters = TANGENT_UPDATE.as_parameters(each.slot.parameters)
        workloads = min(parameters.nominal_workloads, MOST_WORKLOADS)
        share = workloads / parameters.nominal_workloads
        sums.append(
            LinearizedSum(
                share * update.natural()[used],
                workloads,
                max(share * parameters.noise_multiplier, misfit * workloads),
            )
        )
    return sums


def rehearsed_sum(
    model: GGFN,
    tangent: Tangent,
    rows: Sequence[SyntheticRow],
    *,
    clip: float,
    workloads: float,
) -> LinearizedSum:
    """The sum that an organization of so many workloads like these rows would send, without noise.

    Args:
        model: whose tangent it is.
        tangent: as it was asked about.
        rows: with the labels of their teacher.
        clip: bound on a residual, of the standardised output.
        workloads: how much they weigh.
    """
    graphs = [featurize(row.plan, row.cluster) for row in rows]
    labels = torch.tensor([row.log_seconds for row in rows], dtype=torch.float64)
    residuals = (
        standardise(labels) - standardise(torch.from_numpy(predict(model, graphs)))
    ).numpy()
    design = unit_feature_design(tangent.features(model, graphs), clip)
    mean = (design.directions * np.clip(residuals, -clip, clip)).mean(axis=1)
    return LinearizedSum(workloads * mean, workloads, MISFIT * workloads)


def _question(coefficients: NDArray[np.float32], steps_made: int) -> LinearizedQuery:
    padded = np.zeros((len(coefficients), DIRECTIONS), dtype=np.float32)
    padded[:, : coefficients.shape[1]] = coefficients
    return LinearizedQuery(STEP_CLIPS[min(steps_made, len(STEP_CLIPS) - 1)], padded)


def _used(question: LinearizedQuery) -> NDArray[np.bool_]:
    return np.asarray(question.coefficients.any(axis=0))


def _model(arrays: Weights) -> GGFN:
    return model_from_arrays(named_arrays(arrays))
