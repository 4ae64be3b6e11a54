"""Bytes to messages to domain objects, where every way to fail ends in one error."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.wire.message_parts import check_parts

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def parse(kind: type[M], payload: bytes) -> M:
    """The message of that kind in `payload`; raises DecodeError where there is none."""
    message = kind()
    message.ParseFromString(payload)
    return message


def guarded(what: str, decode: Callable[[], T]) -> T:
    """The result of `decode`, whose failures all become one error.

    Raises:
        InvalidInputError: it failed; names `what` was to be decoded.
    """
    try:
        return decode()
    except (FedperfError, DecodeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"not a valid {what}: {error}") from error


def decoded(what: str, kind: type[M], payload: bytes, to_domain: Callable[[M], T]) -> T:
    """The domain object of the message in `payload`; errors as `guarded`."""
    return guarded(what, lambda: to_domain(parse(kind, payload)))


def received(what: str, kind: type[M], payload: bytes, to_domain: Callable[[M], T]) -> T:
    """As `decoded`, of bytes that somebody else chose: their parts are counted before."""

    def decode() -> T:
        check_parts(cast("Descriptor", kind.DESCRIPTOR), payload)
        return to_domain(parse(kind, payload))

    return guarded(what, decode)


def encoded(message: Message) -> bytes:
    """The message as bytes, equal for equal messages."""
    return message.SerializeToString(deterministic=True)
