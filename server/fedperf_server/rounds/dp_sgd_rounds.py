"""Rounds that train by DP-SGD: organizations send differences of weights, which are averaged.

Model-agnostic: any named arrays will do. Influence is equal and bounded by the norm that
an update may have (`aggregation.influence_bound`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedperf_server.rounds.round_method import Answer
from fedperf_server.state.registry import Arrays
from fedperf_server.state.validation import Reason, RejectedReleaseError, UpdateLimits, check_update
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.releases.release import ModelUpdate, Slot, Update

Aggregate = Callable[[Arrays, Sequence[Arrays]], Sequence[NDArray[np.float32]]]
"""(current, updates) -> the next model."""


@dataclass(frozen=True, slots=True)
class DpSgdRounds:
    """As `round_method.RoundMethod`.

    Attributes:
        limits: what an update must look like.
        aggregate: makes the next model.
    """

    limits: UpdateLimits
    aggregate: Aggregate
    rehearses_at_home: ClassVar[bool] = True

    def question(self, current: Arrays, *, steps_made: int) -> None:
        """Nothing beside the model."""
        del current, steps_made

    def check(self, update: Update, slot: Slot) -> None:
        """As `RoundMethod.check`."""
        del slot
        if not isinstance(update, ModelUpdate):
            raise RejectedReleaseError(Reason.WRONG_SLOT)
        check_update(update, self.limits)

    def next(
        self,
        current: Arrays,
        answers: Sequence[Answer],
        question: object,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """As `RoundMethod.next`."""
        del question, rehearsed
        updates = [each.update for each in answers]
        changes = [[*update.arrays] for update in updates if isinstance(update, ModelUpdate)]
        return self.aggregate(current, changes)
