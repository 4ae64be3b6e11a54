"""Bounds on every call's messages, in bytes and in parts, checked before a message is read.

A message of small parts takes fifty times its bytes once it is read. So one bound for all calls
would let a schedule or a status fill the reader's memory, where a model has a right to megabytes. A
longer message, or one of more parts than `message_parts` lets pass, ends its call with an error of
gRPC's.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import grpc
from google.protobuf.descriptor import Descriptor

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.wire import exchange_pb2
from fedperf_shared.wire.message_parts import check_parts

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
    "GetSyntheticRows": 2 << 20,
    "GetQuestion": 256 << 10,
}
"""By the name of a call; 64 KiB of the others. A calendar has at most 400 windows, a
correction 96 x 96 numbers, a batch 4,096 plans of at most 481 bytes."""

_CALLS = {
    call.name: call
    for service in exchange_pb2.DESCRIPTOR.services_by_name.values()
    for call in service.methods
}

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
        call = method.rpartition("/")[2]
        most = ANSWER_BYTES.get(call, _SMALL)
        read = _bounded(call, _CALLS[call].output_type, most, response_deserializer)
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
                request_deserializer=_bounded(
                    call,
                    _CALLS[call].input_type,
                    REQUEST_BYTES.get(call, _SMALL),
                    each.request_deserializer,
                ),
                response_serializer=each.response_serializer,
            )
            for call, each in handlers.items()
        }
        self._server.add_registered_method_handlers(service, bounded)


def _bounded(call: str, kind: Descriptor, most: int, read: Read[T]) -> Read[T]:
    def bounded(message: bytes) -> T:
        if len(message) > most:
            raise TooLongError(call, len(message), most)
        check_parts(kind, message)
        return read(message)

    return bounded
