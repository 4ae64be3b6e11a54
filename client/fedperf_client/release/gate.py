"""The release gate charges, samples, encodes, signs and stores a release, and later sends it.

Invariant: for one slot the same bytes are sent, for every message, run and model that requests them
and however often. A mechanism receives the parameters of the schedule in the ledger, never those of
a request. If a mechanism fails after its slot was charged, the slot is wasted and nothing is sent.
A release that policy or operator withhold is not sent. Where that is decided in advance, the slot
is not even charged. No charge is given back.
"""

from collections.abc import Callable
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.release.decisions import Decisions, Outcome, WithholdReason
from fedperf_client.release.ledger import PrivacyLedger, SlotNotReservedError
from fedperf_client.release.policy import ReleaseMode
from fedperf_client.release.schedule import slot_name
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.identity import sign
from fedperf_shared.releases.kinds import fits, kind_of
from fedperf_shared.releases.release import NoisySum, SignedRelease, Slot, SlotKey
from fedperf_shared.wire.codec import encode_release

# Makes the release of a slot from the slot's parameters and the noise that it receives.
Mechanism = Callable[[Slot, NoiseSource], NoisySum]


# Returns the noise of a slot's release, independent of every other slot's.
NoiseOf = Callable[[SlotKey], NoiseSource]


class MalformedReleaseError(PrivacyRefusedError):
    """Raised when a mechanism does not return its slot's release, which is then not sent."""


class WithheldError(PrivacyRefusedError):
    """Raised for a release that policy or operator withhold; the request gets no reply at all."""

    def __init__(self, key: SlotKey, reason: WithholdReason | None) -> None:
        why = f"withheld ({reason})" if reason else "not decided yet"
        super().__init__(f"{slot_name(key)} is not sent: {why}")
        self.reason = reason


class ReleaseGate:
    """The only way out of an organization."""

    def __init__(
        self, ledger: PrivacyLedger, noise: NoiseOf, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """Guard `ledger`, sample from `noise` and sign with the organization's `key`."""
        self._ledger = ledger
        self._noise = noise
        self._key = key
        self._decisions = Decisions(ledger)

    def seal(
        self, key: SlotKey, make: Mechanism, *, at: datetime, mode: ReleaseMode
    ) -> SignedRelease:
        """Return the slot's signed release: the stored one, or else one that is sampled now.

        Args:
            key: the slot that is due.
            make: the mechanism; called at most once in the life of the slot.
            at: now.
            mode: the policy's mode for the kind.

        Raises:
            WithheldError: it is withheld already; nothing is charged or sampled.
            PrivacyRefusedError: the ledger refuses the slot, or `make` returned no such release.
            StorageError: the ledger cannot be written.
        """
        decision = self._decisions.status(key, mode, at=at)
        if decision is not None and decision.outcome is Outcome.WITHHELD:
            raise WithheldError(key, decision.reason)
        stored = self._ledger.stored(key)
        if stored is None:
            slot = self._ledger.reserve(key, at)
            release = make(slot, self._noise(key))
            if not fits(release, slot):
                raise MalformedReleaseError(f"made a release of {release.slot} for {slot.key}")
            if flaw := release.flaw(kind_of(release).numbers):
                raise MalformedReleaseError(flaw)
            payload = encode_release(release)
            stored = SignedRelease(payload, sign(self._key, payload))
            self._ledger.commit(key, stored)
        return stored

    def dispatch(self, key: SlotKey, *, at: datetime, mode: ReleaseMode) -> SignedRelease:
        """Return the sealed release to send now, and record it as sent.

        Raises:
            WithheldError: policy or operator withhold it, or a needed approval is missing.
            PrivacyRefusedError: nothing was sampled for the slot.
            StorageError: ledger or decisions cannot be written; nothing is sent.
        """
        decision = self._decisions.settle(key, mode, at=at)
        if decision is None or decision.outcome is not Outcome.APPROVED:
            raise WithheldError(key, decision.reason if decision else None)
        stored = self._ledger.stored(key)
        if stored is None:
            raise SlotNotReservedError(key)
        self._ledger.dispatch(key, at)
        return stored

    def withhold(
        self, key: SlotKey, *, at: datetime, reason: WithholdReason = WithholdReason.TOO_LATE
    ) -> None:
        """Withhold the slot's release for good; later decisions of policy and operator are void."""
        self._decisions.withhold(key, at=at, reason=reason)

    def allows(self, key: SlotKey, *, at: datetime, mode: ReleaseMode) -> bool:
        """Return whether `dispatch` would return the slot's release once it is sealed."""
        decision = self._decisions.status(key, mode, at=at)
        return decision is not None and decision.outcome is Outcome.APPROVED
