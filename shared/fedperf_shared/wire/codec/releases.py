"""Releases, their signatures and their receipts to bytes and back (release.proto)."""

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import (
    DirectedReport,
    ModelUpdate,
    Release,
    ReleaseKind,
    ResidualReport,
    SignedRelease,
    SlotKey,
    TangentUpdate,
)
from fedperf_shared.wire import release_pb2
from fedperf_shared.wire.codec.decoder import decoded, encoded, received

MAX_ARRAY_VALUES = 50_000_000


def encode_release(release: Release) -> bytes:
    """A release as the bytes that are signed, stored and sent."""
    message = release_pb2.Release()
    if isinstance(release, ResidualReport):
        message.residual_report.CopyFrom(_report_to_message(release))
    elif isinstance(release, DirectedReport):
        message.directed_report.CopyFrom(_directed_to_message(release))
    elif isinstance(release, TangentUpdate):
        message.tangent_update.CopyFrom(_tangent_to_message(release))
    else:
        message.model_update.CopyFrom(_update_to_message(release))
    return encoded(message)


def decode_release(payload: bytes) -> Release:
    """The release that `encode_release` wrote; its numbers are not yet judged.

    Raises:
        InvalidInputError: not a release.
    """
    return received("release", release_pb2.Release, payload, _release_from_message)


def encode_signed_release(payload: bytes, signature: bytes) -> bytes:
    """A serialized release and its signature as the bytes that leave."""
    return encoded(signed_release_to_message(SignedRelease(payload, signature)))


def decode_signed_release(data: bytes) -> SignedRelease:
    """The signed release that `encode_signed_release` wrote; its signature is not yet verified.

    Raises:
        InvalidInputError: not a signed release.
    """
    kind = release_pb2.SignedRelease
    return decoded("signed release", kind, data, signed_release_from_message)


def encode_receipt(receipt: Receipt) -> bytes:
    """A receipt as the bytes that the coordinator signs."""
    return encoded(
        release_pb2.Receipt(
            organization_id=receipt.organization_id,
            release_id=receipt.release_id,
            payload_sha256=receipt.payload_sha256,
            sequence=receipt.sequence,
            received_at_unix_ms=to_unix_ms(receipt.received_at),
        )
    )


def decode_receipt(payload: bytes) -> Receipt:
    """The receipt that `encode_receipt` wrote.

    Raises:
        InvalidInputError: not a receipt.
    """
    return decoded("receipt", release_pb2.Receipt, payload, _receipt_from_message)


def encode_signed_receipt(receipt: SignedReceipt) -> bytes:
    """A signed receipt as the bytes that an organization keeps."""
    return encoded(signed_receipt_to_message(receipt))


def decode_signed_receipt(data: bytes) -> SignedReceipt:
    """The signed receipt that `encode_signed_receipt` wrote; its signature is not yet verified.

    Raises:
        InvalidInputError: not a signed receipt.
    """
    kind = release_pb2.SignedReceipt
    return decoded("signed receipt", kind, data, signed_receipt_from_message)


def signed_release_to_message(signed: SignedRelease) -> release_pb2.SignedRelease:
    """Domain to message."""
    return release_pb2.SignedRelease(payload=signed.payload, signature=signed.signature)


def signed_release_from_message(message: release_pb2.SignedRelease) -> SignedRelease:
    """Message to domain."""
    return SignedRelease(message.payload, message.signature)


def signed_receipt_to_message(signed: SignedReceipt) -> release_pb2.SignedReceipt:
    """Domain to message."""
    return release_pb2.SignedReceipt(payload=signed.payload, signature=signed.signature)


def signed_receipt_from_message(message: release_pb2.SignedReceipt) -> SignedReceipt:
    """Message to domain."""
    return SignedReceipt(message.payload, message.signature)


def key_to_message(key: SlotKey) -> release_pb2.SlotKey:
    """Domain to message."""
    return release_pb2.SlotKey(
        kind=release_pb2.ReleaseKind.Name(int(key.kind)), window=key.window, index=key.index
    )


def key_from_message(message: release_pb2.SlotKey) -> SlotKey:
    """Message to domain; raises ValueError on an unknown kind."""
    return SlotKey(ReleaseKind(message.kind), message.window, message.index)


def array_to_message(array: NDArray[np.float32]) -> release_pb2.FloatArray:
    """A float32 array of any shape."""
    little_endian = np.ascontiguousarray(array, dtype="<f4")
    return release_pb2.FloatArray(shape=array.shape, float32_little_endian=little_endian.tobytes())


def array_from_message(message: release_pb2.FloatArray) -> NDArray[np.float32]:
    """The array, finite or not.

    Raises:
        InvalidInputError: shape and bytes do not agree.
    """
    size = 1
    for length in message.shape:
        size *= length
    if size > MAX_ARRAY_VALUES or len(message.float32_little_endian) != 4 * size:
        raise InvalidInputError(
            f"an array of shape {tuple(message.shape)} does not have "
            f"{len(message.float32_little_endian)} bytes"
        )
    flat = np.frombuffer(message.float32_little_endian, dtype="<f4")
    return flat.reshape(tuple(message.shape)).astype(np.float32)


def _report_to_message(report: ResidualReport) -> release_pb2.ResidualReport:
    return release_pb2.ResidualReport(
        slot=key_to_message(report.slot),
        basis_version=report.basis_version,
        reference_version=report.reference_version,
        grid_exponent=report.grid_exponent,
        values=report.values.tolist(),
    )


def _report_from_message(message: release_pb2.ResidualReport) -> ResidualReport:
    return ResidualReport(
        key_from_message(message.slot),
        message.basis_version,
        message.reference_version,
        message.grid_exponent,
        np.array(message.values, dtype=np.int64),
    )


def _directed_to_message(report: DirectedReport) -> release_pb2.DirectedReport:
    return release_pb2.DirectedReport(
        slot=key_to_message(report.slot),
        design_version=report.design_version,
        grid_exponent=report.grid_exponent,
        values=report.values.tolist(),
    )


def _directed_from_message(message: release_pb2.DirectedReport) -> DirectedReport:
    return DirectedReport(
        key_from_message(message.slot),
        message.design_version,
        message.grid_exponent,
        np.array(message.values, dtype=np.int64),
    )


def _update_to_message(update: ModelUpdate) -> release_pb2.ModelUpdate:
    return release_pb2.ModelUpdate(
        slot=key_to_message(update.slot),
        architecture=update.architecture,
        base_version=update.base_version,
        arrays=[array_to_message(array) for array in update.arrays],
    )


def _update_from_message(message: release_pb2.ModelUpdate) -> ModelUpdate:
    return ModelUpdate(
        key_from_message(message.slot),
        message.architecture,
        message.base_version,
        tuple(array_from_message(array) for array in message.arrays),
    )


def _tangent_to_message(update: TangentUpdate) -> release_pb2.TangentUpdate:
    return release_pb2.TangentUpdate(
        slot=key_to_message(update.slot),
        base_version=update.base_version,
        grid_exponent=update.grid_exponent,
        values=update.values.tolist(),
    )


def _tangent_from_message(message: release_pb2.TangentUpdate) -> TangentUpdate:
    return TangentUpdate(
        key_from_message(message.slot),
        message.base_version,
        message.grid_exponent,
        np.array(message.values, dtype=np.int64),
    )


def _release_from_message(message: release_pb2.Release) -> Release:
    content = message.WhichOneof("content")
    if content == "residual_report":
        return _report_from_message(message.residual_report)
    if content == "directed_report":
        return _directed_from_message(message.directed_report)
    if content == "model_update":
        return _update_from_message(message.model_update)
    if content == "tangent_update":
        return _tangent_from_message(message.tangent_update)
    raise InvalidInputError("a release holds a report or a model update")


def _receipt_from_message(message: release_pb2.Receipt) -> Receipt:
    return Receipt(
        message.organization_id,
        message.release_id,
        message.payload_sha256,
        message.sequence,
        from_unix_ms(message.received_at_unix_ms),
    )
