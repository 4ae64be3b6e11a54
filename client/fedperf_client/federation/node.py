"""The Flower node of this organization: answers one closed kind of request.

The only message it acts on is "train" with a serialized `TrainRequest`. The handler passed in is
the release door: its future gives a SignedRelease when the slot's fixed reply time has come. Then
the answer is made by this organization's `ClientApp` (`client_app`). What is wrong for public
reasons (another type, malformed, a slot that the handler refuses) is answered at once with a code
of `Refusal`, and said in the log. Any other failure of the handler is not answered at all: the
coordinator sees what it would see of an organization that is offline. So it sees of an earlier
message about the same slot, whose round it has given up: however many come, one of a slot is kept.

One thread does all talking, at a fixed rhythm that does not depend on what the handlers do. Let
them work in a process of their own, so that they cannot slow it. Replies carry no run time, and no
code is ever downloaded or run. A lost connection is taken up again with growing pauses. Flower's
own worker loop is not used, because it ends the process when the server refuses it.

Imports flwr, which reads FLWR_TELEMETRY_ENABLED and FLWR_DISABLE_UPDATE_CHECK:
the program must set them before.
"""

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, unique
from typing import TYPE_CHECKING

import httpx
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree

from fedperf_client.federation.client_app import client_app
from fedperf_client.federation.enrollment import Membership
from fedperf_client.federation.fleet import (
    MAX_OPEN_SLOTS,
    FleetClient,
    MalformedResponseError,
    fleet_client,
    refusal_of,
)
from fedperf_client.federation.request import Handler, RequestRefusedError, open_request
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal, TrainRequest
from fedperf_shared.releases.release import SignedRelease
from fedperf_shared.runtime.failure_tracker import FailureTracker

if TYPE_CHECKING:
    from fedperf_shared.releases.release import SlotKey

CONNECTION = "the node's connection"
"""The name of this failure."""

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
        self._work: dict[SlotKey, Future[SignedRelease]] = {}
        self._waiting: dict[SlotKey, tuple[Message, Future[SignedRelease]]] = {}
        self.connection = Connection.CONNECTING
        self.odd_answers = 0

    def run(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set; a lost connection is taken up again."""
        pause = self._polling.first_pause
        while not stop.is_set():
            began = time.monotonic()
            self._connected(stop)
            if time.monotonic() - began > self._polling.longest_pause.total_seconds():
                pause = self._polling.first_pause
            stop.wait(pause.total_seconds())
            pause = min(2 * pause, self._polling.longest_pause)

    def _connected(self, stop: threading.Event) -> None:
        """One connection, until it is lost or `stop` is set."""
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
            self._failures.failed(CONNECTION, _refused(error.response.status_code))
        except (httpx.HTTPError, OSError, RuntimeError) as error:
            self.connection = Connection.CONNECTING
            said = (
                f"lost: {type(error).__name__}; it is taken up again once the coordinator answers"
            )
            self._failures.failed(CONNECTION, said)
        except Exception as error:  # whatever a server sends, the node goes on
            self.connection = Connection.CONNECTING
            self.odd_answers += 1
            said = f"odd answer {self.odd_answers} of the coordinator: {_said(error)}"
            self._failures.failed(CONNECTION, said)

    def _beat(self, fleet: FleetClient) -> None:
        fleet.keep_alive()
        self._dispatch(fleet)
        for message, tree in fleet.messages():
            self._accept(fleet, message, tree)

    def _accept(self, fleet: FleetClient, message: Message, tree: ObjectTree) -> None:
        """Begin the work on what a message asks; the last message about a slot is answered."""
        message_id = message.metadata.message_id
        if any(message_id == each.metadata.message_id for each, _ in self._waiting.values()):
            return
        try:
            request = open_request(fleet.body(message, tree))
            self._waiting[request.slot] = (message, self._future(request))
        except RequestRefusedError as error:
            self._refuse(fleet, message, error)

    def _refuse(self, fleet: FleetClient, message: Message, error: RequestRefusedError) -> None:
        _log.warning("request refused", reason=str(error))
        fleet.reply(message, refusal_of(message, error.refusal))

    def _future(self, request: TrainRequest) -> Future[SignedRelease]:
        """The work on the slot: a second request for it shares the first one's."""
        for slot in [slot for slot, future in self._work.items() if future.done()]:
            del self._work[slot]
        if request.slot not in self._work:
            if len(self._work) >= MAX_OPEN_SLOTS:
                raise RequestRefusedError("too many slots at once", Refusal.BUSY)
            self._work[request.slot] = self._handler(request)
        return self._work[request.slot]

    def _dispatch(self, fleet: FleetClient) -> None:
        for slot, (message, future) in list(self._waiting.items()):
            if future.done():
                answer = self._answer(message)
                if answer is not None:
                    fleet.reply(message, answer)
                del self._waiting[slot]

    def _answer(self, message: Message) -> Message | None:
        """Return the app's reply to a message whose release exists, or None if it sends none."""
        asked = message.metadata
        context = Context(asked.run_id, asked.dst_node_id, {}, RecordDict(), {})
        try:
            return self._app(message, context)
        except FedperfError as error:
            _log.warning("no release for this slot", reason=str(error))
        except Exception as error:  # of the release door: the node goes on without it
            _log.error("no release for this slot", exc_info=error)
        return None

    def _release_for(self, message: Message, context: Context) -> Future[SignedRelease]:
        del context  # it says nothing that is followed here
        waiting = {each.metadata.message_id: future for each, future in self._waiting.values()}
        return waiting[message.metadata.message_id]


def _refused(status: int) -> str:
    return (
        f"the coordinator refuses this node (HTTP {status}); whether this organization is still "
        "a member is told by: fedperf doctor"
    )


def _said(error: Exception) -> str:
    """An error in words; of a library's own only the kind, for the text may be the server's."""
    return str(error) if isinstance(error, MalformedResponseError) else type(error).__name__
