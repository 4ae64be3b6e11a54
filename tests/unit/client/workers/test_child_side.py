"""Messages between a process and its child arrive whole, and the end is told."""

import threading
from socket import socketpair

import pytest

from fedperf_client.workers.child_side import Channel


def ends() -> tuple[Channel, Channel]:
    here, there = socketpair()
    return Channel(here.detach()), Channel(there.detach())


def test_messages_arrive_one_by_one_whatever_their_size() -> None:
    here, there = ends()
    messages = [b"", b"a\nb", b"x" * 5_000_000]
    sending = threading.Thread(target=lambda: any(map(there.send, messages)))
    sending.start()
    assert [here.receive() for _ in messages] == messages
    sending.join()
    assert not here.poll()


def test_a_closed_channel_is_an_end() -> None:
    here, there = ends()
    there.close()
    assert here.poll(None)
    with pytest.raises(EOFError):
        here.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        here.send(b"anything")
