"""A node's memory while it handles large requests: real gateway, node and sockets."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from fedperf_client.node.fleet import MAX_REQUEST_BYTES
from fedperf_server.endpoints import gateway
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.identity import private_pem
from fedperf_shared.model.architecture import ARRAY_SHAPES
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from fedperf_shared.wire.codec import (
    encode_train_request,
)
from fedperf_shared.wire.message_parts import MAX_MESSAGES
from tests.fakes.added_memory import MOST_MEGABYTES
from tests.integration.federation.test_gateway import ask, fleet, wait_for_reply

NODE = """
import pathlib, pickle, sys, threading
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from fedperf_client.node.flower_node import Node
from fedperf_client.workers.child_side import peak_bytes, reset_peak
from fedperf_shared.releases.release import SignedRelease
from tests.integration.federation.small_federation import FAST, answering

membership, key = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
ANSWER = answering(lambda _: SignedRelease(b"answered", b""))
node = Node(membership, load_pem_private_key(key, None), ANSWER, polling=FAST)
before, stop = peak_bytes(), threading.Event()
talking = threading.Thread(target=node.run, args=(stop,))
talking.start()
for _ in sys.stdin:
    print((peak_bytes() - before) >> 20, flush=True)
    reset_peak()
stop.set()
talking.join()
"""

SLOT = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
MODEL = tuple(np.ones(shape, np.float32) for shape in ARRAY_SHAPES.values())

WIDE = np.ones(MAX_REQUEST_BYTES // 4 - 800_000, np.float32)


def field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def one_row(operators: bytes) -> bytes:
    """Return a request to rehearse one row with this workflow."""
    return encode_train_request(TrainRequest(SLOT, 1, 0, ())) + field(
        6, field(1, field(1, operators))
    )


def of_many(part: bytes) -> bytes:
    return one_row(b"") + part * ((MAX_REQUEST_BYTES - 1000) // len(part))


REFUSED: dict[str, bytes] = {
    "empty rows": of_many(field(6, b"")),
    "empty arrays": of_many(field(4, b"")),
    "operators of one row": one_row(field(1, b"") * 2_400_000),
    "something unknown": of_many(field(15, bytes(4_000_000))),
    "as much as passes": encode_train_request(TrainRequest(SLOT, 1, 0, (*MODEL[:-1], WIDE)))
    + one_row(field(1, field(3, b"\x80\x02")) * (MAX_MESSAGES - 100))[4:],
}


Asked = Callable[[bytes], tuple[int, bytes | None]]
"""Returns the node's peak megabytes during a request, beyond its initial memory, and the reply."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    directory = tmp_path_factory.mktemp("fleet")
    with fleet(directory) as (port, acme), closing(port.round()) as channel:
        key = private_pem(acme.key)
        (directory / "organization").write_bytes(pickle.dumps((acme.membership, key)))
        with subprocess.Popen(
            [sys.executable, "-c", NODE, str(directory / "organization")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as node:

            def ask_node(body: bytes) -> tuple[int, bytes | None]:
                assert node.stdin is not None
                assert node.stdout is not None
                ask(channel, acme, body, 60)
                reply = wait_for_reply(channel, 60)
                assert reply is not None
                node.stdin.write(b"\n")
                node.stdin.flush()
                lines = iter(node.stdout.readline, b"")
                return int(next(line for line in lines if line.strip().isdigit())), reply.body

            try:
                yield ask_node
            finally:
                node.kill()


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_node_refuses_oversized_train_requests_within_memory_bound(name: str, asked: Asked) -> None:
    assert len(REFUSED[name]) <= MAX_REQUEST_BYTES
    added, reply = asked(REFUSED[name])
    assert added <= MOST_MEGABYTES
    assert reply is None


@pytest.mark.slow
def test_node_refuses_extra_record_in_request_within_memory_bound(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = gateway._to_request
    record = ConfigRecord({"numbers": [1] * 4_500_000})
    written = record.deflate()
    # Encoding anew for each pull is slow: the node would pull an incomplete message.
    monkeypatch.setattr(ConfigRecord, "deflate", lambda _: written)

    def with_more(body: bytes, *, run_id: int, node_id: int) -> Message:
        message = question(body, run_id=run_id, node_id=node_id)
        message.content["more"] = record
        return message

    monkeypatch.setattr(gateway, "_to_request", with_more)
    added, reply = asked(encode_train_request(TrainRequest(SLOT, 1, 0, ())))
    assert added <= MOST_MEGABYTES
    assert reply is None
