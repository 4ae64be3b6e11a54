"""A message longer than its call allows is not read, on either side."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from fedperf_shared.model.checkpoint import MAX_CHECKPOINT_BYTES
from fedperf_shared.wire import exchange_pb2, exchange_pb2_grpc
from fedperf_shared.wire.services import ExchangeStub
from fedperf_shared.wire.sizes import ANSWER_BYTES, BoundedServer

FLOOD = exchange_pb2.Status(epoch_starts_unix_ms=[1] * 2_000_000)


class Coordinator(exchange_pb2_grpc.ExchangeServicer):
    """Answers what no coordinator of ours would."""

    def GetStatus(  # noqa: N802
        self, request: exchange_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Status:
        return FLOOD

    def GetReceipts(  # noqa: N802
        self, request: exchange_pb2.GetReceiptsRequest, context: grpc.ServicerContext
    ) -> exchange_pb2.Receipts:
        flood = exchange_pb2.Receipts()
        flood.MergeFromString(b"\x0a\x00" * 500_000)
        return flood

    def DeclareSchedule(  # noqa: N802
        self, request: exchange_pb2.Schedule, context: grpc.ServicerContext
    ) -> exchange_pb2.DeclareScheduleReply:
        return exchange_pb2.DeclareScheduleReply()


@contextmanager
def channel_to(*, bounded: bool) -> Iterator[grpc.Channel]:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", 64 << 20)])
        exchange_pb2_grpc.add_ExchangeServicer_to_server(  # type: ignore[no-untyped-call]
            Coordinator(), BoundedServer(server) if bounded else server
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with grpc.insecure_channel(
                f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", 64 << 20)]
            ) as channel:
                yield channel
        finally:
            server.stop(None).wait()


def test_a_client_reads_no_status_of_two_million_epochs() -> None:
    with (
        channel_to(bounded=False) as channel,
        pytest.raises(grpc.RpcError, match="deserializing response"),
    ):
        ExchangeStub(channel, timeout_seconds=10).status()


def test_a_server_reads_no_schedule_of_a_million_slots() -> None:
    flood = exchange_pb2.Schedule()
    flood.MergeFromString(b"\x12\x00" * 1_000_000)
    assert len(flood.slots) == 1_000_000
    with channel_to(bounded=True) as channel:
        stub = exchange_pb2_grpc.ExchangeStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError, match="deserializing request"):
            stub.DeclareSchedule(flood, timeout=10)
        stub.DeclareSchedule(exchange_pb2.Schedule(), timeout=10)


def test_a_client_reads_no_receipts_of_nothing() -> None:
    with (
        channel_to(bounded=False) as channel,
        pytest.raises(grpc.RpcError, match="deserializing response"),
    ):
        ExchangeStub(channel, timeout_seconds=10).receipts()


def test_a_schedule_with_a_field_that_nobody_knows_is_not_read() -> None:
    odd = exchange_pb2.Schedule()
    odd.MergeFromString(b"\x7a\x01x")
    with channel_to(bounded=True) as channel:
        stub = exchange_pb2_grpc.ExchangeStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError, match="deserializing request"):
            stub.DeclareSchedule(odd, timeout=10)


def test_every_call_of_the_exchange_has_its_bound() -> None:
    service = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"]
    assert ANSWER_BYTES["GetModel"] >= MAX_CHECKPOINT_BYTES + 1024
    assert ANSWER_BYTES.keys() <= {each.name for each in service.methods}
