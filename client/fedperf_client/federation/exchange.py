"""The Exchange client: what this organization asks of its coordinator and hands in.

gRPC with mutual TLS, in domain types. How often and how long to retry is a value
passed in; only a coordinator that does not answer is asked again. Nothing that the
coordinator sends is trusted: receipts are checked against its key and our bytes.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeVar

import grpc  # type: ignore[import-untyped]
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from fedperf_client.federation.enrollment import Membership
from fedperf_shared.errors import ConnectionRefusedByPeerError, InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.identity import verify
from fedperf_shared.period import Timetable, from_unix_ms
from fedperf_shared.release import Schedule
from fedperf_shared.wire import codec, exchange_pb2, exchange_pb2_grpc, release_pb2
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

MAX_MESSAGE_BYTES = 64 << 20
MAX_CLOCK_SKEW = timedelta(seconds=300)
_TIMEOUT_SECONDS = 30.0
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
T = TypeVar("T")


class ExchangeError(ConnectionRefusedByPeerError):
    """The coordinator does not answer or does not want us."""


class RefusedByCoordinatorError(ConnectionRefusedByPeerError):
    """The coordinator refused a request; `code` says why, in its own closed vocabulary."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the coordinator refuses the request: {code}")
        self.code = code


class ClockSkewError(ConnectionRefusedByPeerError):
    """This machine's clock and the coordinator's differ too much to work together."""

    def __init__(self, skew: timedelta) -> None:
        seconds = skew.total_seconds()
        side = "behind" if seconds > 0 else "ahead of"
        super().__init__(
            f"this machine's clock is {abs(seconds):.0f} s {side} the coordinator's, at most "
            f"{MAX_CLOCK_SKEW.total_seconds():.0f} s are possible; synchronize it (NTP)"
        )
        self.skew = skew


@dataclass(frozen=True, slots=True)
class Status:
    """The coordinator's time and the versions in force; model version 0: none yet."""

    now: datetime
    model_version: int
    feature_schema_version: int
    basis_version: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The coordinator's confirmation; `signed` is the serialized SignedReceipt to keep."""

    release_id: bytes
    payload_sha256: bytes
    sequence: int
    received_at: datetime
    signed: bytes


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A version of the shared model, as a checkpoint's bytes."""

    version: int
    checkpoint: bytes


@dataclass(frozen=True, slots=True)
class Correction:
    """What reports say about the reference model: mean [cells], covariance [cells, cells]."""

    basis_version: int
    reference_version: int
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SyntheticRow:
    """One row of the synthetic batch."""

    plan: Plan
    cluster: ClusterConfig
    log_runtime_seconds: float
    segment: Platform


def default_retry() -> Retrying:
    """Four attempts within about ten seconds."""
    return Retrying(
        stop=stop_after_attempt(4),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        retry=retry_if_exception(_is_transient),
        reraise=True,
    )


class ExchangeClient:
    """A connection to the coordinator's Exchange; close it, or use it in a `with`."""

    def __init__(
        self,
        membership: Membership,
        key: ec.EllipticCurvePrivateKey,
        *,
        retry: Retrying | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._address = membership.exchange_address
        self._coordinator_key = membership.coordinator_key
        self._retry = retry or default_retry()
        self._timeout = timeout_seconds
        credentials = grpc.ssl_channel_credentials(
            root_certificates=membership.ca_certificate,
            private_key=_pem(key),
            certificate_chain=membership.certificate,
        )
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        self._channel = grpc.secure_channel(self._address, credentials, options=options)
        self._stub = exchange_pb2_grpc.ExchangeStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def status(self) -> Status:
        """The coordinator's status."""
        reply: exchange_pb2.Status = self._call(
            self._stub.GetStatus, exchange_pb2.GetStatusRequest()
        )
        return Status(
            from_unix_ms(reply.now_unix_ms),
            reply.model_version,
            reply.feature_schema_version,
            reply.basis_version,
        )

    def check_clock(self, now: datetime) -> Status:
        """The status, if `now` (this machine's clock) agrees with the coordinator's.

        Raises:
            ClockSkewError: they differ by more than `MAX_CLOCK_SKEW`.
        """
        status = self.status()
        if not abs(status.now - now) <= MAX_CLOCK_SKEW:
            raise ClockSkewError(status.now - now)
        return status

    def timetable(self) -> Timetable:
        """The public calendar."""
        return codec.timetable_from_message(
            self._call(self._stub.GetTimetable, exchange_pb2.GetTimetableRequest())
        )

    def declare_schedule(self, schedule: Schedule) -> None:
        """Declare what will be released in the period; the same again changes nothing.

        Raises:
            RefusedByCoordinatorError: another one was declared (`other_schedule_declared`).
        """
        self._call(self._stub.DeclareSchedule, codec.schedule_to_message(schedule))

    def submit(self, signed_release: bytes) -> Receipt:
        """Hand in a serialized SignedRelease; the same bytes give the same receipt again.

        Raises:
            RefusedByCoordinatorError: the release was not accepted.
            InvalidInputError: the receipt is not the coordinator's over these bytes.
        """
        message = _parsed(release_pb2.SignedRelease(), signed_release)
        reply: release_pb2.SignedReceipt = self._call(self._stub.SubmitRelease, message)
        receipt = read_receipt(reply.SerializeToString(deterministic=True), self._coordinator_key)
        if receipt.payload_sha256 != hashlib.sha256(message.payload).digest():
            raise InvalidInputError("the coordinator's receipt is for another release")
        return receipt

    def model(self, version: int = 0) -> SharedModel:
        """A version of the model, the newest promoted one for 0."""
        reply: exchange_pb2.Model = self._call(
            self._stub.GetModel, exchange_pb2.GetModelRequest(version=version)
        )
        return SharedModel(reply.version, reply.checkpoint)

    def correction(self) -> Correction | None:
        """The published correction; None while there is none.

        Raises:
            InvalidInputError: not a correction.
        """
        reply: exchange_pb2.Correction = self._call(
            self._stub.GetCorrection, exchange_pb2.GetCorrectionRequest()
        )
        mean = np.array(reply.mean, dtype=np.float64)
        covariance = np.array(reply.covariance, dtype=np.float64)
        if mean.size == 0:
            return None
        if covariance.size != mean.size**2 or not np.isfinite(mean).all():
            raise InvalidInputError("the coordinator's correction is not well formed")
        if not np.isfinite(covariance).all():
            raise InvalidInputError("the coordinator's correction is not finite")
        shape = (mean.size, mean.size)
        return Correction(
            reply.basis_version, reply.reference_version, mean, covariance.reshape(shape)
        )

    def synthetic_rows(self) -> tuple[SyntheticRow, ...]:
        """The published synthetic rows.

        Raises:
            InvalidInputError: a row is not well formed.
        """
        reply: exchange_pb2.SyntheticBatch = self._call(
            self._stub.GetSyntheticRows, exchange_pb2.GetSyntheticRowsRequest()
        )
        try:
            return tuple(_row(message) for message in reply.rows)
        except ValueError as error:
            raise InvalidInputError(f"not a synthetic row: {error}") from error

    def _call(self, method: Callable[..., T], request: object) -> T:
        try:
            return self._retry(method, request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._explained(error) from None

    def _explained(self, error: grpc.RpcError) -> ConnectionRefusedByPeerError:
        code = error.code() if isinstance(error, grpc.Call) else None
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            return ExchangeError(
                f"the coordinator at {self._address} does not know this organization (any more); "
                "ask its operator for a new invitation"
            )
        if code is None or code in _TRANSIENT:
            return ExchangeError(
                f"no coordinator with the right certificate answers at {self._address}; "
                "is it running, is it the one that was joined, and is this machine's clock right?"
            )
        return RefusedByCoordinatorError(error.details() or code.name.lower())


def encode_signed_release(payload: bytes, signature: bytes) -> bytes:
    """Payload and signature as the bytes that leave."""
    message = release_pb2.SignedRelease(payload=payload, signature=signature)
    return message.SerializeToString(deterministic=True)


def read_receipt(signed: bytes, coordinator_key: ec.EllipticCurvePublicKey) -> Receipt:
    """The receipt in a serialized SignedReceipt.

    Raises:
        InvalidInputError: not a receipt, or not signed by the coordinator.
    """
    outer = _parsed(release_pb2.SignedReceipt(), signed)
    verify(coordinator_key, outer.payload, outer.signature)
    inner = _parsed(release_pb2.Receipt(), outer.payload)
    return Receipt(
        inner.release_id,
        inner.payload_sha256,
        inner.sequence,
        from_unix_ms(inner.received_at_unix_ms),
        signed,
    )


M = TypeVar("M", release_pb2.SignedRelease, release_pb2.SignedReceipt, release_pb2.Receipt)


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidInputError(f"not a {type(message).__name__}") from error
    return message


def _row(message: exchange_pb2.SyntheticRow) -> SyntheticRow:
    return SyntheticRow(
        codec.plan_from_message(message.plan),
        codec.cluster_from_message(message.cluster),
        message.log_runtime_seconds,
        Platform(message.segment),
    )


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, grpc.Call) and error.code() in _TRANSIENT


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
