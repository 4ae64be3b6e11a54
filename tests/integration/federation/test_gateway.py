"""The public fleet port and its node: the contract with Flower's internals."""

import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node as NodeId
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from numpy.typing import NDArray

from fedperf_client.node import flower_node as client_app
from fedperf_client.node.enrollment import Membership
from fedperf_client.node.fleet import FleetClient, to_reply
from fedperf_client.node.flower_node import Connection, Node
from fedperf_client.node.updates import RequestRefusedError, open_request
from fedperf_server.endpoints import gateway as round_module
from fedperf_server.endpoints.gateway import BODY_LIMIT, Gateway, GatewayRound
from fedperf_server.membership.authority import CA, SERVER, KeyRing
from fedperf_server.rounds.open_round import Reply
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import ReleaseKind, SignedRelease, SlotKey
from fedperf_shared.wire.codec import encode_signed_release, encode_train_request
from tests.integration.federation.small_federation import (
    FAST,
    HOST,
    Organization,
    World,
    calendar,
    new_server,
    node,
    world,
)

SECRET = "canary-7f3a"
PROTOBUF = {"content-type": "application/protobuf", "accept": "application/protobuf"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(new_server(tmp_path_factory.mktemp("server"), calendar())) as running:
        yield running


@contextmanager
def caller(server: World) -> Iterator[httpx.Client]:
    trust = ssl.create_default_context(cafile=str(server.config.directory / "authority.pem"))
    with httpx.Client(
        base_url=f"https://{server.config.fleet_address}", verify=trust, headers=PROTOBUF
    ) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/openapi.json",
        "/health",
        "/v1/control/start-run",
        "/v1/control/list-nodes",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/runtime/push-messages",
        "/v1/fleet",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/pull-messages/",
        "/v1//fleet/pull-messages",
    ],
)
def test_gateway_path_outside_fleet_routes_returns_404(server: World, path: str) -> None:
    with caller(server) as client:
        assert client.get(path).status_code == 404
        body = AcquireTaskRequest().SerializeToString()
        assert client.post(path, content=body).status_code == 404


def test_gateway_request_without_registered_key_returns_401(server: World) -> None:
    with caller(server) as client:
        request = PullMessagesRequest(node=NodeId(node_id=1)).SerializeToString()
        assert client.post("/v1/fleet/pull-messages", content=request).status_code == 401
        assert client.post("/v1/fleet/register-node", content=b"").status_code == 401


def test_gateway_rejects_malformed_and_oversized_bodies(server: World) -> None:
    with caller(server) as client:
        assert client.post("/v1/fleet/pull-messages", content=b"\xff" * 64).status_code >= 400
        long = b"0" * (BODY_LIMIT + 1)
        assert client.post("/v1/fleet/push-object", content=long).status_code == 413
        assert client.get("/v1/fleet/pull-messages").status_code in (404, 405)


@contextmanager
def fleet(directory: Path) -> Iterator[tuple[Gateway, Organization]]:
    """Yield a gateway without a coordinator, and a joined organization."""
    config = new_server(directory / "server", calendar())
    ring = KeyRing(config.directory)
    membership = Membership(
        organization_id=bytes(16),
        certificate=b"",
        ca_certificate=ring.certificate(CA),
        coordinator_public_key=b"",
        exchange_address="",
        fleet_address=config.fleet_address,
    )
    organization = Organization("acme", membership, new_private_key())
    gateway = Gateway(
        bind=HOST,
        port=config.fleet_port,
        certificate=ring.certificate_path(SERVER),
        private_key=ring.key_path(SERVER),
    )
    gateway.start()
    try:
        gateway.set_members(
            {organization.membership.organization_id: organization.key.public_key()}
        )
        yield gateway, organization
    finally:
        gateway.stop()


def ask(
    channel: GatewayRound, organization: Organization, body: bytes, seconds: float = 5.0
) -> None:
    give_up = time.monotonic() + seconds
    while not channel.send(organization.membership.organization_id, body):
        assert time.monotonic() < give_up, "the node does not come online"
        time.sleep(0.02)


def wait_for_reply(channel: GatewayRound, seconds: float = 5.0) -> Reply | None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        for reply in channel.replies():
            return reply
        time.sleep(0.02)
    return None


def request(
    window: int = 0,
    *,
    kind: ReleaseKind = ReleaseKind.MODEL_UPDATE,
    arrays: tuple[NDArray[np.float32], ...] = (),
) -> bytes:
    slot = SlotKey(kind, window, 0)
    return encode_train_request(TrainRequest(slot, 7, 1, arrays))


def unsigned(payload: bytes) -> SignedRelease:
    return SignedRelease(payload, b"")


def body_of(payload: bytes) -> bytes:
    return encode_signed_release(SignedRelease(payload, b""))


def echo(organization: Organization, train: TrainRequest) -> SignedRelease:
    return unsigned(b"release of window %d" % train.slot.window)


def refuse(organization: Organization, train: TrainRequest) -> SignedRelease:
    raise RequestRefusedError(f"this slot is not due: {SECRET}", Refusal.NOT_DUE)


def break_down(organization: Organization, train: TrainRequest) -> SignedRelease:
    raise ValueError(SECRET)


def test_train_request_reply_carries_bytes_of_the_handler(tmp_path: Path) -> None:
    with fleet(tmp_path) as (gateway, acme), node(acme, echo), closing(gateway.round()) as channel:
        ask(channel, acme, request(3))
        assert wait_for_reply(channel) == Reply(
            acme.membership.organization_id, body_of(b"release of window 3")
        )


def test_large_request_and_reply_bodies_are_delivered_unchanged(tmp_path: Path) -> None:
    long = b"\x07" * 12_000_001

    def big(organization: Organization, train: TrainRequest) -> SignedRelease:
        return unsigned(long)

    model = (np.zeros(1_200_000, dtype=np.float32),)
    with fleet(tmp_path) as (gateway, acme), node(acme, big), closing(gateway.round()) as channel:
        ask(channel, acme, request(arrays=model))
        reply = wait_for_reply(channel, 20)
        assert reply is not None
        assert reply.body == body_of(long)


@pytest.mark.parametrize(("parts", "taken"), [(16, True), (17, False)])
def test_reply_with_too_many_parts_is_dropped_by_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, taken: bool
) -> None:
    sent = threading.Event()
    answer, reply = to_reply, FleetClient.reply

    def hostile_answer(question: Message, body: bytes) -> Message:
        message = answer(question, body)
        while (many := len(get_all_nested_objects(message))) < parts:
            message.content[str(many)] = ConfigRecord({"part": many})
        return message

    def observed_reply(fleet: FleetClient, question: Message, message: Message) -> None:
        reply(fleet, question, message)
        sent.set()

    monkeypatch.setattr(client_app, "to_reply", hostile_answer)
    monkeypatch.setattr(FleetClient, "reply", observed_reply)
    with fleet(tmp_path) as (gateway, acme), node(acme, echo), closing(gateway.round()) as channel:
        ask(channel, acme, request())
        assert sent.wait(5)
        bodies = [each.body for each in channel.replies()]
    assert bodies == ([body_of(b"release of window 0")] if taken else [])


@pytest.mark.parametrize("body", [b"", b"code: import os"])
def test_node_refuses_request_body_that_is_no_train_request(tmp_path: Path, body: bytes) -> None:
    with fleet(tmp_path) as (gateway, acme), node(acme, echo), closing(gateway.round()) as channel:
        ask(channel, acme, body)
        reply = wait_for_reply(channel)
        assert reply is not None
        assert reply.body is None


@pytest.mark.parametrize("foreign", ["query.synthetic", "train.more"])
def test_node_refuses_unknown_message_type(
    tmp_path: Path, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_module, "TRAIN", foreign)
    with fleet(tmp_path) as (gateway, acme), node(acme, echo), closing(gateway.round()) as channel:
        ask(channel, acme, request())
        reply = wait_for_reply(channel)
        assert reply is not None
        assert reply.body is None


def test_refusal_sends_only_a_code_and_handler_error_sends_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is one of a closed set of codes. Each side has its own text for a code."""
    sent: list[bytes] = []
    original = httpx.Client.send

    def send(client: httpx.Client, message: httpx.Request, **options: object) -> httpx.Response:
        sent.append(b"%r" % message.headers.raw + message.read())
        return original(client, message, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(httpx.Client, "send", send)
    with fleet(tmp_path) as (gateway, acme):
        with node(acme, refuse), closing(gateway.round()) as channel:
            ask(channel, acme, request())
            reply = wait_for_reply(channel)
            assert reply is not None
            assert (reply.body, reply.refusal) == (None, Refusal.NOT_DUE)
            said = capsys.readouterr().out
            assert "request refused" in said
            assert "(not_due)" in said
        with node(acme, break_down), closing(gateway.round()) as channel:
            ask(channel, acme, request())
            assert wait_for_reply(channel, 1.0) is None
    assert sent
    assert not any(SECRET.encode() in each or b"Error" in each for each in sent)


def test_node_with_slow_handler_stays_online_and_runs_the_request_once(tmp_path: Path) -> None:
    calls: list[int] = []
    release = threading.Event()

    def slow(organization: Organization, train: TrainRequest) -> SignedRelease:
        calls.append(train.slot.window)
        release.wait(10)
        return unsigned(b"late")

    with fleet(tmp_path) as (gateway, acme), node(acme, slow):
        with closing(gateway.round()) as first:
            ask(first, acme, request())
            assert wait_for_reply(first, 0.5) is None
            assert acme.membership.organization_id in gateway.online()
        with closing(gateway.round()) as second:
            ask(second, acme, request())
            assert wait_for_reply(second, 0.5) is None
            release.set()
            reply = wait_for_reply(second)
            assert reply is not None
            assert reply.body == body_of(b"late")
        assert calls == [0]


def test_node_reconnects_after_gateway_restart_and_after_refusal(tmp_path: Path) -> None:
    with fleet(tmp_path) as (gateway, acme), node(acme, echo) as running:
        with closing(gateway.round()) as channel:
            ask(channel, acme, request())
        gateway.stop()
        gateway.start()
        with closing(gateway.round()) as channel:
            ask(channel, acme, request())
            assert wait_for_reply(channel) is not None
        gateway.set_members({})
        give_up = time.monotonic() + 5
        while running.connection is not Connection.REFUSED and time.monotonic() < give_up:
            time.sleep(0.01)
        assert running.connection is Connection.REFUSED
        gateway.set_members({acme.membership.organization_id: acme.key.public_key()})
        with closing(gateway.round()) as channel:
            ask(channel, acme, request())
            assert wait_for_reply(channel) is not None


def test_request_lost_with_its_node_is_repeated_after_reconnection(tmp_path: Path) -> None:
    forgotten = threading.Event()

    def never(organization: Organization, train: TrainRequest) -> SignedRelease:
        forgotten.set()
        threading.Event().wait()
        return unsigned(b"")

    with fleet(tmp_path) as (gateway, acme), closing(gateway.round()) as channel:
        with node(acme, never):
            ask(channel, acme, request())
            assert forgotten.wait(5)
        assert wait_for_reply(channel, 0.1) is None
        with node(acme, echo):
            ask(channel, acme, request())
            reply = wait_for_reply(channel)
            assert reply is not None
            assert reply.body == body_of(b"release of window 0")


def test_node_retries_unreachable_coordinator_until_stopped(tmp_path: Path) -> None:
    with fleet(tmp_path) as (_, acme):
        pass
    lonely = Node(acme.membership, acme.key, lambda train: Future(), polling=FAST)
    stop = threading.Event()
    thread = threading.Thread(target=lonely.run, args=(stop,))
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    assert lonely.connection is Connection.CONNECTING
    stop.set()
    thread.join(5)
    assert not thread.is_alive()


def test_open_request_accepts_only_finite_requests_for_model_updates() -> None:
    assert open_request(request(3)).slot.window == 3
    with pytest.raises(RequestRefusedError, match="not a request"):
        open_request(b"code: import os")
    with pytest.raises(RequestRefusedError, match="not the slot of a model update"):
        open_request(request(kind=ReleaseKind.RESIDUAL_REPORT))
    with pytest.raises(RequestRefusedError, match="not finite"):
        open_request(request(arrays=(np.array([np.nan], dtype=np.float32),)))
