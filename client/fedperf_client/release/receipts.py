"""Receipts: the coordinator's signature that it got a release, kept against forgetting.

A receipt counts only with the coordinator's signature, for this organization and for a slot
of the period; the latest one is kept beside the ledger, which from then on must agree with
it. One for bytes that the ledger did not draw shows that they left from here and were
forgotten: a home that was restored from a backup as a whole agrees with itself, and only
the coordinator can tell. Such a receipt stops everything until an operator decides, so it
is asked for before anything is drawn. A coordinator that lies can stop an organization, as
it can by not answering, and gain nothing.
"""

from typing import Protocol

from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.ledger.tamper import ConfirmedRelease
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.release import SlotKey

_DIGEST_BYTES = 32


class ReceiptLike(Protocol):
    """The contents of a receipt that carries the coordinator's valid signature.

    `federation.exchange` verifies it, with the key that was pinned at joining.
    """

    @property
    def release_id(self) -> bytes:
        """Id of the slot's release."""
        ...

    @property
    def payload_sha256(self) -> bytes:
        """Hash of the bytes that arrived."""
        ...

    @property
    def sequence(self) -> int:
        """Counts the organization's releases from 1."""
        ...

    @property
    def signed(self) -> bytes:
        """The serialized SignedReceipt, to keep."""
        ...


def store_receipt(
    ledger: PrivacyLedger, receipt: ReceiptLike, *, key: SlotKey | None = None
) -> ConfirmedRelease:
    """Store a receipt in the ledger's directory.

    Args:
        ledger: of the organization that was confirmed.
        receipt: that was verified.
        key: the slot that it is to be for; None for any of the period.

    Raises:
        InvalidInputError: it is for something else.
        LedgerDisagreesError: it confirms bytes that the ledger did not draw.
    """
    _require_slot(ledger, receipt.release_id, key)
    if not (
        len(receipt.release_id) == _DIGEST_BYTES
        and len(receipt.payload_sha256) == _DIGEST_BYTES
        and receipt.sequence >= 1
    ):
        raise InvalidInputError("a receipt names a release, a SHA-256 and a sequence from 1")
    confirmed = ConfirmedRelease(
        receipt.release_id, receipt.payload_sha256, receipt.sequence, receipt.signed
    )
    ledger.confirm(confirmed)
    return confirmed


def _require_slot(ledger: PrivacyLedger, release_id: bytes, key: SlotKey | None) -> None:
    planned = [slot.key for slot in ledger.schedule.slots]
    period = ledger.schedule.calendar.period
    if release_id not in [each.release_id(period) for each in (planned if key is None else [key])]:
        raise InvalidInputError("the coordinator's receipt is for another slot or period")
