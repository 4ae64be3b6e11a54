"""A node survives malformed responses, logs them and bounds its memory."""

import datetime
import gzip
import http.server
import ipaddress
import pickle
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import PullObjectResponse
from structlog.testing import capture_logs

from fedperf_client.node import fleet
from fedperf_client.node.enrollment import Membership
from fedperf_client.node.fleet import MAX_RESPONSE_BYTES
from fedperf_client.node.flower_node import Connection, Node, PollingPolicy
from fedperf_shared.identity import private_pem

MOST_MEGABYTES = 64

NODE = """
import datetime, pathlib, pickle, sys, threading, time
from cryptography.hazmat.primitives.asymmetric import ec
from fedperf_client.node.flower_node import Node, PollingPolicy
from fedperf_client.workers.child_side import peak_bytes, reset_peak

membership = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
polling = PollingPolicy(poll=datetime.timedelta(seconds=0.05))
key = ec.generate_private_key(ec.SECP384R1())
node = Node(membership, key, lambda _: Future(), polling=polling)
reset_peak()
before, stop = peak_bytes(), threading.Event()
talking = threading.Thread(target=node.run, args=(stop,))
talking.start()
while node.invalid_replies < 2 and talking.is_alive():
    time.sleep(0.02)
stop.set()
talking.join()
print((peak_bytes() - before) >> 20)
"""


def message(kind: str = "train", tree: str = "", **fields: bool) -> bytes:
    """Return one message to the node with a content, an error, both or neither."""
    reply = PullMessagesResponse()
    sent = reply.messages_list.add()
    sent.metadata.message_type = kind
    if fields.get("error"):
        sent.error.code = 1
    if fields.get("content"):
        sent.content.SetInParent()
    reply.message_object_trees.add().object_id = tree
    return reply.SerializeToString()


PULL, JUNK = "/pull-messages", b"\xff\xff\xff garbage"

ODD: dict[str, dict[str, bytes]] = {
    "no protocol buffer": {PULL: JUNK},
    "neither content nor error": {PULL: message()},
    "neither, with a tree": {PULL: message(tree="a")},
    "both content and error": {PULL: message(content=True, error=True)},
    "many messages": {
        PULL: message(content=True) * (MAX_RESPONSE_BYTES // len(message(content=True)) + 1)
    },
    "no activation": {"/activate-node": JUNK},
    "no object": {PULL: message(tree="a", content=True), "/pull-object": JUNK},
    "no thanks for a reply": {PULL: message("query", content=True), "/push-messages": JUNK},
    "no heartbeat": {"/send-node-heartbeat": JUNK},
}
"""Malformed responses by call. Other calls get valid responses."""

REFUSED: dict[str, dict[str, bytes]] = {
    "an object that is not there": {PULL: message(tree="a", content=True)},
    "an object that is none": {
        PULL: message(tree="a", content=True),
        "/pull-object": PullObjectResponse(
            object_found=True, object_available=True, object_content=JUNK
        ).SerializeToString(),
    },
}
"""Readable responses by call that together form no valid request."""


@contextmanager
def coordinator(
    tmp_path: Path, answers: Mapping[str, bytes], encoding: str | None = None
) -> Iterator[Membership]:
    """Serve these responses with the pinned certificate, by the last part of the call's path."""
    well = {"/activate-node": ActivateNodeResponse(node_id=7).SerializeToString()}
    well["/send-node-heartbeat"] = SendNodeHeartbeatResponse(success=True).SerializeToString()
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA384())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "certificate").write_bytes(pem)
    (tmp_path / "key").write_bytes(private_pem(key))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            call = self.path[self.path.rindex("/") :]
            body = {**well, **answers}.get(call, b"")
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            if encoding is not None and call in answers:
                self.send_header("content-encoding", encoding)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:  # the node closes the connection
                self.close_connection = True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        place = f"127.0.0.1:{server.server_address[1]}"
        yield Membership(bytes(16), pem, pem, public, "127.0.0.1:1", place)
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


@contextmanager
def talking(membership: Membership) -> Iterator[Node]:
    """Yield a node in a thread that must survive the block.

    The node does not reopen a connection that it gave up.
    """
    polling = PollingPolicy(
        poll=datetime.timedelta(seconds=0.02), first_pause=datetime.timedelta(minutes=10)
    )
    stop = threading.Event()
    node = Node(
        membership, ec.generate_private_key(ec.SECP384R1()), lambda _: Future(), polling=polling
    )
    thread = threading.Thread(target=node.run, args=(stop,))
    thread.start()
    try:
        yield node
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join()


def wait_for(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.parametrize("name", ODD)
def test_node_survives_malformed_coordinator_response_and_logs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "HEARTBEAT_SECONDS", 0.01)
    with (
        coordinator(tmp_path, ODD[name]) as membership,
        capture_logs() as logs,
        talking(membership) as node,
    ):
        wait_for(lambda: node.invalid_replies > 0)
    (said,) = (each["reason"] for each in logs if each["event"] == "failing")
    assert said.startswith("invalid reply 1 of the coordinator")


@pytest.mark.parametrize("name", REFUSED)
def test_node_refuses_incomplete_request_and_stays_online(name: str, tmp_path: Path) -> None:
    with (
        coordinator(tmp_path, REFUSED[name]) as membership,
        capture_logs() as logs,
        talking(membership) as node,
    ):
        wait_for(lambda: len(logs) >= 3)
        assert node.connection is Connection.ONLINE
    assert node.invalid_replies == 0
    assert {each["event"] for each in logs} == {"request refused"}


def bomb() -> bytes:
    with_zeros = gzip.compress(b"\x0a" + bytes(1 << 20), 9)
    return with_zeros * 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "encoding"),
    [
        (bomb, "gzip"),
        (lambda: bytes(200 << 20), None),
        (lambda: message() * (MAX_RESPONSE_BYTES // len(message())), None),
    ],
    ids=["compressed", "long", "of small parts"],
)
def test_node_memory_stays_bounded_for_huge_coordinator_responses(
    answer: Callable[[], bytes], encoding: str | None, tmp_path: Path
) -> None:
    with coordinator(tmp_path, {PULL: answer()}, encoding) as membership:
        (tmp_path / "membership").write_bytes(pickle.dumps(membership))
        done = subprocess.run(
            [sys.executable, "-c", NODE, str(tmp_path / "membership")],
            capture_output=True,
            text=True,
            check=True,
        )
    assert int(done.stdout.splitlines()[-1]) <= MOST_MEGABYTES
