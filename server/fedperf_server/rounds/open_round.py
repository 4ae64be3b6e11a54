"""A round that is under way, and the connected organizations that it asks, as protocols.

Rounds know nothing of the network. In production `endpoints.gateway` implements the protocols.
A reply is bytes as they arrived: nothing here is checked or trusted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_server.rounds.round_messages import AcceptedUpdate
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.exchange import Refusal
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey


@dataclass(frozen=True, slots=True)
class Reply:
    """One organization's reply in a round.

    Attributes:
        organization_id: whose it is.
        body: a serialized SignedRelease; None where it refused.
        refusal: why it refused; None where it did not say, or not in one of our codes. What else
            it may have written is not read.
    """

    organization_id: bytes
    body: bytes | None
    refusal: Refusal | None = None


class FleetRound(Protocol):
    """One round's messages."""

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body`; False while the organization is offline or was asked already."""

    def replies(self) -> Sequence[Reply]:
        """The replies that arrived since the last call."""

    def close(self) -> None:
        """End the round: late replies are refused."""


class Fleet(Protocol):
    """The connected organizations; `gateway.Gateway` in real life."""

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Let exactly these organizations take part."""

    def round(self) -> FleetRound:
        """Open a round's channel; whoever opens it closes it."""


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
    question: LinearizedQuery | None


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
