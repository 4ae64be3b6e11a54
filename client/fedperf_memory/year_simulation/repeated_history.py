"""A member's executions in a rehearsal: its history once more, spread over the period.

Nobody knows what an organization will run. The assumption is that what it ran before it joins runs
again in the same order, evenly over the rest of the period, and takes as long as it did.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from fedperf_client.contributions.local_sums import LabelledGraph, label_executions
from fedperf_shared.execution import Execution


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedHistory:
    """A history that is there when its member joins (`federation.histories.MemberHistory`).

    Attributes:
        executed: in the order in which it finished.
        joins: all of it finished before.
        again: when each finishes once more, in that order.
    """

    executed: Sequence[LabelledGraph]
    joins: datetime
    again: Sequence[datetime]

    @classmethod
    def of(cls, executions: Iterable[Execution], *, joins: datetime, ends: datetime) -> Self:
        """The history of executions that ended well, in a period that ends at `ends`."""
        executed = label_executions(sorted(executions, key=lambda each: each.finished_at))
        step = (ends - joins) / max(len(executed), 1)
        return cls(executed, joins, [joins + place * step for place in range(len(executed))])

    def between(self, since: datetime | None, until: datetime) -> Sequence[LabelledGraph]:
        """The executions that finished then, each once."""
        if (since is None or since < self.joins) and self.joins <= until:
            return self.executed
        return [
            each
            for each, at in zip(self.executed, self.again, strict=True)
            if (since is None or since <= at) and at < until
        ]
