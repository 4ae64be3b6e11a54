"""The privacy budget that an organization has spent: in each period, and of its lifetime's.

It is read from the ledgers and the lifetime record beside them. The unit is the workload and
epsilon is for adding or removing one; the figure for replacing one by another stands beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedperf_client.formatting.facts import Fact
from fedperf_client.privacy.accountant import PrivacyBudget, epsilon, events_of, replace_one_epsilon
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.ledger.lifetime import ActivePeriod, LifetimeRecord, lifetime_path
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import Schedule, Slot

UNIT = "workload"


@dataclass(frozen=True, slots=True)
class Spending:
    """One budget: what it promises, and how much of it is spent.

    Attributes:
        period: that the budget is for; None for the lifetime.
        budget: what is promised.
        planned: epsilon of all slots of the schedules, made or not, extra ones as far as used.
        spent: epsilon of the slots that were charged.
        spent_replace_one: the same when one workload is replaced.
        slots: number of planned slots.
        made: number of charged ones.
    """

    period: Period | None
    budget: PrivacyBudget
    planned: float
    spent: float
    spent_replace_one: float
    slots: int
    made: int

    @property
    def left(self) -> float:
        """The part of the promised epsilon that is not spent."""
        return self.budget.epsilon - self.spent

    @property
    def facts(self) -> list[Fact]:
        """Return the row of `fedperf budget`, rounded for people."""
        scope, start, of_table = "lifetime", None, "lifetime"
        if self.period is not None:
            scope, start = "period", self.period.start.isoformat()
            of_table = f"{self.period.start:%Y-%m-%d}"
        replaced = self.spent_replace_one
        return [
            Fact("scope", scope, "budget", of_table),
            Fact("period_start", start),
            Fact("unit", UNIT),
            Fact("epsilon", self.budget.epsilon, "epsilon"),
            Fact("delta", self.budget.delta, "delta"),
            Fact("planned", self.planned, "planned", round(self.planned, 4)),
            Fact("spent", self.spent, "spent", round(self.spent, 4)),
            Fact("spent_replace_one", replaced, "replace one", round(replaced, 4)),
            Fact("left", self.left, "left", round(self.left, 4)),
            Fact("slots", self.slots),
            Fact("released", self.made, "released", f"{self.made} of {self.slots}"),
        ]


def spending_of(ledgers: Sequence[Path], *, at: datetime) -> tuple[Spending, ...]:
    """The lifetime first, then every period, oldest first; nothing where no period has begun.

    Args:
        ledgers: files of all periods, oldest first, in one directory.
        at: charges until then count.

    Raises:
        StorageError: a ledger or the lifetime record cannot be read.
    """
    if not ledgers:
        return ()
    opened = [PrivacyLedger.open(path) for path in ledgers]
    record = LifetimeRecord.open(lifetime_path(ledgers[0].parent))
    planned = [slot for each in record.periods() for slot in each.schedule.at_most()]
    charged = {ledger.path: ledger.charged(at) for ledger in opened}
    every = [slot for slots in charged.values() for slot in slots]
    return (
        _spending(None, record.promise, planned, every),
        *(
            _spending(
                ledger.schedule.calendar.period,
                ledger.budget,
                ledger.schedule.at_most(),
                charged[ledger.path],
            )
            for ledger in opened
        ),
    )


def expected_spending(
    schedule: Schedule, budget: PrivacyBudget, lifetime: PrivacyBudget
) -> tuple[Spending, ...]:
    """Return the planned spending before the first period, with nothing spent."""
    planned = schedule.at_most()
    return (
        _spending(None, lifetime, planned, []),
        _spending(schedule.calendar.period, budget, planned, []),
    )


def reconcile_lifetime(
    ledgers: Sequence[PrivacyLedger], promise: PrivacyBudget
) -> tuple[str | None, tuple[ActivePeriod, ...]]:
    """Count every period of `ledgers`, as an operator decided.

    Args:
        ledgers: of all periods, in one directory; at least one.
        promise: for the lifetime, where the record is lost as a whole.

    Returns:
        What was wrong with the record, None if nothing; and the periods that it had forgotten.

    Raises:
        StorageError: the record cannot be read or written.
    """
    record, problem = LifetimeRecord.restore(lifetime_path(ledgers[0].path.parent), promise)
    found = [ActivePeriod(each.path.name, each.budget, each.schedule) for each in ledgers]
    lost = record.reconcile(found)
    return problem, lost


def _spending(
    period: Period | None, budget: PrivacyBudget, planned: Sequence[Slot], charged: Sequence[Slot]
) -> Spending:
    events = events_of(charged)
    return Spending(
        period=period,
        budget=budget,
        planned=epsilon(events_of(planned), budget.delta),
        spent=epsilon(events, budget.delta),
        spent_replace_one=replace_one_epsilon(events, budget.delta),
        slots=len(planned),
        made=len(charged),
    )
