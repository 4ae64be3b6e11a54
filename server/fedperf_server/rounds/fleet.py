"""The connected organizations, as the coordinator sees them: who is asked, who answers.

Protocols alone, so that rounds know nothing of the network; `endpoints.gateway` has them in
real life. What arrives is bytes: nothing here is checked or trusted.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_shared.exchange import Refusal


class Reply(Protocol):
    """What an organization answered; `body` is None where it refused, for `refusal`."""

    @property
    def organization_id(self) -> bytes:
        """Whose it is."""

    @property
    def body(self) -> bytes | None:
        """A serialized SignedRelease."""

    @property
    def refusal(self) -> Refusal | None:
        """Why it refused; None where it did not say, or not in our words."""


class FleetRound(Protocol):
    """One round's messages."""

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body`; False while the organization is offline or was asked already."""

    def replies(self) -> Sequence[Reply]:
        """What arrived since the last call."""

    def close(self) -> None:
        """End the round: late replies are refused."""


class Fleet(Protocol):
    """The connected organizations; `gateway.Gateway` in real life."""

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Let exactly these organizations take part."""

    def round(self) -> FleetRound:
        """Open a round's channel; whoever opens it closes it."""
