"""The Flower node of this organization serves one kind of request, by installed code.

The only message it acts on is "train" with a serialized `TrainRequest`. The handler passed in is
the way to the release gate: its future returns a SignedRelease when the slot's fixed reply time has
come. Then this organization's `ClientApp` makes the reply. A request that is wrong for public
reasons (another type, malformed, a slot that the handler refuses) gets an immediate reply with a
code of `Refusal`, and is logged. Any other failure of the handler gets no reply at all: the
coordinator sees what it would see of an organization that is offline. It sees the same of an
earlier message about the same slot, whose round it has given up: of each slot one message is kept.

One thread sends and receives everything, at a fixed interval that does not depend on the handlers.
They should work in a process of their own, so that they cannot delay it. Replies carry no run time,
and no code is ever downloaded or run. A lost connection is restored with a growing backoff.
Flower's own worker loop is not used, because it ends the process when the server refuses it.
Flower's simulation engine calls the app as it calls any
(`fedperf_simulations.federation.flower_app`).

This module imports flwr, which reads FLWR_TELEMETRY_ENABLED and FLWR_DISABLE_UPDATE_CHECK: the
program must set them before.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, unique

import httpx
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.message_pb2 import ObjectTree

from fedperf_client.node.enrollment import Membership
from fedperf_client.node.fleet import (
    MAX_OPEN_SLOTS,
    FleetClient,
    MalformedResponseError,
    fleet_client,
    to_refusal,
    to_reply,
)
from fedperf_client.node.updates import Handler, RequestRefusedError, open_request
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.releases.release import SignedRelease, SlotKey
from fedperf_shared.runtime.failure_tracker import FailureTracker
from fedperf_shared.wire.codec import encode_signed_release

CONNECTION = "the node's connection"  # its name in the failure tracker
ReleaseFor = Callable[[Message, Context], Future[SignedRelease]]
"""Returns the release that is the reply to a message; the context is the node's, as Flower has it.

Its future raises RequestRefusedError for what is wrong for public reasons, and any other error
where the request gets no reply."""

_log = structlog.get_logger()


@unique
class Connection(StrEnum):
    """The state of the node's connection to its coordinator."""

    CONNECTING = "connecting"
    ONLINE = "online"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PollingPolicy:
    """The node's polling interval and its backoff after a lost connection."""

    poll: timedelta = timedelta(seconds=1)
    first_pause: timedelta = timedelta(seconds=0.5)
    longest_pause: timedelta = timedelta(seconds=30)


class Node:
    """Keeps the organization reachable until it is stopped."""

    def __init__(
        self,
        membership: Membership,
        key: ec.EllipticCurvePrivateKey,
        handler: Handler,
        *,
        polling: PollingPolicy | None = None,
        failures: FailureTracker | None = None,
    ) -> None:
        self._failures = failures or FailureTracker()
        self._membership = membership
        self._key = key
        self._handler = handler
        self._app = client_app(self._release_for)
        self._polling = polling or PollingPolicy()
        self._waiting: dict[SlotKey, tuple[Message, Future[SignedRelease]]] = {}
        self.connection = Connection.CONNECTING
        self.invalid_replies = 0

    def run(self, stop: threading.Event) -> None:
        """Serve requests until `stop` is set; a lost connection is restored."""
        pause = self._polling.first_pause
        while not stop.is_set():
            began = time.monotonic()
            self._connect(stop)
            if time.monotonic() - began > self._polling.longest_pause.total_seconds():
                pause = self._polling.first_pause
            stop.wait(pause.total_seconds())
            pause = min(2 * pause, self._polling.longest_pause)

    def _connect(self, stop: threading.Event) -> None:
        """Serve requests over one connection, until it is lost or `stop` is set."""
        self.connection = Connection.CONNECTING
        try:
            with fleet_client(self._membership, self._key) as client:
                fleet = FleetClient(client, self._key.public_key())
                self.connection = Connection.ONLINE
                try:
                    while not stop.is_set():
                        self._beat(fleet)
                        self._failures.worked(CONNECTION)
                        stop.wait(self._polling.poll.total_seconds())
                finally:
                    fleet.leave()
        except httpx.HTTPStatusError as error:
            self.connection = Connection.REFUSED
            self._failures.failed(
                CONNECTION,
                f"the coordinator refuses this node (HTTP {error.response.status_code}); to check "
                "whether this organization is still a member, run: fedperf doctor",
            )
        except (httpx.HTTPError, OSError, RuntimeError) as error:
            self.connection = Connection.CONNECTING
            self._failures.failed(
                CONNECTION,
                f"lost: {type(error).__name__}; it is taken up again once the coordinator answers",
            )
        except Exception as error:  # the node survives any content that a server sends
            self.connection = Connection.CONNECTING
            self.invalid_replies += 1
            # The text of a library's own error may be the server's.
            is_own = isinstance(error, MalformedResponseError)
            text = str(error) if is_own else type(error).__name__
            self._failures.failed(
                CONNECTION, f"invalid reply {self.invalid_replies} of the coordinator: {text}"
            )

    def _beat(self, fleet: FleetClient) -> None:
        fleet.keep_alive()
        self._dispatch(fleet)
        for message, tree in fleet.messages():
            self._accept(fleet, message, tree)

    def _accept(self, fleet: FleetClient, message: Message, tree: ObjectTree) -> None:
        """Begin the requested work; the last message about a slot gets the reply."""
        message_id = message.metadata.message_id
        if any(message_id == each.metadata.message_id for each, _ in self._waiting.values()):
            return
        try:
            request = open_request(fleet.body(message, tree))
            self._waiting[request.slot] = (message, self._future(request))
        except RequestRefusedError as error:
            _log.warning("request refused", reason=str(error))
            fleet.reply(message, to_refusal(message, error.refusal))

    def _future(self, request: TrainRequest) -> Future[SignedRelease]:
        """Return the work on the slot: a second request for it shares the first one's."""
        waiting = self._waiting.get(request.slot)
        if waiting is None and len(self._waiting) >= MAX_OPEN_SLOTS:
            raise RequestRefusedError("too many slots at once", Refusal.BUSY)
        if waiting is not None and not waiting[1].done():
            return waiting[1]
        return self._handler(request)

    def _dispatch(self, fleet: FleetClient) -> None:
        for slot, (message, future) in list(self._waiting.items()):
            if future.done():
                reply = self._reply(message)
                if reply is not None:
                    fleet.reply(message, reply)
                del self._waiting[slot]

    def _reply(self, message: Message) -> Message | None:
        """Return the app's reply to a message whose release exists, or None if it sends none."""
        metadata = message.metadata
        context = Context(metadata.run_id, metadata.dst_node_id, {}, RecordDict(), {})
        try:
            return self._app(message, context)
        except FedperfError as error:
            _log.warning("no release for this slot", reason=str(error))
        except Exception as error:  # of the handler: the node goes on without it
            _log.error("no release for this slot", exc_info=error)
        return None

    def _release_for(self, message: Message, context: Context) -> Future[SignedRelease]:
        del context  # nothing of it is used here
        waiting = {each.metadata.message_id: future for each, future in self._waiting.values()}
        return waiting[message.metadata.message_id]


def client_app(release_for: ReleaseFor) -> ClientApp:
    """Return the app that sends what `release_for` returns, and waits for it.

    Its one handler, `train`, replies with the release of the slot that a message is about, or with
    the code of a refusal. Any other kind of message has no handler, and no message brings one.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Return the release, or a refusal; any other error of the release's future is raised."""
        try:
            signed = release_for(message, context).result()
        except RequestRefusedError as error:
            _log.warning("request refused", reason=str(error))
            return to_refusal(message, error.refusal)
        return to_reply(message, encode_signed_release(signed))

    return app
