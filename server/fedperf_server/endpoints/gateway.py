"""The gateway serves Flower's Fleet API, and nothing else of Flower, on one public TLS port.

The SuperLink's state is in this process's memory and is called directly. So Flower's Control and
Runtime APIs, which have no operator authentication, are not served. Members come from our own
database: `set_members` sets the admitted public keys. There is one Flower run per round. When a
round is closed, its state is deleted, and later messages for it are refused.

The application serves only the fleet's routes. It refuses other routes (404) and bodies beyond
`BODY_LIMIT` (413) before Flower processes them. Flower's own middleware refuses callers without a
member's key (401). Replies with more parts than `MAX_REPLY_PARTS` are refused. A node that was
killed may reconnect at once. It gets the messages again that it has not replied to. A deleted key
may be invited again.

A message holds one array of bytes, a serialized request or release. Flower's own records are not
used. Each organization has at most one open request and replies once. Replies are not trusted:
anything other than one array of bytes counts as no body, and of an error only our codes are read.

This module imports flwr, which reads FLWR_TELEMETRY_ENABLED and FLWR_DISABLE_UPDATE_CHECK. The
serving program must set them before.
"""

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import numpy as np
import structlog
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from flwr.app import Array, ArrayRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID, SubStatus
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.supercore.constant import (
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    NodeStatus,
    TaskType,
)
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import NoObjectInStoreError, ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from fedperf_server.endpoints.grpc_ports import PortTakenError
from fedperf_server.rounds.open_round import Reply
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.exchange import Refusal

MESSAGE_TTL_SECONDS = 366 * 24 * 3600.0

_log = structlog.get_logger()


class GatewayError(FedperfError):
    """Raised when the gateway cannot serve."""


TRAIN = "train"  # the type of every message of a round
BODY = "body"  # name of the record of a message, and of its array


def body_content(body: bytes) -> RecordDict:
    """Return a message's content with these bytes."""
    array = Array(np.frombuffer(body, dtype=np.uint8))
    return RecordDict({BODY: ArrayRecord({BODY: array})})


def body_in(content: RecordDict) -> bytes:
    """Return the bytes of a message's content.

    Raises:
        InvalidInputError: the array has another type than bytes.
        KeyError: there is no body.
    """
    array = content.array_records[BODY][BODY].numpy()
    if array.dtype != np.uint8:
        raise InvalidInputError(f"a body must be bytes, got {array.dtype}")
    return array.tobytes()


# Maximum number of objects of a reply, which with `BODY_LIMIT` bounds its memory.
MAX_REPLY_PARTS = 16


class FleetState(InMemoryLinkState):
    """Flower's state with additional rules for reconnecting, deletion and size."""

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        """Let a killed node reconnect at once, and send it messages without a reply again."""
        with self.lock:
            self.deactivate_node(node_id)
            for message in self.message_ins_store.values():
                has_reply = message.metadata.message_id in self.message_ins_id_to_message_res_id
                if message.metadata.dst_node_id == node_id and not has_reply:
                    message.metadata.delivered_at = ""
            return super().activate_node(node_id, heartbeat_interval)

    def delete_node(self, owner_aid: str, node_id: int) -> None:
        """Delete a node, also one that was never online, for which Flower 1.41 raises TypeError."""
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
        """Store a message, unless it has more than `MAX_REPLY_PARTS` parts."""
        if sum(1 for _ in iterate_object_tree(object_tree)) > MAX_REPLY_PARTS:
            return False, []
        return super().store_message_and_object_tree(message, object_tree, session_id)


BODY_LIMIT = 8 << 20  # maximum bytes of an HTTP request. Flower splits arrays into parts of 5 MiB.


def fleet_app(factory: LinkStateFactory) -> ASGIApp:
    """Return Flower's fleet routes with Flower's own middleware, in its order."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
        ],
    )
    app.state.linkstate_factory = factory
    app.state.enable_supernode_auth = True
    app.include_router(fleet_router)
    return _OnlyFleet(app)


class _OnlyFleet:
    """An ASGI filter that sends 404 for other routes and 413 beyond the body limit."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._paths = {getattr(route, "path", None) for route in fleet_router.routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["path"] not in self._paths:
            await _respond(send, 404)
        else:
            await self._limited(scope, receive, send)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks: list[bytes] = []
        size = 0
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            chunks.append(event.get("body", b""))
            size += len(chunks[-1])
            if size > BODY_LIMIT:
                await _respond(send, 413)
                return
            more = event.get("more_body", False)
        body = b"".join(chunks)
        is_replayed = False

        async def replay() -> AsgiMessage:
            nonlocal is_replayed
            if is_replayed:
                return await receive()
            is_replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


async def _respond(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True, eq=False, repr=False)
class GatewayRound:
    """The messages of one round: requests to organizations, and their replies."""

    state: FleetState
    nodes: Mapping[bytes, int]
    _: KW_ONLY
    run_id: int
    task_id: int
    _requests: dict[str, bytes] = field(default_factory=dict, init=False)
    _arriving: dict[bytes, tuple[str, ObjectTree]] = field(default_factory=dict, init=False)
    _refused: dict[bytes, Refusal | None] = field(default_factory=dict, init=False)

    def send(self, organization_id: bytes, body: bytes) -> bool:
        """Send `body`, unless the organization is offline or has an open request."""
        node_id = self.nodes.get(organization_id)
        if node_id is None or organization_id in {
            *self._requests.values(),
            *self._arriving,
        }:
            return False
        if not self.state.get_node_info(node_ids=[node_id], statuses=[NodeStatus.ONLINE]):
            return False
        message = _to_request(body, run_id=self.run_id, node_id=node_id)
        self._store(message)
        self._requests[message.metadata.message_id] = organization_id
        return True

    def replies(self) -> list[Reply]:
        """Return the replies since the last call, one per organization."""
        self.state.acknowledge_task_heartbeat(self.task_id)
        for message in self.state.get_message_res(set(self._requests), self.run_id):
            self._take(message)
        refused, self._refused = self._refused, {}
        refusals = [Reply(each, None, refusal) for each, refusal in refused.items()]
        return [*refusals, *self._complete()]

    def close(self) -> None:
        """Delete the round's state; later messages for it are refused."""
        self.state.finish_task(self.task_id, SubStatus.COMPLETED, "")
        self.state.cleanup_run(self.run_id)

    def _store(self, message: Message) -> None:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects = get_all_nested_objects(message)
            tree = get_object_tree(message)
        session = self.state.start_session(self.run_id)
        envelope = make_message(metadata=message.metadata, content=RecordDict())
        stored, missing = self.state.store_message_and_object_tree(envelope, tree, session)
        if not stored:
            raise GatewayError("the fleet does not accept a message of the coordinator")
        for object_id in missing:
            self.state.store_object(self.run_id, session, object_id, objects[object_id].deflate())

    def _take(self, message: Message) -> None:
        request_id = message.metadata.reply_to_message_id
        organization_id = self._requests.pop(request_id, None)
        is_from_node = message.metadata.src_node_id != SUPERLINK_NODE_ID
        if organization_id is not None and is_from_node:
            reply_id = message.metadata.message_id
            if message.has_error():
                self._refused[organization_id] = Refusal.from_code(message.error.code)
            else:
                try:
                    tree = self.state.object_store.get_object_tree(reply_id)
                except NoObjectInStoreError:
                    tree = ObjectTree()
                self._arriving[organization_id] = (reply_id, tree)
        self.state.delete_messages({request_id})

    def _complete(self) -> list[Reply]:
        replies: list[Reply] = []
        for organization_id, (reply_id, tree) in list(self._arriving.items()):
            parts = {
                each.object_id: self.state.get_object(self.run_id, each.object_id)
                for each in iterate_object_tree(tree)
            }
            if any(part == b"" for part in parts.values()):
                continue  # still being uploaded
            del self._arriving[organization_id]
            contents = {key: part for key, part in parts.items() if part is not None}
            replies.append(Reply(organization_id, _read_body(reply_id, contents)))
        return replies


def _to_request(body: bytes, *, run_id: int, node_id: int) -> Message:
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


def _read_body(message_id: str, contents: dict[str, bytes]) -> bytes | None:
    """Return the bytes of a reply, or None if it is not one array of bytes."""
    try:
        message = inflate_object_from_contents(message_id, contents)
        if not isinstance(message, Message):
            return None
        return body_in(message.content)
    except Exception:  # no reply may stop a round
        _log.info("a reply cannot be read")
        return None


_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MAX_CONNECTIONS = 1000
_KEEP_ALIVE_SECONDS = 75


class Gateway:
    """A `rounds.open_round.Fleet` that serves on a port from `start` to `stop`."""

    def __init__(self, *, bind: str, port: int, certificate: Path, private_key: Path) -> None:
        self._bind = bind
        self._port = port
        self._certificate = certificate
        self._private_key = private_key
        manager = NoOpFederationManager()
        objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self._state = FleetState(manager, objects.store())
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, objects)
        factory.state_instance = self._state
        self._app = fleet_app(factory)
        self._nodes: dict[bytes, int] = {}
        self._members: dict[bytes, ec.EllipticCurvePublicKey] = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Return the served port; if it was configured as 0, call this after `start`."""
        return self._port

    def start(self) -> None:
        """Serve in a thread, and return when connections are accepted.

        Raises:
            PortTakenError: the port is taken.
            GatewayError: the certificate cannot be used.
        """
        listener = _listen(self._bind, self._port)
        self._port = listener.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                ssl_certfile=self._certificate,
                ssl_keyfile=self._private_key,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=2,
            )
        )
        server = self._server
        self._thread = threading.Thread(
            target=lambda: server.run(sockets=[listener]), name="gateway", daemon=True
        )
        self._thread.start()
        give_up = time.monotonic() + _START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > give_up:
                listener.close()
                raise GatewayError(f"the gateway does not start on {self._bind}:{self._port}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop serving; a second call does nothing."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
        self._server = self._thread = None

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """Admit exactly these organizations (id -> public key)."""
        if self._members == keys:
            return
        self._members = dict(keys)
        admitted = {each: public_key_to_bytes(key) for each, key in keys.items()}
        for organization_id in [each for each in self._nodes if each not in admitted]:
            self._state.delete_node(NOOP_FLWR_AID, self._nodes.pop(organization_id))
        for organization_id, key in admitted.items():
            if organization_id not in self._nodes:
                self._nodes[organization_id] = self._state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0
                )

    def online(self) -> set[bytes]:
        """Return the members whose nodes are connected."""
        ids = {node.node_id for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}
        return {each for each, node_id in self._nodes.items() if node_id in ids}

    def round(self) -> GatewayRound:
        """Start a Flower run for one round; after it is closed, replies are refused.

        Raises:
            GatewayError: the fleet does not start a run.
        """
        run_id = self._state.create_run(
            None,
            None,
            None,
            {},
            NOOP_FEDERATION_ID,
            None,
            NOOP_FLWR_AID,
            TaskType.SERVER_APP,
        )
        task_id = self._state.get_run_info(run_ids=[run_id])[0].primary_task_id
        if task_id is None or self._state.claim_task(task_id) is None:
            raise GatewayError("the fleet does not start a run")
        self._state.activate_task(task_id)
        return GatewayRound(self._state, self._nodes, run_id=run_id, task_id=task_id)


def _listen(host: str, port: int) -> socket.socket:
    with ExitStack() as stack:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError as error:
            address, reason = f"{host}:{port}", error.strerror or str(error)
            raise PortTakenError(address, "fleet_port", reason) from error
        stack.pop_all()
    return listener
