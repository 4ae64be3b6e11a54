"""Whatever a coordinator answers, the node lives, says so, and keeps its memory."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse
from structlog.testing import capture_logs

from fedperf_client.federation.enrollment import Membership
from fedperf_client.federation.fleet import MAX_ANSWER_BYTES
from fedperf_client.federation.node import Node, Rhythm

MOST_MEGABYTES = 64

NODE = """
import datetime, pathlib, pickle, sys, threading, time
from cryptography.hazmat.primitives.asymmetric import ec
from fedperf_client.federation.node import Node, Rhythm
from fedperf_client.profiling.trials.peak_memory import peak_bytes, reset_peak

membership = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
rhythm = Rhythm(poll=datetime.timedelta(seconds=0.05))
node = Node(membership, ec.generate_private_key(ec.SECP384R1()), lambda _: b"", rhythm=rhythm)
reset_peak()
before, stop = peak_bytes(), threading.Event()
talking = threading.Thread(target=node.run, args=(stop,))
talking.start()
while node.odd_answers < 2 and talking.is_alive():
    time.sleep(0.02)
stop.set()
talking.join()
print((peak_bytes() - before) >> 20)
"""


def message(**fields: bool) -> bytes:
    """One message to the node, with a content, an error, both or neither."""
    reply = PullMessagesResponse()
    sent = reply.messages_list.add()
    sent.metadata.message_type = "train"
    if fields.get("error"):
        sent.error.code = 1
    if fields.get("content"):
        sent.content.SetInParent()
    reply.message_object_trees.add()
    return reply.SerializeToString()


ODD: dict[str, bytes] = {
    "no protocol buffer": b"\xff\xff\xff garbage",
    "neither content nor error": message(),
    "both content and error": message(content=True, error=True),
    "many messages": message(content=True) * (MAX_ANSWER_BYTES // len(message(content=True)) + 1),
}


@contextmanager
def coordinator(tmp_path: Path, answer: bytes, encoding: str | None = None) -> Iterator[Membership]:
    """A server with the pinned certificate that gives `answer` to every pull."""
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
    (tmp_path / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            pulled = self.path.endswith("/pull-messages")
            body = answer if pulled else ActivateNodeResponse(node_id=7).SerializeToString()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            if encoding is not None and pulled:
                self.send_header("content-encoding", encoding)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:  # the node hangs up
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


@pytest.mark.parametrize("name", ODD)
def test_a_node_outlives_an_odd_answer_and_says_so(name: str, tmp_path: Path) -> None:
    rhythm = Rhythm(poll=datetime.timedelta(seconds=0.02), first_pause=datetime.timedelta(0.01))
    stop = threading.Event()
    with coordinator(tmp_path, ODD[name]) as membership, capture_logs() as logs:
        node = Node(
            membership, ec.generate_private_key(ec.SECP384R1()), lambda _: b"", rhythm=rhythm
        )
        talking = threading.Thread(target=node.run, args=(stop,))
        talking.start()
        while node.odd_answers == 0 and talking.is_alive():
            time.sleep(0.01)
        assert talking.is_alive()
        stop.set()
        talking.join()
    assert logs[0]["reason"].startswith("odd answer 1 of the coordinator")
    assert len(logs) == 1


def bomb() -> bytes:
    with_zeros = gzip.compress(b"\x0a" + bytes(1 << 20), 9)
    return with_zeros * 200


@pytest.mark.parametrize(
    ("answer", "encoding"),
    [
        (bomb, "gzip"),
        (lambda: bytes(200 << 20), None),
        (lambda: message() * (MAX_ANSWER_BYTES // len(message())), None),
    ],
    ids=["compressed", "long", "of small parts"],
)
def test_no_answer_fills_the_memory_of_a_node(
    answer: Callable[[], bytes], encoding: str | None, tmp_path: Path
) -> None:
    with coordinator(tmp_path, answer(), encoding) as membership:
        (tmp_path / "membership").write_bytes(pickle.dumps(membership))
        done = subprocess.run(
            [sys.executable, "-c", NODE, str(tmp_path / "membership")],
            capture_output=True,
            text=True,
            check=True,
        )
    assert int(done.stdout.splitlines()[-1]) <= MOST_MEGABYTES
