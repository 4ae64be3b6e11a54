"""The strategy for DP-SGD: members send differences of weights, and the coordinator averages them.

The strategy fits any model whose weights are named arrays. Every member has the same influence.
It is bounded by the norm that an update may have (`aggregation.influence_bound`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedperf_server.rounds.accepted_update import AcceptedUpdate
from fedperf_server.rounds.round_strategy import RoundStrategy
from fedperf_server.state.validation import ReportContext, UpdateLimits, check_contents
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.kinds import MODEL_UPDATE
from fedperf_shared.releases.release import Slot, Update

Aggregate = Callable[[Weights, Sequence[Weights]], Sequence[NDArray[np.float32]]]
"""(current, updates) -> the next model."""


@dataclass(eq=False)
class DpSgdAvg(RoundStrategy):
    """The model plus a mean of what was sent, for any architecture.

    Attributes:
        limits: what an update must look like.
        aggregate: makes the next model.
    """

    limits: UpdateLimits
    aggregate: Aggregate

    @property
    def rehearses_at_home(self) -> bool:
        """Always: members rehearse the rows in every step."""
        return True

    def question(self, current: Weights, *, steps_made: int) -> None:
        """Nothing beside the model."""
        del current, steps_made

    def check(self, update: Update, slot: Slot) -> None:
        """As `RoundStrategy.check`."""
        check_contents(update, slot, ReportContext(limits=self.limits), kind=MODEL_UPDATE)

    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: object,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """As `RoundStrategy.next`."""
        del question, rehearsed
        changes = [[*MODEL_UPDATE.as_release(each.update).arrays] for each in answers]
        return self.aggregate(current, changes)
