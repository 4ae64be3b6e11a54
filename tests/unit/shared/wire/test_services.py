"""Tests of the Exchange calls over gRPC on this machine: requests, responses and limits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import grpc
import pytest

from fedperf_shared.exchange import Status
from fedperf_shared.model.checkpoint import MAX_CHECKPOINT_BYTES
from fedperf_shared.releases.release import Schedule
from fedperf_shared.wire import exchange_pb2, release_pb2
from fedperf_shared.wire.services import (
    ENROLLMENT,
    EXCHANGE,
    CallRefusedError,
    exchange_stub,
    serve_exchange,
)

FLOODS = {
    "GetStatus": exchange_pb2.Status(epoch_starts_unix_ms=[1] * 100_000).SerializeToString(),
    "GetReceipts": b"\x0a\x00" * 500_000,
}
"""Responses that no valid coordinator sends: too many bytes or too many parts."""

STATUS = Status(datetime(2026, 1, 1, tzinfo=UTC), 3, 1, 1, reference_version=2)


class Coordinator:
    """Fake coordinator that admits a caller once and returns its status."""

    def __init__(self) -> None:
        self.admitted = 0

    def admit(self, certificate: bytes) -> str:
        assert certificate == b""
        self.admitted += 1
        if self.admitted > 1:
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, "not_a_member")
        return "acme"

    def status(self, caller: str) -> Status:
        assert caller == "acme"
        return STATUS

    def declare_schedule(self, caller: str, schedule: Schedule) -> None:
        raise AssertionError(f"{caller} declared {schedule}")

    def calendar(self, caller: str) -> None:
        raise RuntimeError(f"something inside of the server that {caller} must not read")


@contextmanager
def channel_to(server: grpc.Server) -> Iterator[grpc.Channel]:
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", 64 << 20)]
        ) as channel:
            yield channel
    finally:
        server.stop(None).wait()


@contextmanager
def coordinator() -> Iterator[grpc.Channel]:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", 64 << 20)])
        serve_exchange(server, Coordinator())
        with channel_to(server) as channel:
            yield channel


@contextmanager
def flooding() -> Iterator[grpc.Channel]:
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(lambda *_, flood=flood: flood)
        for name, flood in FLOODS.items()
    }
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        server.add_registered_method_handlers("fedperf.v1.Exchange", handlers)
        with channel_to(server) as channel:
            yield channel


def send(channel: grpc.Channel, call: str, body: bytes) -> None:
    channel.unary_unary(f"/fedperf.v1.Exchange/{call}")(body, timeout=10)


def test_exchange_call_is_served_to_admitted_callers_only() -> None:
    with coordinator() as channel:
        stub = exchange_stub(channel, timeout_seconds=10)
        assert stub.status() == STATUS
        with pytest.raises(grpc.RpcError) as refused:
            stub.status()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused.value.details() == "not_a_member"


def test_exchange_internal_error_sends_no_details_to_the_caller() -> None:
    with coordinator() as channel, pytest.raises(grpc.RpcError) as failed:
        exchange_stub(channel, timeout_seconds=10).calendar()
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert failed.value.details() == "internal"


@pytest.mark.parametrize("method", ["status", "receipts"])
def test_exchange_client_refuses_oversized_responses(method: str) -> None:
    with (
        flooding() as channel,
        pytest.raises(grpc.RpcError, match="deserializing response"),
    ):
        getattr(exchange_stub(channel, timeout_seconds=10), method)()


UNREAD = {
    "too many parts": ("DeclareSchedule", b"\x12\x00" * 100_000),
    "an unknown field": ("DeclareSchedule", b"\x7a\x01x"),
    "too long": (
        "SubmitRelease",
        release_pb2.SignedRelease(payload=bytes((4 << 20) + 1)).SerializeToString(),
    ),
    "too long for a small call": ("GetReceipts", b"\x08" + b"\x80" * (64 << 10)),
}


@pytest.mark.parametrize("case", UNREAD)
def test_exchange_server_refuses_oversized_or_malformed_requests(case: str) -> None:
    with coordinator() as channel:
        with pytest.raises(grpc.RpcError, match="deserializing request"):
            send(channel, *UNREAD[case])
        with pytest.raises(grpc.RpcError, match="malformed"):  # parsed, then refused
            send(channel, "DeclareSchedule", b"")


def test_exchange_malformed_request_of_unadmitted_caller_returns_not_a_member() -> None:
    with coordinator() as channel:
        exchange_stub(channel, timeout_seconds=10).status()
        with pytest.raises(grpc.RpcError, match="not_a_member"):
            send(channel, "DeclareSchedule", b"")


def test_exchange_call_tables_list_every_method_of_the_services() -> None:
    services = exchange_pb2.DESCRIPTOR.services_by_name
    for name, calls in (("Exchange", EXCHANGE), ("Enrollment", ENROLLMENT)):
        assert {each.name for each in calls.values()} == {e.name for e in services[name].methods}
    assert EXCHANGE["model"].reply_bytes >= MAX_CHECKPOINT_BYTES + 1024
