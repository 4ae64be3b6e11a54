"""The state of the fleet: Flower's SuperLink state in this process's memory, with rules of our own.

A node that was killed may return at once and gets its unanswered messages again. A node that was
never online can be deleted. A key that was deleted may be invited again. Refused: a reply of more
parts than `MAX_REPLY_PARTS`.
"""

from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import InMemoryLinkState
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

MAX_REPLY_PARTS = 16
"""Objects of one reply; with `fleet_routes.BODY_LIMIT` the most that one reply can occupy."""


class FleetState(InMemoryLinkState):
    """Flower's state, with our rules of returning, deletion and size."""

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        """Let a node that was killed return at once, and hand it unanswered messages again."""
        with self.lock:
            self.deactivate_node(node_id)
            for message in self.message_ins_store.values():
                answered = message.metadata.message_id in self.message_ins_id_to_message_res_id
                if message.metadata.dst_node_id == node_id and not answered:
                    message.metadata.delivered_at = ""
            return super().activate_node(node_id, heartbeat_interval)

    def delete_node(self, owner_aid: str, node_id: int) -> None:
        """Delete also a node that was never online, where Flower 1.41 raises TypeError."""
        with self.lock:
            node = self.nodes.get(node_id)
            if node is not None and node.online_until is None:
                node.online_until = 0.0
            super().delete_node(owner_aid, node_id)
            if node is not None:  # the same key may be invited again
                self.node_public_key_to_node_id.pop(node.public_key, None)

    def store_message_and_object_tree(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """Refuse a reply of more parts than a reply can have."""
        if sum(1 for _ in iterate_object_tree(object_tree)) > MAX_REPLY_PARTS:
            return False, []
        return super().store_message_and_object_tree(message, object_tree, session_id)
