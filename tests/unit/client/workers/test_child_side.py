"""Tests of messages between a process and its child: they arrive whole, and closing is detected."""

import threading
from socket import socketpair

import pytest

from fedperf_client.workers.child_side import Channel


def ends() -> tuple[Channel, Channel]:
    here, there = socketpair()
    return Channel(here.detach()), Channel(there.detach())


def test_channel_delivers_messages_of_any_size_in_order() -> None:
    here, there = ends()
    messages = [b"", b"a\nb", b"x" * 5_000_000]
    sending = threading.Thread(target=lambda: any(map(there.send, messages)))
    sending.start()
    assert [here.receive() for _ in messages] == messages
    sending.join()
    assert not here.poll()


def test_closed_channel_raises_eof_and_broken_pipe() -> None:
    here, there = ends()
    there.close()
    assert here.poll(None)
    with pytest.raises(EOFError):
        here.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        here.send(b"anything")
