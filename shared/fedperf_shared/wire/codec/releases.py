"""Releases, their signatures and their receipts to bytes and back (release.proto).

A message calls a kind of releases by its name and their parts as their class does.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.releases import kinds
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import Release, ReleaseKind, SignedRelease, SlotKey
from fedperf_shared.wire import release_pb2
from fedperf_shared.wire.codec.decoder import decoded, encoded, received

MAX_ARRAY_VALUES = 50_000_000


def encode_release(release: Release) -> bytes:
    """A release as the bytes that are signed, stored and sent."""
    parts = {
        part.name: _TO_MESSAGE.get(part.name, int)(getattr(release, part.name))
        for part in fields(release)
    }
    return encoded(release_pb2.Release(**{kinds.kind_of(release).name: parts}))


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


def _release_from_message(message: release_pb2.Release) -> Release:
    content = message.WhichOneof("content")
    for kind in kinds.KINDS:
        if kind.name == content:
            parts = getattr(message, content)
            return kind.release(
                **{
                    part.name: _FROM_MESSAGE.get(part.name, int)(getattr(parts, part.name))
                    for part in fields(kind.release)
                }
            )
    raise InvalidInputError("a release holds a report or a model update")


def _receipt_from_message(message: release_pb2.Receipt) -> Receipt:
    return Receipt(
        message.organization_id,
        message.release_id,
        message.payload_sha256,
        message.sequence,
        from_unix_ms(message.received_at_unix_ms),
    )


_TO_MESSAGE: Mapping[str, Callable[..., object]] = {
    "slot": key_to_message,
    "values": np.ndarray.tolist,
    "arrays": lambda arrays: [array_to_message(array) for array in arrays],
}
_FROM_MESSAGE: Mapping[str, Callable[..., Any]] = {
    "slot": key_from_message,
    "values": lambda values: np.array(values, dtype=np.int64),
    "arrays": lambda arrays: tuple(array_from_message(array) for array in arrays),
}
"""Of the parts that are more than a whole number, by name."""
