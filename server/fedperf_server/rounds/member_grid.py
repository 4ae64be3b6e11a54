"""The members of one round as a Flower `Grid`, through which a strategy asks and gets answers.

A node of the grid is a member whose schedule holds the slot. A member is asked while it is
connected, and its first answer counts. The grid opens and checks every answer, so a strategy sees
only accepted updates and errors. `replies` keeps what was accepted, and why the rest was refused.

A `fleet.FleetRound` below the grid carries the bytes: the gateway, function calls, or Flower's
own Grid in its simulation engine. Nothing here waits, apart from `send_and_receive`.
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
"""Between two looks of `send_and_receive`."""


class MemberGrid(Grid):
    """As `flwr.serverapp.Grid`, of one round.

    Attributes:
        replies: who was let in (`replies.schedules`), and what came of them.
    """

    def __init__(
        self, channel: FleetRound, opened: OpenRound, *, check: Callable[[Update, Slot], None]
    ) -> None:
        """`check` refuses an update that the round's strategy cannot use."""
        self.replies = RoundReplies()
        self._channel = channel
        self._opened = opened
        self._check = check
        self._members: Mapping[bytes, Member] = {}
        self._sent: tuple[RecordDict, bytes] | None = None

    def set_members(self, members: Mapping[bytes, Member]) -> None:
        """Set today's members; one that was let in and is no member any more counts no longer."""
        self._members = members
        for organization_id in self.replies.schedules.keys() - members.keys():
            self.replies.accepted.pop(organization_id, None)
            self.replies.refused[organization_id] = Reason.REVOKED

    def set_run(self, run: Run) -> None:
        """A round has no run of Flower's; InvalidInputError."""
        raise InvalidInputError(f"a round is no run of Flower's, so run {run.run_id} is not its")

    @property
    def run(self) -> Run:
        """A round has no run of Flower's; InvalidInputError."""
        raise InvalidInputError("a round is no run of Flower's")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As `Grid.create_message`; nothing is stored yet, and nothing expires."""
        del ttl
        metadata = _metadata(SUPERLINK_NODE_ID, dst_node_id, group_id, message_type)
        return make_message(metadata=metadata, content=content)

    def get_node_ids(self) -> list[int]:
        """Whoever was let in and has not answered."""
        return [int.from_bytes(each) for each in self.replies.schedules if self._is_open(each)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send the messages to whoever is connected and has none yet; the ids of these.

        Raises:
            KeyError: a message without a body, or to nobody who was let in.
            InvalidInputError: its body is no bytes.
        """
        sent, whose = [], {int.from_bytes(each): each for each in self.replies.schedules}
        for message in messages:
            organization_id = whose[message.metadata.dst_node_id]
            if self._channel.ask(organization_id, self._body(message.content)):
                sent.append(message_id(organization_id))
        return sent

    def take(self) -> None:
        """Open and check what has arrived."""
        for reply in self._channel.replies():
            member = self._members.get(reply.organization_id)
            asked = reply.organization_id in self.replies.schedules
            if member is not None and asked and self._is_open(reply.organization_id):
                self._judge(reply, member)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers to these messages so far, in the order of the members' ids.

        An accepted update is a message with its content, a refused one an error that names the
        reason. Asked again they are given again.
        """
        self.take()
        wanted, found = set(message_ids), dict[bytes, Message]()
        for organization_id, (_, answer) in self.replies.accepted.items():
            found[organization_id] = _reply(organization_id, content=answer.content())
        for organization_id, reason in self.replies.refused.items():
            error = Error(ErrorCode.UNKNOWN, reason.value)
            found[organization_id] = _reply(organization_id, error=error)
        return [each for whose, each in sorted(found.items()) if message_id(whose) in wanted]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, and wait until all have answered or `timeout` seconds are over."""
        sent = self.push_messages(messages)
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            answered = self.pull_messages(sent)
            if len(answered) == len(sent) or (ends is not None and time.monotonic() >= ends):
                return answered
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """End the round: late replies are refused."""
        self._channel.close()

    def _is_open(self, organization_id: bytes) -> bool:
        return not self.replies.answered(organization_id)

    def _body(self, content: RecordDict) -> bytes:
        """The bytes of a request, which is the same for many."""
        if self._sent is None or self._sent[0] is not content:
            self._sent = content, body_in(content)
        return self._sent[1]

    def _judge(self, reply: Reply, member: Member) -> None:
        organization_id, gathered = member.organization_id, self.replies
        gathered.sizes[organization_id] = len(reply.body or b"")
        try:
            signed, update = open_update(reply.body, member.public_key, refusal=reply.refusal)
            slot = check_place(
                update,
                gathered.schedules[organization_id],
                slot=self._opened.slot,
                base_version=self._opened.base_version,
            )
            self._check(update, slot)
            accepted = AcceptedUpdate(TANGENT_UPDATE.as_release(update), slot)
            gathered.accepted[organization_id] = (signed, accepted)
        except RejectedReleaseError as error:
            gathered.refused[organization_id] = error.reason


def message_id(organization_id: bytes) -> str:
    """The id of the round's one message to that member."""
    return organization_id.hex()


def _reply(
    organization_id: bytes, *, content: RecordDict | None = None, error: Error | None = None
) -> Message:
    node, answered = int.from_bytes(organization_id), message_id(organization_id)
    metadata = _metadata(node, SUPERLINK_NODE_ID, "", TRAIN, answered=answered)
    if content is not None:
        return make_message(metadata=metadata, content=content)
    return make_message(metadata=metadata, error=error)


def _metadata(source: int, target: int, group: str, kind: str, *, answered: str = "") -> Metadata:
    """Without times, as a message of a round lives and dies with it."""
    return Metadata(0, "", source, target, answered, group, 0.0, 1.0, kind)
