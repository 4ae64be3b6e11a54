"""A node's memory under many requests, with a fake fleet and without sockets."""

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import pytest
from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message
from flwr.proto.message_pb2 import ObjectTree

from fedperf_client.node import flower_node as node_module
from fedperf_client.node.enrollment import Membership
from fedperf_client.node.fleet import MAX_OPEN_SLOTS
from fedperf_client.node.flower_node import Node, PollingPolicy
from fedperf_client.workers.worker_process import in_thread
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.release import ReleaseKind, SignedRelease, SlotKey
from fedperf_shared.wire.codec import encode_train_request

QUESTIONS = 5000
SLOT = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
MEMBERSHIP = Membership(bytes(16), b"", b"", b"", "127.0.0.1:1", "127.0.0.1:2")


class Insisting:
    """A fleet that sends many different requests for one slot."""

    def __init__(self) -> None:
        self.left = list(range(QUESTIONS))
        self.asked = threading.Event()
        self.answered = threading.Event()
        self.replies: list[Message] = []
        self.kept: weakref.WeakSet[Message] = weakref.WeakSet()

    def keep_alive(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def messages(self) -> list[tuple[Message, ObjectTree]]:
        now, self.left = self.left[:MAX_OPEN_SLOTS], self.left[MAX_OPEN_SLOTS:]
        if not now:
            self.asked.set()
        return [(self._question(str(number)), ObjectTree()) for number in now]

    def body(self, message: Message, tree: ObjectTree) -> bytes:
        del message, tree
        return encode_train_request(TrainRequest(SLOT, 7, 1, ()))

    def reply(self, question: Message, answer: Message) -> None:
        del question
        self.replies.append(answer)
        self.answered.set()

    def _question(self, message_id: str) -> Message:
        metadata = Metadata(1, message_id, 1, 7, "", "", 0.0, 1e9, "train")
        message = make_message(metadata=metadata, error=Error(0, ""))
        self.kept.add(message)
        return message


@contextmanager
def running(node: Node) -> Iterator[None]:
    stop = threading.Event()
    talking = threading.Thread(target=node.run, args=(stop,))
    talking.start()
    try:
        yield
    finally:
        stop.set()
        talking.join(10)


def test_node_stores_few_messages_per_slot_and_replies_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, due = Insisting(), threading.Event()
    monkeypatch.setattr(node_module, "fleet_client", lambda membership, key: nullcontext())
    monkeypatch.setattr(node_module, "FleetClient", lambda client, key: fleet)

    def release() -> SignedRelease:
        due.wait(60)
        return SignedRelease(b"release", b"")

    def at_the_reply_time(request: TrainRequest) -> Future[SignedRelease]:
        del request
        return in_thread(release)

    polling = PollingPolicy(poll=timedelta(0))
    with running(Node(MEMBERSHIP, new_private_key(), at_the_reply_time, polling=polling)):
        assert fleet.asked.wait(60)
        gc.collect()
        kept = len(fleet.kept)
        due.set()
        assert fleet.answered.wait(10)
    assert kept <= MAX_OPEN_SLOTS + 1
    assert [each.metadata.reply_to_message_id for each in fleet.replies] == [str(QUESTIONS - 1)]
