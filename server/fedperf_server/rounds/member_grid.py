"""The members of one round as a Flower `Grid`, which carries requests and replies of a strategy.

A node of the grid is a member whose schedule contains the slot. A member gets the request while it
is connected, and its first reply counts. The grid verifies every reply, so that a strategy gets
only accepted updates and errors. `replies` holds accepted updates and reasons of refusal.

A `FleetRound` carries the bytes: the gateway, function calls, or Flower's own Grid in its
simulation engine. Only `send_and_receive` waits.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedperf_server.membership.enrollment import Member
from fedperf_server.rounds.open_round import FleetRound, OpenRound, Reply, RoundReplies
from fedperf_server.rounds.round_messages import TRAIN, AcceptedUpdate, body_in
from fedperf_server.state.validation import Reason, RejectedReleaseError, check_place, open_update
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.release import Slot, Update

POLL_SECONDS = 0.1
"""Polling interval of `send_and_receive`."""


class MemberGrid(Grid):
    """The `flwr.serverapp.Grid` of one round.

    Attributes:
        replies: admitted organizations (`replies.schedules`) and their replies.
    """

    def __init__(
        self, channel: FleetRound, opened: OpenRound, *, check: Callable[[Update, Slot], None]
    ) -> None:
        """Make the grid; `check` refuses updates that the round's strategy cannot use."""
        self.replies = RoundReplies()
        self._channel = channel
        self._opened = opened
        self._check = check
        self._members: Mapping[bytes, Member] = {}
        self._sent: tuple[RecordDict, bytes] | None = None

    def set_members(self, members: Mapping[bytes, Member]) -> None:
        """Set the current members. Replies of revoked members are refused."""
        self._members = members
        for organization_id in self.replies.schedules.keys() - members.keys():
            self.replies.accepted.pop(organization_id, None)
            self.replies.refused[organization_id] = Reason.REVOKED

    def set_run(self, run: Run) -> None:
        """Raise InvalidInputError, as a round has no Flower run."""
        raise InvalidInputError(f"a round has no Flower run, got run {run.run_id}")

    @property
    def run(self) -> Run:
        """Raise InvalidInputError, as a round has no Flower run."""
        raise InvalidInputError("a round has no Flower run")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message as `Grid.create_message`. It is not stored and never expires."""
        del ttl
        metadata = _metadata(SUPERLINK_NODE_ID, dst_node_id, group_id, message_type)
        return make_message(metadata=metadata, content=content)

    def get_node_ids(self) -> list[int]:
        """Return the admitted nodes that have not replied."""
        return [int.from_bytes(each) for each in self.replies.schedules if self._is_open(each)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send the messages to connected nodes without a request, and return their ids.

        Raises:
            KeyError: a message has no body, or its node was not admitted.
            InvalidInputError: a body is not bytes.
        """
        sent, ids = [], {int.from_bytes(each): each for each in self.replies.schedules}
        for message in messages:
            organization_id = ids[message.metadata.dst_node_id]
            if self._channel.ask(organization_id, self._body(message.content)):
                sent.append(message_id(organization_id))
        return sent

    def receive(self) -> None:
        """Verify the replies that have arrived."""
        for reply in self._channel.replies():
            member = self._members.get(reply.organization_id)
            is_admitted = reply.organization_id in self.replies.schedules
            if member is not None and is_admitted and self._is_open(reply.organization_id):
                self._verify(reply, member)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to these messages so far, ordered by the members' ids.

        An accepted update is a message with its content, a refused one an error with the reason.
        A later call returns them again.
        """
        self.receive()
        ids, replies = set(message_ids), dict[bytes, Message]()
        for organization_id, (_, update) in self.replies.accepted.items():
            replies[organization_id] = _reply(organization_id, content=update.content())
        for organization_id, reason in self.replies.refused.items():
            error = Error(ErrorCode.UNKNOWN, reason.value)
            replies[organization_id] = _reply(organization_id, error=error)
        return [each for key, each in sorted(replies.items()) if message_id(key) in ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, and wait until all have replied or `timeout` seconds are over."""
        sent = self.push_messages(messages)
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            replies = self.pull_messages(sent)
            if len(replies) == len(sent) or (ends is not None and time.monotonic() >= ends):
                return replies
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """End the round; later replies are refused."""
        self._channel.close()

    def _is_open(self, organization_id: bytes) -> bool:
        return not self.replies.answered(organization_id)

    def _body(self, content: RecordDict) -> bytes:
        """Return the bytes of a request, cached as many messages share them."""
        if self._sent is None or self._sent[0] is not content:
            self._sent = content, body_in(content)
        return self._sent[1]

    def _verify(self, reply: Reply, member: Member) -> None:
        organization_id, replies = member.organization_id, self.replies
        replies.sizes[organization_id] = len(reply.body or b"")
        try:
            signed, update = open_update(reply.body, member.public_key, refusal=reply.refusal)
            slot = check_place(
                update,
                replies.schedules[organization_id],
                slot=self._opened.slot,
                base_version=self._opened.base_version,
            )
            self._check(update, slot)
            accepted = AcceptedUpdate(TANGENT_UPDATE.as_release(update), slot)
            replies.accepted[organization_id] = (signed, accepted)
        except RejectedReleaseError as error:
            replies.refused[organization_id] = error.reason


def message_id(organization_id: bytes) -> str:
    """Return the id of the round's message to that member."""
    return organization_id.hex()


def _reply(
    organization_id: bytes, *, content: RecordDict | None = None, error: Error | None = None
) -> Message:
    node, replied_to = int.from_bytes(organization_id), message_id(organization_id)
    metadata = _metadata(node, SUPERLINK_NODE_ID, "", TRAIN, replied_to=replied_to)
    if content is not None:
        return make_message(metadata=metadata, content=content)
    return make_message(metadata=metadata, error=error)


def _metadata(source: int, target: int, group: str, kind: str, *, replied_to: str = "") -> Metadata:
    """Return metadata without times, as messages do not outlive their round."""
    return Metadata(0, "", source, target, replied_to, group, 0.0, 1.0, kind)
