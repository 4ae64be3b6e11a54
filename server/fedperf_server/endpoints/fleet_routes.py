"""Flower's fleet routes as a web application, and nothing else of Flower.

The state that is served is whatever the factory hands out. Refused: routes other than the
fleet's (404), bodies beyond `BODY_LIMIT` (413), before anything of Flower sees them; callers
without a member's key (401), by Flower's own middleware.
"""

from fastapi import FastAPI
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.error import http_error_translator
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

BODY_LIMIT = 8 << 20
"""Bytes of one HTTP request; Flower cuts arrays into parts of 5 MiB."""


def fleet_app(factory: LinkStateFactory) -> ASGIApp:
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
