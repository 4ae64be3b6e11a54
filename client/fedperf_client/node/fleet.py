"""Flower's fleet calls, as this organization makes them for its one active node.

Responses of a server are read up to a bound, as they come: they are neither unpacked nor followed
elsewhere, and no part of them is run. Replies carry no run time.

Refused: responses that are compressed or too long, which give up the connection; requests of
another type, of too many or missing parts, or that are not bytes, which get a refusal.

This module imports flwr, which reads FLWR_TELEMETRY_ENABLED and FLWR_DISABLE_UPDATE_CHECK: the
program must set them before.
"""

import time
from functools import partial
from itertools import islice

import httpx
import numpy as np
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedperf_client.node.enrollment import Membership
from fedperf_client.node.updates import RequestRefusedError
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Refusal

MESSAGE_TYPE = "train"
RECORD = "body"
MAX_REQUEST_PARTS = 64
# Limit of a request and of its parts: a model, a linear query and rows of rehearsal.
MAX_REQUEST_BYTES = 5 << 20
# Limit of a part that is not an array's bytes: its small parts grow much when read.
MAX_RECORD_BYTES = 16 << 10
# Limit of any other reply of the coordinator: small parts grow much when read.
MAX_RESPONSE_BYTES = 256 << 10
MAX_OPEN_SLOTS = 8
# Sent to the coordinator, which considers a node offline after twice this time: long enough for one
# request over a slow line, which holds up the heartbeat.
HEARTBEAT_SECONDS = 30.0

_log = structlog.get_logger()


class MalformedResponseError(FedperfError):
    """Raised for a response that this node does not read; the connection is given up."""


class FleetClient:
    """Flower's fleet calls for one active node."""

    def __init__(self, client: FleetHttpClient, key: ec.EllipticCurvePublicKey) -> None:
        self._client = client
        reply = client.ActivateNode(
            ActivateNodeRequest(
                public_key=public_key_to_bytes(key), heartbeat_interval=HEARTBEAT_SECONDS
            )
        )
        self._node = NodeId(node_id=reply.node_id)
        self._alive_at = time.monotonic()

    def keep_alive(self) -> None:
        """Send a heartbeat when half of its interval has passed."""
        if time.monotonic() - self._alive_at < HEARTBEAT_SECONDS / 2:
            return
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)
        if not self._client.SendNodeHeartbeat(request).success:
            raise ConnectionError("the coordinator forgot this node")
        self._alive_at = time.monotonic()

    def messages(self) -> list[tuple[Message, ObjectTree]]:
        """Return the coordinator's present requests."""
        reply = self._client.PullMessages(PullMessagesRequest(node=self._node))
        pairs = zip(reply.messages_list, reply.message_object_trees, strict=False)
        return [(message_from_proto(each), tree) for each, tree in islice(pairs, MAX_OPEN_SLOTS)]

    def body(self, message: Message, tree: ObjectTree) -> bytes:
        """Return the bytes that a message carries.

        Raises:
            RequestRefusedError: it carries anything else, or too much.
        """
        if message.metadata.message_type != MESSAGE_TYPE:
            raise RequestRefusedError("this message type is not served here")
        ids = [each.object_id for each in iterate_object_tree(tree)]
        if len(ids) > MAX_REQUEST_PARTS:
            raise RequestRefusedError("a request of too many parts")
        contents = self._pull(message.metadata.run_id, ids)
        try:
            inflated = inflate_object_from_contents(message.metadata.message_id, contents)
            content = inflated.content if isinstance(inflated, Message) else RecordDict()
            array = content.array_records[RECORD][RECORD].numpy()
        except Exception:  # the node survives any content that a server sends
            raise RequestRefusedError("a request that cannot be read") from None
        if array.dtype != np.uint8:
            raise RequestRefusedError("a request that is not bytes")
        return bytes(array.tobytes())

    def reply(self, request: Message, reply: Message) -> None:
        """Send `reply`; a round that is over does not take it, which is no error."""
        try:
            self._push(reply)
            self._client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._node,
                    run_id=request.metadata.run_id,
                    message_object_id=request.metadata.message_id,
                )
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise
            _log.info("the coordinator does not take a reply any more")

    def leave(self) -> None:
        """Report that this node goes offline; best effort."""
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        except (httpx.HTTPError, RuntimeError):
            _log.info("could not say goodbye")

    def _pull(self, run_id: int, object_ids: list[str]) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for object_id in object_ids:
            reply = self._client.PullObject(
                PullObjectRequest(node=self._node, run_id=run_id, object_id=object_id)
            )
            if not reply.object_available:
                raise RequestRefusedError("a request that is not complete")
            contents[object_id] = part = reply.object_content
            if len(part) > MAX_RECORD_BYTES and not part.startswith(b"ArrayChunk "):
                raise RequestRefusedError("a request with a record that is too long")
            if sum(map(len, contents.values())) > MAX_REQUEST_BYTES:
                raise RequestRefusedError("a request that is too long")
        return contents

    def _push(self, message: Message) -> None:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects = get_all_nested_objects(message)
            tree = get_object_tree(message)
        envelope = message
        if message.has_content():
            envelope = make_message(metadata=message.metadata, content=RecordDict())
        reply = self._client.PushMessages(
            PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(envelope)],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],  # the run time is not sent
            )
        )
        for object_id in reply.objects_to_push:
            if object_id in objects:
                self._client.PushObject(
                    PushObjectRequest(
                        node=self._node,
                        run_id=message.metadata.run_id,
                        session_id=reply.session_id,
                        object_id=object_id,
                        object_content=objects[object_id].deflate(),
                    )
                )


def fleet_client(membership: Membership, key: ec.EllipticCurvePrivateKey) -> FleetHttpClient:
    """Return a client of the coordinator's fleet port that signs with the organization's key."""
    return _BoundedClient.from_server_address(
        membership.fleet_address,
        insecure=False,
        root_certificates=membership.ca_certificate,
        interceptors=[NodeAuthHttpInterceptor(key, key.public_key())],
    )


def to_reply(request: Message, body: bytes) -> Message:
    """Return the reply that carries `body`."""
    array = Array(np.frombuffer(body, dtype=np.uint8))
    content = RecordDict({RECORD: ArrayRecord({RECORD: array})})
    return make_message(metadata=_reply_metadata(request), content=content)


def to_refusal(request: Message, refusal: Refusal) -> Message:
    """Return the reply with the code of a refusal, and nothing else."""
    error = Error(int(refusal), "")
    return make_message(metadata=_reply_metadata(request), error=error)


class _BoundedClient(FleetHttpClient):
    """Reads responses as they come, up to a bound; neither unpacks nor follows them elsewhere."""

    def _send(self, context: ProtobufRequestContext, *, stream: bool = False) -> httpx.Response:
        del stream  # of the calls that a node makes none is
        call_next: ProtobufCall = self._bounded
        for interceptor in reversed(self._interceptors):
            call_next = partial(interceptor.intercept, call_next=call_next)
        return call_next(context)

    def _bounded(self, context: ProtobufRequestContext) -> httpx.Response:
        is_part = context.rpc_method.endswith("/PullObject")
        most = MAX_REQUEST_BYTES if is_part else MAX_RESPONSE_BYTES
        context.request.headers["accept-encoding"] = "identity"
        response = self._client.send(context.request, stream=True, follow_redirects=False)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise MalformedResponseError("it is compressed, which was not requested")
            content = bytearray()
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > most:
                    raise MalformedResponseError(f"it has more than {most} bytes")
        finally:
            response.close()
        return httpx.Response(response.status_code, content=bytes(content), request=context.request)


def _reply_metadata(request: Message) -> Metadata:
    metadata, now = request.metadata, time.time()
    return Metadata(
        run_id=metadata.run_id,
        message_id="",
        src_node_id=metadata.dst_node_id,
        dst_node_id=metadata.src_node_id,
        reply_to_message_id=metadata.message_id,
        group_id="",
        created_at=now,
        ttl=max(metadata.created_at + metadata.ttl - now, 1.0),
        message_type=MESSAGE_TYPE,
    )
