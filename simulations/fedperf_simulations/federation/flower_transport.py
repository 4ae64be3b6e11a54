"""The messages of model rounds on Flower's simulation engine, carried by the engine's own `Grid`.

A node of the engine holds one partition, and its number is that of a member in the roster. Every
node is asked once for its partition (`query.partition`). In a round each member's node gets one
message with the request. Its answer is the release, or the code of a refusal.

A round on the engine has no clock, so `replies` waits until everybody who was asked has answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedperf_memory.memory_federation import roster_id
from fedperf_server.endpoints.gateway import TRAIN, body_content, body_in
from fedperf_server.rounds.open_round import Reply
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal

PARTITION = "partition"
"""The query that asks a node for its partition, and the record of the answer."""

TIMEOUT_SECONDS = 3600.0


class EngineError(FedperfError):
    """Flower's engine did not carry a message."""


@dataclass(slots=True)
class EngineFleet:
    """The members on the engine's nodes (`rounds.fleet.Fleet`)."""

    grid: Grid
    nodes: Mapping[bytes, int]

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """As `Fleet`; the engine lets everybody in."""

    def round(self) -> "EngineRound":
        """As `Fleet`."""
        return EngineRound(self)


@dataclass(slots=True)
class EngineRound:
    """The messages of one round (`rounds.fleet.FleetRound`)."""

    fleet: EngineFleet
    _content: tuple[bytes, RecordDict] | None = None
    _asked: dict[bytes, Message] = field(default_factory=dict)
    _sent: bool = False

    def send(self, organization_id: bytes, body: bytes) -> bool:
        """As `FleetRound`; sent together with all others, when replies are awaited."""
        node = self.fleet.nodes.get(organization_id)
        if node is None or organization_id in self._asked:
            return False
        if self._content is None or self._content[0] is not body:
            self._content = body, body_content(body)
        self._asked[organization_id] = Message(self._content[1], node, TRAIN)
        return True

    def replies(self) -> Sequence[Reply]:
        """As `FleetRound`; waits for all who were asked."""
        if self._sent or not self._asked:
            return ()
        self._sent = True
        whose = {node: each for each, node in self.fleet.nodes.items()}
        found = self.fleet.grid.send_and_receive(self._asked.values(), timeout=TIMEOUT_SECONDS)
        return [_reply(whose[each.metadata.src_node_id], each) for each in found]

    def close(self) -> None:
        """As `FleetRound`."""
        self._asked.clear()


def engine_fleet(grid: Grid) -> EngineFleet:
    """The members on the nodes of `grid`, which says which partition each holds.

    Raises:
        EngineError: a node does not say it.
    """
    asked = [
        Message(RecordDict(), node, f"query.{PARTITION}") for node in sorted(grid.get_node_ids())
    ]
    found: dict[bytes, int] = {}
    for each in grid.send_and_receive(asked, timeout=TIMEOUT_SECONDS):
        if each.has_error():
            raise EngineError(f"a node does not say its partition: {each.error.reason}")
        number = each.content.config_records[PARTITION][PARTITION]
        found[roster_id(int(str(number)))] = each.metadata.src_node_id
    if len(found) != len(asked):
        raise EngineError(f"{len(found)} of {len(asked)} nodes said which partition they hold")
    return EngineFleet(grid, found)


def partition_answer(question: Message, partition: int) -> Message:
    """The message that says which partition a node holds."""
    content = RecordDict({PARTITION: ConfigRecord({PARTITION: partition})})
    return Message(content, reply_to=question)


def _reply(organization_id: bytes, message: Message) -> Reply:
    if not message.has_error():
        return Reply(organization_id, body_in(message.content))
    return Reply(organization_id, None, Refusal.known(message.error.code))
