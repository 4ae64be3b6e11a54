"""Receipts: the coordinator's signature that it got a release, kept against forgetting.

A receipt counts only with the coordinator's signature and if it confirms bytes that the
ledger drew; the latest one is kept beside the ledger, which from then on must agree with it.
"""

from collections.abc import Callable
from typing import Protocol

from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.tamper import ConfirmedRelease
from fedperf_shared.errors import InvalidInputError

_DIGEST_BYTES = 32


class VerifiedReceipt(Protocol):
    """What a receipt says, once its signature was found to be the coordinator's."""

    @property
    def release_id(self) -> bytes:
        """Id of the slot's release."""
        ...

    @property
    def payload_sha256(self) -> bytes:
        """Of the bytes that arrived."""
        ...

    @property
    def sequence(self) -> int:
        """Counts the organization's releases from 1."""
        ...


def store_receipt(
    ledger: PrivacyLedger, signed: bytes, *, read: Callable[[bytes], VerifiedReceipt]
) -> ConfirmedRelease:
    """Verify a serialized SignedReceipt and keep it beside the ledger.

    Args:
        ledger: of the organization that was confirmed.
        signed: as the coordinator sent it.
        read: verifies with the coordinator's pinned key and reads, or raises;
            `federation.exchange.read_receipt` with its key.

    Raises:
        InvalidInputError: no receipt, or not signed by the coordinator.
        LedgerDisagreesError: it confirms bytes that the ledger did not draw.
    """
    receipt = read(signed)
    if not (
        len(receipt.release_id) == _DIGEST_BYTES
        and len(receipt.payload_sha256) == _DIGEST_BYTES
        and receipt.sequence >= 1
    ):
        raise InvalidInputError("a receipt names a release, a SHA-256 and a sequence from 1")
    confirmed = ConfirmedRelease(
        receipt.release_id, receipt.payload_sha256, receipt.sequence, signed
    )
    ledger.confirm(confirmed)
    return confirmed
