"""How model rounds train, as the coordinator sees it: ask, check, make the next model.

The coordinator knows slots, deadlines, quorum and storage; a method knows what a round asks
beside the model, what an answer must look like, and what the next model is. A period has one
method (`period.ModelMethod`): `dp_sgd_rounds` or `tangent_rounds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.releases.release import Slot, Update


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An accepted update and the slot that it fills, with the parameters that were declared."""

    update: Update
    slot: Slot


class RoundMethod(Protocol):
    """How the rounds of a period train."""

    @property
    def rehearses_at_home(self) -> bool:
        """Whether rows of earlier epochs go with the request; else `next` gets them."""

    def question(self, current: Weights, *, steps_made: int) -> TangentQuestion | None:
        """What a round asks beside the model; it is stored before anybody gets it.

        Args:
            current: the model that the round starts from.
            steps_made: rounds of this epoch that led to it.
        """

    def check(self, update: Update, slot: Slot) -> None:
        """Refuse what this method's updates cannot be.

        Raises:
            RejectedReleaseError: with the first reason that holds.
        """

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: TangentQuestion | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """The model after the round; each answer has bounded influence on it.

        Args:
            current: the model that it started from.
            answers: accepted ones.
            question: that it asked.
            rehearsed: rows of earlier epochs, where they are not rehearsed at home.
        """
