"""Flower's fleet as a web application: its routes, and its state with additional rules.

The application serves only the fleet's routes of Flower. It refuses other routes (404) and bodies
beyond `BODY_LIMIT` (413) before Flower processes them. Flower's own middleware refuses callers
without a member's key (401). Replies with more parts than `MAX_REPLY_PARTS` are refused. A node
that was killed may reconnect at once and gets its unanswered messages again. A deleted key may be
invited again.
"""

from fastapi import FastAPI
from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

MAX_REPLY_PARTS = 16
"""Maximum number of objects of a reply, which with `BODY_LIMIT` bounds its memory."""


class FleetState(InMemoryLinkState):
    """Flower's state with additional rules for reconnecting, deletion and size."""

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        """Let a killed node reconnect at once, and send unanswered messages again."""
        with self.lock:
            self.deactivate_node(node_id)
            for message in self.message_ins_store.values():
                is_answered = message.metadata.message_id in self.message_ins_id_to_message_res_id
                if message.metadata.dst_node_id == node_id and not is_answered:
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


BODY_LIMIT = 8 << 20
"""Maximum bytes of an HTTP request. Flower splits arrays into parts of 5 MiB."""


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
