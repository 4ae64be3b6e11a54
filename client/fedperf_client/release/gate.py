"""The release gate charges, samples, encodes, signs and seals a release, and later sends it.

Invariant: for one slot the same bytes leave, however often and by whatever message, run
or model they are asked for. What a mechanism is given comes from the schedule in the
ledger, never from a request. If a mechanism fails after its slot was charged, the slot
is wasted and nothing leaves. What policy or operator withhold is not handed out, and not
even charged where that was known before; a charge that was made is not given back.
"""

from collections.abc import Callable
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.release.decisions import Decisions, Verdict, WithholdReason
from fedperf_client.release.ledger.errors import SlotNotReservedError
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import ReleaseMode
from fedperf_client.release.slot_names import slot_name
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.identity import sign
from fedperf_shared.releases.kinds import fits, kind_of
from fedperf_shared.releases.release import NoisySum, SignedRelease, Slot, SlotKey
from fedperf_shared.wire.codec import encode_release

Mechanism = Callable[[Slot, NoiseSource], NoisySum]
"""Makes the release of a slot with the slot's parameters and the noise it is given."""


NoiseOf = Callable[[SlotKey], NoiseSource]
"""The noise of a slot's release: independent of every other slot's."""


class MalformedReleaseError(PrivacyRefusedError):
    """A mechanism made something else than its slot's release; it does not leave."""


class WithheldError(PrivacyRefusedError):
    """A release stays here, as policy or operator decided; not to be answered at all."""

    def __init__(self, key: SlotKey, because: WithholdReason | None) -> None:
        why = f"withheld ({because})" if because else "not decided yet"
        super().__init__(f"{slot_name(key)} stays here: {why}")
        self.key = key
        self.because = because


class ReleaseGate:
    """The only way out of an organization."""

    def __init__(
        self, ledger: PrivacyLedger, noise: NoiseOf, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """Guard `ledger`, draw from `noise` and sign with the organization's `key`."""
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
            mode: what the policy says of the kind.

        Raises:
            WithheldError: it is known that it will not leave; nothing is charged or drawn.
            PrivacyRefusedError: the ledger refuses the slot, or `make` gave no such release.
            StorageError: the ledger cannot be written.
        """
        if self._decisions.standing(key, mode, at=at) is Verdict.WITHHELD:
            raise WithheldError(key, self._decisions.because(key, mode, at=at))
        stored = self._ledger.stored(key)
        if stored is None:
            slot = self._ledger.reserve(key, at)
            release = make(slot, self._noise(key))
            _require_fit(slot, release)
            payload = encode_release(release)
            stored = SignedRelease(payload, sign(self._key, payload))
            self._ledger.commit(key, stored)
        return stored

    def dispatch(self, key: SlotKey, *, at: datetime, mode: ReleaseMode) -> SignedRelease:
        """Return the sealed release to send now, and record it as sent.

        Raises:
            WithheldError: policy or operator withhold it, or nobody approved what asks.
            PrivacyRefusedError: nothing was drawn for the slot.
            StorageError: ledger or decisions cannot be written; nothing leaves.
        """
        verdict = self._decisions.settle(key, mode, at=at)
        if verdict is not Verdict.APPROVED:
            raise WithheldError(key, self._decisions.because(key, mode, at=at))
        stored = self._ledger.stored(key)
        if stored is None:
            raise SlotNotReservedError(key)
        self._ledger.dispatch(key, at)
        return stored

    def withhold(
        self, key: SlotKey, *, at: datetime, because: WithholdReason = WithholdReason.TOO_LATE
    ) -> None:
        """Withhold the slot's release for good, whatever policy and operator decide later."""
        self._decisions.withhold(key, at=at, because=because)

    def lets_out(self, key: SlotKey, *, at: datetime, mode: ReleaseMode) -> bool:
        """Whether `dispatch` would give the slot's release once it is sealed."""
        return self._decisions.standing(key, mode, at=at) is Verdict.APPROVED

    def release(self, key: SlotKey, make: Mechanism, *, at: datetime) -> SignedRelease:
        """Seal and dispatch at once, for a kind that needs no approval."""
        self.seal(key, make, at=at, mode=ReleaseMode.AUTO)
        return self.dispatch(key, at=at, mode=ReleaseMode.AUTO)


def _require_fit(slot: Slot, release: NoisySum) -> None:
    if not fits(release, slot):
        raise MalformedReleaseError(f"made a release of {release.slot} for {slot.key}")
    flaw = release.flaw(kind_of(release).numbers)
    if flaw:
        raise MalformedReleaseError(flaw)
