"""How long a message of each call may be, checked before it is read.

A message of small parts takes fifty times its bytes once it is read, so one bound for all
calls would let a schedule or a status fill the memory of whoever reads it, where a model
has a right to megabytes. A longer message ends its call with an error of gRPC's.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import grpc

from fedperf_shared.errors import InvalidInputError

T = TypeVar("T")
Read = Callable[[bytes], T]

_SMALL = 64 << 10
_MODEL = 4 << 20

REQUEST_BYTES: Mapping[str, int] = {
    "DeclareSchedule": 256 << 10,
    "SubmitRelease": _MODEL,
}
ANSWER_BYTES: Mapping[str, int] = {
    "GetTimetable": 256 << 10,
    "GetReceipts": 1 << 20,
    "GetModel": _MODEL,
    "GetCorrection": 256 << 10,
    "GetSyntheticRows": 16 << 20,
    "GetQuestion": 256 << 10,
}
"""By the name of a call; 64 KiB of the others. A calendar has at most 400 windows, a
correction 96 x 96 numbers, a batch 4,096 plans."""

MAX_MESSAGE_BYTES = max(*REQUEST_BYTES.values(), *ANSWER_BYTES.values())


class TooLongError(InvalidInputError):
    """A message is longer than its call allows."""

    def __init__(self, call: str, size: int, most: int) -> None:
        super().__init__(f"{call}: a message of {size} bytes, at most {most} are read")


class BoundedChannel:
    """A channel of gRPC, as generated stubs use it, that reads no answer above its bound."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary_unary(
        self, method: str, *, response_deserializer: Read[T], **rest: object
    ) -> grpc.UnaryUnaryMultiCallable:
        """As `grpc.Channel.unary_unary`."""
        read = _bounded(method.rpartition("/")[2], response_deserializer, ANSWER_BYTES)
        return self._channel.unary_unary(method, response_deserializer=read, **rest)


class BoundedServer:
    """A server of gRPC, as generated code registers with it, that reads no longer request."""

    def __init__(self, server: grpc.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Left out: it would name the same handlers once more, without bounds."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler]
    ) -> None:
        """As `grpc.Server.add_registered_method_handlers`."""
        bounded = {
            call: grpc.unary_unary_rpc_method_handler(
                each.unary_unary,
                request_deserializer=_bounded(call, each.request_deserializer, REQUEST_BYTES),
                response_serializer=each.response_serializer,
            )
            for call, each in handlers.items()
        }
        self._server.add_registered_method_handlers(service, bounded)


def _bounded(call: str, read: Read[T], most_by_call: Mapping[str, int]) -> Read[T]:
    most = most_by_call.get(call, _SMALL)

    def bounded(message: bytes) -> T:
        if len(message) > most:
            raise TooLongError(call, len(message), most)
        return read(message)

    return bounded
