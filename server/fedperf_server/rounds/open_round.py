"""An open round, and the protocols of the fleet of connected organizations.

Rounds do not depend on the network. In production `endpoints.gateway` implements the protocols. A
reply holds the bytes that arrived, neither checked nor trusted.
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
    """An organization's reply in a round.

    Attributes:
        organization_id: id of the organization.
        body: a serialized SignedRelease, or None for a refusal.
        refusal: reason of the refusal, or None if it has no known code. Other text is not read.
    """

    organization_id: bytes
    body: bytes | None
    refusal: Refusal | None = None


class FleetRound(Protocol):
    """The message channel of one round."""

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body`, unless the organization is offline or has a request already."""

    def replies(self) -> Sequence[Reply]:
        """Return the replies that arrived since the last call."""

    def close(self) -> None:
        """End the round; later replies are refused."""


class Fleet(Protocol):
    """The connected organizations; `gateway.Gateway` in production."""

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Admit exactly these organizations."""

    def round(self) -> FleetRound:
        """Open the channel of a round. The caller closes it."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of every round.

    Attributes:
        quorum: minimum number of accepted updates for a new version, at least 1.
        grace: time after the reply time in which replies are still accepted.
        promote: whether a new version is promoted at once. Otherwise it is a candidate.
    """

    quorum: int
    grace: timedelta
    promote: bool = False

    def __post_init__(self) -> None:
        if not self.quorum >= 1:
            raise ConfigurationError(f"quorum must be at least 1, got {self.quorum!r}")


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The base model and the linear query of a round.

    Attributes:
        number: unique number of the round.
        slot: slot of the round.
        base_version: version of the model that it starts from.
        current: weights of that model.
        query: linear query that is sent with the model.
    """

    number: int
    slot: SlotKey
    base_version: int
    current: Weights
    query: LinearizedQuery | None


@dataclass(slots=True)
class RoundReplies:
    """The replies of a round so far, by organization id.

    Attributes:
        schedules: schedules of the admitted organizations.
        others: organizations whose schedule does not contain the slot.
        accepted: signed releases and accepted updates.
        refused: reasons of refused replies.
        sizes: sizes of the replies in bytes.
    """

    schedules: dict[bytes, Schedule] = field(default_factory=dict)
    others: set[bytes] = field(default_factory=set)
    accepted: dict[bytes, tuple[SignedRelease, AcceptedUpdate]] = field(default_factory=dict)
    refused: dict[bytes, Reason] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)

    def answered(self, organization_id: bytes) -> bool:
        """Return whether the organization's reply was accepted or refused."""
        return organization_id in self.accepted or organization_id in self.refused

    def is_complete(self) -> bool:
        """Return whether there are admitted organizations and all of them replied."""
        return bool(self.schedules) and all(map(self.answered, self.schedules))
