"""The one door: a release is charged, drawn, encoded, signed and stored, in this order.

Invariant: for one slot the same bytes leave, however often and by whatever message, run
or model they are asked for. What a mechanism is given comes from the schedule in the
ledger, never from a request. If a mechanism fails after its slot was charged, the slot
is wasted and nothing leaves.
"""

from collections.abc import Callable
from datetime import datetime

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.privacy.randomness import NoiseSource
from fedperf_client.privacy.report_mechanism import REPORT_VALUES
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_shared.errors import PrivacyRefusedError
from fedperf_shared.identity import sign
from fedperf_shared.release import (
    Release,
    ReleaseKind,
    ResidualReport,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import encode_release

Mechanism = Callable[[Slot, NoiseSource], Release]
"""Makes the release of a slot with the slot's parameters and the noise it is given."""


class MalformedReleaseError(PrivacyRefusedError):
    """A mechanism made something else than its slot's release; it does not leave."""


class ReleaseGate:
    """The only way out of an organization."""

    def __init__(
        self, ledger: PrivacyLedger, noise: NoiseSource, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """Guard `ledger`, draw from `noise` and sign with the organization's `key`."""
        self._ledger = ledger
        self._noise = noise
        self._key = key

    def release(self, key: SlotKey, make: Mechanism, *, at: datetime) -> SignedRelease:
        """The signed release of the slot: the stored bytes if it was drawn, else drawn now.

        Args:
            key: the slot that is due.
            make: the mechanism; called at most once in the life of the slot.
            at: now.

        Raises:
            PrivacyRefusedError: the ledger refuses the slot, or `make` gave no such release.
            StorageError: the ledger cannot be written; nothing leaves.
        """
        stored = self._ledger.stored(key)
        if stored is None:
            slot = self._ledger.reserve(key, at)
            release = make(slot, self._noise)
            _require_fit(slot, release)
            payload = encode_release(release)
            stored = SignedRelease(payload, sign(self._key, payload))
            self._ledger.commit(key, stored)
        self._ledger.hand_out(key, at)
        return stored


def _require_fit(slot: Slot, release: Release) -> None:
    is_report = isinstance(release, ResidualReport)
    if release.slot != slot.key or is_report != (slot.key.kind is ReleaseKind.RESIDUAL_REPORT):
        raise MalformedReleaseError(f"made a release of {release.slot} for {slot.key}")
    if isinstance(release, ResidualReport):
        if release.values.shape != (REPORT_VALUES,) or release.values.dtype != np.int64:
            raise MalformedReleaseError(
                f"a report has {REPORT_VALUES} int64 values, this one {release.values.shape}"
            )
    elif not all(bool(np.isfinite(array).all()) for array in release.arrays):
        raise MalformedReleaseError("a model update has finite weights only")
