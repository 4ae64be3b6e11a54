"""The connected organizations, as protocols: rounds ask them and collect their replies.

Rounds know nothing of the network. In production `endpoints.gateway` implements these protocols.
A reply is bytes as they arrived: nothing here is checked or trusted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_shared.exchange import Refusal


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
