"""The gateway: Flower's Fleet API, and nothing else of Flower, on one public TLS port.

The SuperLink's state lives in this process's memory and is asked directly, so
Flower's Control and Runtime APIs, which know no operator authentication, are not
served anywhere. Members come from our own database: `set_members` says which public
keys may speak. One Flower run per round: when a round closes, everything of it is
forgotten, and what still arrives for it is refused.

Refused: routes other than the fleet's (404), bodies beyond a limit (413), callers
without a member's key (401), replies of more parts than a reply can have.

Imports flwr, which reads FLWR_TELEMETRY_ENABLED and FLWR_DISABLE_UPDATE_CHECK:
the program that serves must set them before.
"""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from flwr.app import Array, ArrayRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import (
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    SubStatus,
)
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

from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal

MESSAGE_TYPE = "train"
RECORD = "body"
BODY_LIMIT = 8 << 20
"""Bytes of one HTTP request; Flower cuts arrays into parts of 5 MiB."""
MAX_REPLY_PARTS = 16
"""Objects of one reply; with `BODY_LIMIT` the most that one reply can occupy."""
MESSAGE_TTL_SECONDS = 366 * 24 * 3600.0
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MAX_CONNECTIONS = 1000
_KEEP_ALIVE_SECONDS = 75

_log = structlog.get_logger()


class GatewayError(FedperfError):
    """The gateway cannot serve; the message says why."""


@dataclass(frozen=True, slots=True)
class FleetReply:
    """What one organization answered in a round; `body` is None where it refused.

    `refusal` says why, as far as the node said so in one of our codes; what else it may have
    written is not read.
    """

    organization_id: bytes
    body: bytes | None
    refusal: Refusal | None = None


class _FleetState(InMemoryLinkState):
    """Flower's state, with three rules of ours."""

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


class FleetRound:
    """The messages of one round: ask organizations, collect what they answer."""

    def __init__(self, state: _FleetState, nodes: Mapping[bytes, int], *, run_id: int) -> None:
        self._state = state
        self._nodes = nodes
        self._run_id = run_id
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

    def replies(self) -> list[FleetReply]:
        """What arrived since the last call; each organization's answer once."""
        self._keep_alive()
        for message in self._state.get_message_res(set(self._asked), self._run_id):
            self._take(message)
        return [*self._refusals(), *self._complete()]

    def _open(self) -> set[bytes]:
        return {*self._asked.values(), *self._arriving}

    def _keep_alive(self) -> None:
        run = self._state.get_run_info(run_ids=[self._run_id])[0]
        if run.primary_task_id is not None:
            self._state.acknowledge_task_heartbeat(run.primary_task_id)

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
                self._refused[organization_id] = _refusal_of(message.error.code)
            else:
                try:
                    tree = self._state.object_store.get_object_tree(answer)
                except NoObjectInStoreError:
                    tree = ObjectTree()
                self._arriving[organization_id] = (answer, tree)
        self._state.delete_messages({question})

    def _refusals(self) -> list[FleetReply]:
        refused, self._refused = self._refused, {}
        return [FleetReply(each, None, refusal) for each, refusal in refused.items()]

    def _complete(self) -> list[FleetReply]:
        done: list[FleetReply] = []
        for organization_id, (answer, tree) in list(self._arriving.items()):
            parts = {
                each.object_id: self._state.get_object(self._run_id, each.object_id)
                for each in iterate_object_tree(tree)
            }
            if any(part == b"" for part in parts.values()):
                continue  # still being uploaded
            del self._arriving[organization_id]
            contents = {key: part for key, part in parts.items() if part is not None}
            done.append(FleetReply(organization_id, _body_of(answer, contents)))
        return done


class Gateway:
    """Serves the fleet on `host:port` from `start` to `stop`; implements `coordinator.Fleet`."""

    def __init__(self, *, bind: str, port: int, certificate: Path, private_key: Path) -> None:
        self._bind = bind
        self._port = port
        self._certificate = certificate
        self._private_key = private_key
        manager = NoOpFederationManager()
        objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self._state = _FleetState(manager, objects.store())
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, objects)
        factory.state_instance = self._state
        self._app = _fleet_app(factory)
        self._nodes: dict[bytes, int] = {}
        self._keys: dict[bytes, bytes] = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is served; known after `start` where 0 was asked for."""
        return self._port

    def start(self) -> None:
        """Serve in a thread; returns when connections are accepted.

        Raises:
            GatewayError: the port is taken or the certificate cannot be used.
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
        """Let exactly these organizations (id -> public key) speak."""
        wanted = {each: public_key_to_bytes(key) for each, key in keys.items()}
        for organization_id in [each for each in self._nodes if each not in wanted]:
            self._state.delete_node(NOOP_FLWR_AID, self._nodes.pop(organization_id))
            del self._keys[organization_id]
        for organization_id, key in wanted.items():
            if organization_id not in self._nodes:
                self._nodes[organization_id] = self._state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0
                )
                self._keys[organization_id] = key

    def online(self) -> set[bytes]:
        """The members whose nodes are connected."""
        ids = {node.node_id for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}
        return {each for each, node_id in self._nodes.items() if node_id in ids}

    @contextmanager
    def round(self) -> Iterator[FleetRound]:
        """A Flower run for one round; when it ends, late replies are refused."""
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
        try:
            yield FleetRound(self._state, self._nodes, run_id=run_id)
        finally:
            self._state.finish_task(task_id, SubStatus.COMPLETED, "")
            self._state.cleanup_run(run_id)


class _OnlyFleet:
    """ASGI filter: 404 for all but the fleet's routes, 413 beyond the body limit."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._paths = {getattr(route, "path", None) for route in fleet_router.routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["path"] not in self._paths:
            await _answer(send, 404)
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
                await _answer(send, 413)
                return
            more = event.get("more_body", False)
        body = b"".join(chunks)
        sent = False

        async def replay() -> AsgiMessage:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


async def _answer(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _fleet_app(factory: LinkStateFactory) -> ASGIApp:
    """Flower's fleet routes with its own middleware, in its order."""
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
        message_type=MESSAGE_TYPE,
    )
    array = Array(np.frombuffer(body, dtype=np.uint8))
    content = RecordDict({RECORD: ArrayRecord({RECORD: array})})
    return make_message(metadata=metadata, content=content)


def _refusal_of(code: int) -> Refusal | None:
    return Refusal(code) if code in Refusal.__members__.values() else None


def _body_of(message_id: str, contents: dict[str, bytes]) -> bytes | None:
    """The bytes of a reply; None for anything that is not one array of bytes."""
    try:
        message = inflate_object_from_contents(message_id, contents)
        if not isinstance(message, Message):
            return None
        array = message.content.array_records[RECORD][RECORD].numpy()
    except Exception:  # whatever an organization sends must not stop a round
        _log.info("a reply cannot be read")
        return None
    return array.tobytes() if array.dtype == np.uint8 else None


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise GatewayError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
