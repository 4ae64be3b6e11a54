"""The Exchange client: this organization's requests to its coordinator.

It uses gRPC with mutual TLS, in domain types. How often and how long to retry is a value passed in;
only calls without a response are retried. Nothing that the coordinator sends is trusted: a receipt
counts only if the key that was pinned at joining signed it for this organization.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

import grpc
from cryptography.hazmat.primitives.asymmetric import ec
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from fedperf_client.node.enrollment import Membership
from fedperf_client.release.ledger_files import ConfirmedRelease
from fedperf_shared.errors import ConnectionRefusedByPeerError, InvalidInputError
from fedperf_shared.exchange import (
    Correction,
    Receipt,
    SharedModel,
    SignedReceipt,
    Status,
    SyntheticRow,
)
from fedperf_shared.identity import private_pem, verify
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey
from fedperf_shared.runtime.process import Closing
from fedperf_shared.wire.codec import (
    decode_receipt,
    decode_signed_receipt,
    encode_signed_receipt,
)
from fedperf_shared.wire.services import (
    EXCHANGE_OPTIONS,
    CallRefusedError,
    ExchangeCalls,
    exchange_stub,
)

MAX_CLOCK_SKEW = timedelta(seconds=300)
_TIMEOUT_SECONDS = 30.0
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
P = ParamSpec("P")
T = TypeVar("T")


class ExchangeError(ConnectionRefusedByPeerError):
    """Raised when the coordinator does not respond or refuses this organization."""


class NoMemberError(ExchangeError):
    """Raised when this organization is not, or no longer, a member."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the coordinator at {address} does not know this organization (any more), so nothing "
            "leaves and nothing is fetched; ask its operator, and join with a new invitation"
        )


class RefusedByCoordinatorError(ConnectionRefusedByPeerError):
    """Raised when the coordinator refuses a request; `code` is one of its closed set of reasons."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the coordinator refuses the request: {code}")
        self.code = code


class ClockSkewError(ConnectionRefusedByPeerError):
    """Raised when this machine's clock and the coordinator's differ too much."""

    def __init__(self, skew: timedelta) -> None:
        seconds = skew.total_seconds()
        side = "behind" if seconds > 0 else "ahead of"
        super().__init__(
            f"this machine's clock is {abs(seconds):.0f} s {side} the coordinator's, at most "
            f"{MAX_CLOCK_SKEW.total_seconds():.0f} s are possible; synchronize it (NTP)"
        )
        self.skew = skew


class Exchange:
    """The requests of an organization to its coordinator, over calls that may fail."""

    def __init__(
        self, calls: ExchangeCalls, membership: Membership, *, retry: Retrying | None = None
    ) -> None:
        self._calls = calls
        self._membership = membership
        self._retry = retry or Retrying(  # within about ten seconds
            stop=stop_after_attempt(4),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry=retry_if_exception(_is_transient),
            reraise=True,
        )

    def status(self) -> Status:
        """Return the coordinator's status."""
        return self._call(self._calls.status)

    def check_clock(self, now: datetime) -> Status:
        """Return the status, if `now` (this machine's clock) agrees with the coordinator's.

        Raises:
            ClockSkewError: they differ by more than `MAX_CLOCK_SKEW`.
        """
        status = self.status()
        if not abs(status.now - now) <= MAX_CLOCK_SKEW:
            raise ClockSkewError(status.now - now)
        return status

    def calendar(self) -> ReleaseCalendar:
        """Return the public calendar."""
        return self._call(self._calls.calendar)

    def declare_schedule(self, schedule: Schedule) -> None:
        """Declare the slots of the period; declaring the same again changes nothing.

        Raises:
            RefusedByCoordinatorError: another one was declared (`other_schedule_declared`).
        """
        self._call(self._calls.declare_schedule, schedule)

    def submit(self, signed: SignedRelease) -> ConfirmedRelease:
        """Submit a release; the same bytes return the same receipt again.

        Other bytes for a slot return the receipt of the first ones (`PrivacyLedger.confirm`).

        Raises:
            RefusedByCoordinatorError: the release was not accepted.
            InvalidInputError: not a receipt of the coordinator for this organization.
        """
        return confirmed(self._call(self._calls.submit, signed), self._membership)

    def receipts(self) -> tuple[ConfirmedRelease, ...]:
        """Return the coordinator's confirmations to this organization in the period, newest first.

        Raises:
            InvalidInputError: one is not a receipt of the coordinator for this organization.
        """
        receipts = self._call(self._calls.receipts)
        return tuple(confirmed(each, self._membership) for each in receipts)

    def model(self, version: int = 0) -> SharedModel:
        """Return a version of the model, the newest promoted one for 0."""
        return self._call(self._calls.model, version)

    def correction(self) -> Correction | None:
        """Return the published correction, or None while there is none.

        Raises:
            InvalidInputError: not a correction.
        """
        return self._call(self._calls.correction)

    def synthetic_rows(self) -> tuple[SyntheticRow, ...]:
        """Return the published synthetic rows.

        Raises:
            InvalidInputError: a row is not well formed.
        """
        return tuple(self._call(self._calls.synthetic_rows))

    def linear_query(self, slot: SlotKey) -> CellQuery | None:
        """Return the linear query of the directed slot, or None while there is none.

        Raises:
            InvalidInputError: not a linear query that may be evaluated.
        """
        return self._call(self._calls.linear_query, slot)

    def _call(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        try:
            return self._retry(method, *args, **options)
        except grpc.RpcError as error:
            raise self._explain(error) from None
        except CallRefusedError as error:
            raise RefusedByCoordinatorError(error.code) from None

    def _explain(self, error: grpc.RpcError) -> ConnectionRefusedByPeerError:
        code = error.code() if isinstance(error, grpc.Call) else None
        address = self._membership.exchange_address
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            return NoMemberError(address)
        if code is None or code in _TRANSIENT:
            return ExchangeError(
                f"no coordinator with the right certificate answers at {address}; "
                "is it running, is it the one that was joined, and is this machine's clock right?"
            )
        return RefusedByCoordinatorError(error.details() or code.name.lower())


class ExchangeClient(Exchange, Closing):
    """The Exchange over gRPC; close it, or use it in a `with`."""

    def __init__(
        self,
        membership: Membership,
        key: ec.EllipticCurvePrivateKey,
        *,
        retry: Retrying | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        membership.require_certificates()
        credentials = grpc.ssl_channel_credentials(
            root_certificates=membership.ca_certificate,
            private_key=private_pem(key),
            certificate_chain=membership.certificate,
        )
        self._channel = grpc.secure_channel(
            membership.exchange_address, credentials, options=EXCHANGE_OPTIONS
        )
        stub = exchange_stub(self._channel, timeout_seconds=timeout_seconds)
        super().__init__(stub, membership, retry=retry)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def read_receipt(signed: bytes, membership: Membership) -> Receipt:
    """Return the receipt in a serialized SignedReceipt.

    Raises:
        InvalidInputError: the membership's coordinator did not sign it for this organization.
    """
    content = decode_signed_receipt(signed)
    verify(membership.coordinator_key, content.payload, content.signature)
    receipt = decode_receipt(content.payload)
    if receipt.organization_id != membership.organization_id:
        raise InvalidInputError("the coordinator's receipt is for another organization")
    return receipt


def confirmed(signed: SignedReceipt, membership: Membership) -> ConfirmedRelease:
    """Return the release that a receipt confirms; errors as `read_receipt` and of the class."""
    content = encode_signed_receipt(signed)
    receipt = read_receipt(content, membership)
    return ConfirmedRelease(receipt.release_id, receipt.payload_sha256, receipt.sequence, content)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, grpc.Call) and error.code() in _TRANSIENT
