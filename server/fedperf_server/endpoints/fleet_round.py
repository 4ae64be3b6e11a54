"""The messages of one round: a Flower run in which organizations are asked and answer.

A message holds one array of bytes, a serialized request or release; Flower's own records
are not used. Each organization has at most one question open and answers it once. What it
sends is not trusted: anything that is not one array of bytes counts as no body, and of an
error only a code of ours is read.
"""

import time
from collections.abc import Mapping

import structlog
from flwr.app import Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, SubStatus
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import NodeStatus
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import NoObjectInStoreError

from fedperf_server.endpoints.fleet_state import FleetState
from fedperf_server.rounds.fleet import Reply
from fedperf_server.rounds.request_body import TRAIN, body_content, body_in
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal

MESSAGE_TTL_SECONDS = 366 * 24 * 3600.0

_log = structlog.get_logger()


class GatewayError(FedperfError):
    """The gateway cannot serve; the message says why."""


class GatewayRound:
    """The messages of one round: ask organizations, collect what they answer."""

    def __init__(
        self, state: FleetState, nodes: Mapping[bytes, int], *, run_id: int, task_id: int
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._run_id = run_id
        self._task_id = task_id
        self._asked: dict[str, bytes] = {}
        self._arriving: dict[bytes, tuple[str, ObjectTree]] = {}
        self._refused: dict[bytes, Refusal | None] = {}

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body` unless the organization is offline or has a question open already."""
        node_id = self._nodes.get(organization_id)
        if node_id is None or organization_id in self._open():
            return False
        if not self._state.get_node_info(node_ids=[node_id], statuses=[NodeStatus.ONLINE]):
            return False
        message = _question(body, run_id=self._run_id, node_id=node_id)
        self._store(message)
        self._asked[message.metadata.message_id] = organization_id
        return True

    def replies(self) -> list[Reply]:
        """The replies since the last call; each organization's answer comes once."""
        self._state.acknowledge_task_heartbeat(self._task_id)
        for message in self._state.get_message_res(set(self._asked), self._run_id):
            self._take(message)
        return [*self._refusals(), *self._complete()]

    def close(self) -> None:
        """Forget everything of the round; what still arrives for it is refused."""
        self._state.finish_task(self._task_id, SubStatus.COMPLETED, "")
        self._state.cleanup_run(self._run_id)

    def _open(self) -> set[bytes]:
        return {*self._asked.values(), *self._arriving}

    def _store(self, message: Message) -> None:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects = get_all_nested_objects(message)
            tree = get_object_tree(message)
        session = self._state.start_session(self._run_id)
        envelope = make_message(metadata=message.metadata, content=RecordDict())
        stored, missing = self._state.store_message_and_object_tree(envelope, tree, session)
        if not stored:
            raise GatewayError("the fleet does not accept a message of the coordinator")
        for object_id in missing:
            self._state.store_object(self._run_id, session, object_id, objects[object_id].deflate())

    def _take(self, message: Message) -> None:
        question = message.metadata.reply_to_message_id
        organization_id = self._asked.pop(question, None)
        from_node = message.metadata.src_node_id != SUPERLINK_NODE_ID
        if organization_id is not None and from_node:
            answer = message.metadata.message_id
            if message.has_error():
                self._refused[organization_id] = Refusal.known(message.error.code)
            else:
                try:
                    tree = self._state.object_store.get_object_tree(answer)
                except NoObjectInStoreError:
                    tree = ObjectTree()
                self._arriving[organization_id] = (answer, tree)
        self._state.delete_messages({question})

    def _refusals(self) -> list[Reply]:
        refused, self._refused = self._refused, {}
        return [Reply(each, None, refusal) for each, refusal in refused.items()]

    def _complete(self) -> list[Reply]:
        done: list[Reply] = []
        for organization_id, (answer, tree) in list(self._arriving.items()):
            parts = {
                each.object_id: self._state.get_object(self._run_id, each.object_id)
                for each in iterate_object_tree(tree)
            }
            if any(part == b"" for part in parts.values()):
                continue  # still being uploaded
            del self._arriving[organization_id]
            contents = {key: part for key, part in parts.items() if part is not None}
            done.append(Reply(organization_id, _body_of(answer, contents)))
        return done


def _question(body: bytes, *, run_id: int, node_id: int) -> Message:
    metadata = Metadata(
        run_id=run_id,
        message_id="",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=node_id,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=MESSAGE_TTL_SECONDS,
        message_type=TRAIN,
    )
    return make_message(metadata=metadata, content=body_content(body))


def _body_of(message_id: str, contents: dict[str, bytes]) -> bytes | None:
    """The bytes of a reply; None for anything that is not one array of bytes."""
    try:
        message = inflate_object_from_contents(message_id, contents)
        if not isinstance(message, Message):
            return None
        return body_in(message.content)
    except Exception:  # whatever an organization sends must not stop a round
        _log.info("a reply cannot be read")
        return None
