"""An open round: its request, the replies so far, and the interfaces to the fleet and the strategy.

Rounds do not depend on the network. In production `endpoints.gateway` implements the fleet. A reply
holds the bytes that arrived, neither checked nor trusted. `OpenRound.receive` verifies them, so
that a strategy gets only accepted updates.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from fedperf_server.state.validation import Reason, RejectedReleaseError, check_place, open_update
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.exchange import Refusal, SyntheticRow
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.release import (
    LinearizedUpdate,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
    Update,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An organization's reply in a round."""

    organization_id: bytes  # id of the organization
    body: bytes | None  # a serialized SignedRelease, or None for a refusal
    # Reason of the refusal, or None if its code is unknown. Other text is not read.
    refusal: Refusal | None = None


class FleetRound(Protocol):
    """The message channel of one round."""

    def send(self, organization_id: bytes, body: bytes) -> bool:
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
class AcceptedUpdate:
    """An accepted update, and its slot with the declared parameters."""

    update: LinearizedUpdate
    slot: Slot


class RoundStrategy(Protocol):
    """The algorithm of a model round: design the query, check updates, compute the next model.

    `ModelRounds` handles slots, deadlines, quorum and storage. Weeks may pass between the query
    and `next`.
    """

    def design_query(self, current: Weights, *, steps_made: int) -> LinearizedQuery | None:
        """Design the linear query of a round. It is stored before it is sent.

        Args:
            current: weights of the base model.
            steps_made: number of rounds of this regime that led to it.
        """

    def check(self, update: Update, slot: Slot) -> None:
        """Check an update.

        Raises:
            RejectedReleaseError: a check failed; it has the first reason.
        """

    def next(
        self,
        current: Weights,
        updates: Sequence[AcceptedUpdate],
        query: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """Return the model after the round. Each update has bounded influence on it.

        Args:
            current: weights of the base model.
            updates: accepted updates, in the order of summation.
            query: linear query of the round.
            rehearsed: rows of earlier regimes.
        """


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of every round."""

    quorum: int  # minimum number of accepted updates for a new version, at least 1
    grace: timedelta  # time after the reply time in which replies are still accepted
    promote: bool = False  # whether a new version is promoted at once. Otherwise it is a candidate.

    def __post_init__(self) -> None:
        if not self.quorum >= 1:
            raise ConfigurationError(f"quorum must be at least 1, got {self.quorum!r}")


@dataclass(slots=True)
class OpenRound:
    """A round with its request and its replies so far, by organization id."""

    number: int  # unique number of the round
    slot: SlotKey  # slot of the round
    base_version: int  # version of the model that it starts from
    current: Weights  # weights of that model
    query: LinearizedQuery | None  # linear query that is sent with the model
    # Schedules of the organizations that take part.
    schedules: dict[bytes, Schedule] = field(default_factory=dict)
    # Organizations whose schedule does not contain the slot.
    others: set[bytes] = field(default_factory=set)
    # Signed releases and accepted updates.
    accepted: dict[bytes, tuple[SignedRelease, AcceptedUpdate]] = field(default_factory=dict)
    refused: dict[bytes, Reason] = field(default_factory=dict)  # reasons of refused replies
    sizes: dict[bytes, int] = field(default_factory=dict)  # sizes of the replies in bytes

    @property
    def missing(self) -> list[bytes]:
        """Return the organizations that take part and have not replied."""
        return [each for each in self.schedules if self._expects(each)]

    def reject_revoked(self, members: Collection[bytes]) -> None:
        """Refuse the replies of organizations that are no longer members."""
        for organization_id in self.schedules.keys() - members:
            self.accepted.pop(organization_id, None)
            self.refused[organization_id] = Reason.REVOKED

    def receive(
        self,
        reply: Reply,
        key: ec.EllipticCurvePublicKey,
        *,
        check: Callable[[Update, Slot], None],
    ) -> None:
        """Verify a reply with the organization's `key`; its first one counts, others are ignored.

        `check` refuses updates that the round's strategy cannot use.
        """
        organization_id = reply.organization_id
        if not self._expects(organization_id):
            return
        self.sizes[organization_id] = len(reply.body or b"")
        try:
            signed, update = open_update(reply.body, key, refusal=reply.refusal)
            slot = check_place(
                update,
                self.schedules[organization_id],
                slot=self.slot,
                base_version=self.base_version,
            )
            check(update, slot)
            accepted = AcceptedUpdate(TANGENT_UPDATE.as_release(update), slot)
            self.accepted[organization_id] = (signed, accepted)
        except RejectedReleaseError as error:
            self.refused[organization_id] = error.reason

    def _expects(self, organization_id: bytes) -> bool:
        has_replied = organization_id in self.accepted or organization_id in self.refused
        return organization_id in self.schedules and not has_replied
