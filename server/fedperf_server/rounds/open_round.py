"""A round while it runs: its rules, its question, and the replies so far.

An `OpenRound` was written to the database before anybody was asked, and does not change.
`RoundReplies` is kept in memory only and grows. An organization's first answer counts: it is
accepted, or refused for one reason. Refused here: rules with a quorum below 1.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from fedperf_server.rounds.accepted_update import AcceptedUpdate
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of every round.

    Attributes:
        quorum: accepted updates that a new version needs, at least 1.
        grace: how long after the reply time replies are still taken.
        promote: whether a new version is promoted at once; otherwise it stays a
            candidate until somebody promotes it.
    """

    quorum: int
    grace: timedelta
    promote: bool = False

    def __post_init__(self) -> None:
        if not self.quorum >= 1:
            raise ConfigurationError(f"quorum must be at least 1, got {self.quorum!r}")


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The start and the question of a round.

    Attributes:
        number: that no other round has.
        slot: that it fills.
        base_version: of the model that it starts from.
        current: the weights of that model.
        question: what is asked beside it.
    """

    number: int
    slot: SlotKey
    base_version: int
    current: Weights
    question: TangentQuestion | None


@dataclass(slots=True)
class RoundReplies:
    """The replies of a round so far, by organization.

    Attributes:
        schedules: of those who were let in.
        others: who declared a schedule without the slot.
        accepted: what they signed, and what it says.
        refused: why nothing of theirs counts.
        sizes: bytes of what arrived.
    """

    schedules: dict[bytes, Schedule] = field(default_factory=dict)
    others: set[bytes] = field(default_factory=set)
    accepted: dict[bytes, tuple[SignedRelease, AcceptedUpdate]] = field(default_factory=dict)
    refused: dict[bytes, Reason] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)

    def answered(self, organization_id: bytes) -> bool:
        """Whether nothing more is expected of it."""
        return organization_id in self.accepted or organization_id in self.refused

    def is_complete(self) -> bool:
        """Whether there is somebody and everybody answered."""
        return bool(self.schedules) and all(map(self.answered, self.schedules))
