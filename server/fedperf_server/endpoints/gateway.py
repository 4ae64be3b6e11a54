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
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import (
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    NodeStatus,
    TaskType,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.superlink.federation import NoOpFederationManager

from fedperf_server.endpoints.fleet_round import GatewayError, GatewayRound
from fedperf_server.endpoints.fleet_routes import fleet_app
from fedperf_server.endpoints.fleet_state import FleetState
from fedperf_server.endpoints.grpc_port import PortTakenError

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MAX_CONNECTIONS = 1000
_KEEP_ALIVE_SECONDS = 75


class Gateway:
    """Serves the fleet on `host:port` from `start` to `stop`; a `rounds.fleet.Fleet`."""

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
        """The port that is served; known after `start` where 0 was asked for."""
        return self._port

    def start(self) -> None:
        """Serve in a thread; returns when connections are accepted.

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
        """Let exactly these organizations (id -> public key) speak."""
        if self._members == keys:
            return
        self._members = dict(keys)
        wanted = {each: public_key_to_bytes(key) for each, key in keys.items()}
        for organization_id in [each for each in self._nodes if each not in wanted]:
            self._state.delete_node(NOOP_FLWR_AID, self._nodes.pop(organization_id))
        for organization_id, key in wanted.items():
            if organization_id not in self._nodes:
                self._nodes[organization_id] = self._state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0
                )

    def online(self) -> set[bytes]:
        """The members whose nodes are connected."""
        ids = {node.node_id for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}
        return {each for each, node_id in self._nodes.items() if node_id in ids}

    def round(self) -> GatewayRound:
        """A Flower run for one round; when it is closed, late replies are refused.

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
