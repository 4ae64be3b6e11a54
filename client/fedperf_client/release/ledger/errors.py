"""Refusals of the privacy ledger, one named error for each reason.

Each error carries what an operator or a caller needs to go on, and its message says the slot or the
number and the limit. A call that raises one has written no charge.
"""

from datetime import datetime
from pathlib import Path

from fedperf_client.privacy.accountant import PrivacyBudget
from fedperf_client.release.ledger.entries import ReleaseState
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.releases.release import SlotKey


class SlotNotPlannedError(PrivacyRefusedError):
    """Raised for a release that the schedule does not have."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(f"{_name(key)} is not in the schedule of this period; nothing is released")
        self.key = key


class SlotNotDueError(PrivacyRefusedError):
    """Raised for a slot before it opens or after its period has ended."""

    def __init__(
        self, key: SlotKey, *, at: datetime, opens_at: datetime, ends_at: datetime
    ) -> None:
        super().__init__(
            f"{_name(key)} may be made from {opens_at.isoformat()} until {ends_at.isoformat()}, "
            f"not at {at.isoformat()}"
        )
        self.key = key
        self.opens_at = opens_at


class SlotSpentError(PrivacyRefusedError):
    """Raised when a slot was charged before: its noise is never sampled twice."""

    def __init__(self, key: SlotKey, state: ReleaseState) -> None:
        super().__init__(f"{_name(key)} is spent ({state}); a slot is never drawn twice")
        self.key = key
        self.state = state


class ExtraSlotsSpentError(PrivacyRefusedError):
    """Raised when the calendar's extra slots of the period are all charged."""

    def __init__(self, key: SlotKey, most: int) -> None:
        super().__init__(
            f"{_name(key)} is an extra slot, and all {most} of this period are spent; "
            "nothing is released"
        )
        self.key = key


class SlotNotReservedError(PrivacyRefusedError):
    """Bytes were to be stored for a slot that is not waiting for them."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(f"{_name(key)} was not reserved first; its bytes are thrown away")
        self.key = key


class BudgetExceededError(PrivacyRefusedError):
    """A schedule was refused because all its slots together would overspend the budget."""

    def __init__(self, *, epsilon_after: float, budget: PrivacyBudget) -> None:
        super().__init__(
            f"the schedule would cost epsilon {epsilon_after:.6g}, the budget is "
            f"{budget.epsilon:g} at delta={budget.delta:g}; nothing is released"
        )
        self.epsilon_after = epsilon_after


class LedgerDisagreesError(PrivacyRefusedError):
    """The ledger has forgotten something, as a restored backup does; an operator decides."""

    def __init__(self, path: Path, disagreement: str) -> None:
        super().__init__(
            f"ledger {path}: {disagreement}; was it restored from a backup? Nothing is released "
            "until an operator calls fedperf reconcile, which charges every slot opened so far"
        )
        self.disagreement = disagreement


def _name(key: SlotKey) -> str:
    return f"{key.kind.name.lower().replace('_', ' ')} {key.index} of window {key.window}"
