"""Tests of a round's algorithm in Flower's own loop."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import numpy as np
from flwr.app import ArrayRecord, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message

from fedperf_server.endpoints.flower_strategy import FlowerStrategy
from fedperf_server.endpoints.gateway import body_content, body_in
from fedperf_shared.releases.release import LinearizedParameters, SignedRelease
from fedperf_shared.wire import codec
from tests.fakes.rounds import SumsOfWeights, mean_of, sum_of_weights

if TYPE_CHECKING:
    from flwr.serverapp import Grid

SHAPES = [(2,), (1, 3)]
WEIGHTS = [np.array([1.0, 2.0], dtype=np.float32), np.zeros((1, 3), np.float32)]


class Nodes:
    """Nodes that reply at once with differences equal to their number. Node 3 has an error."""

    def get_node_ids(self) -> list[int]:
        return [1, 2, 3]

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str
    ) -> Message:
        return make_message(metadata=metadata(0, dst_node_id, group_id), content=content)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        del timeout
        return [self._reply(each) for each in messages]

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        about = metadata(node, 0, message.metadata.group_id)
        if node == 3:
            return make_message(metadata=about, error=Error(0, "refused"))
        request = codec.decode_train_request(body_in(message.content))
        arrays = [np.full(each, node, np.float32) for each in SHAPES]
        payload = codec.encode_release(sum_of_weights(request.slot, request.base_version, arrays))
        body = codec.encode_signed_release(SignedRelease(payload, b""))
        return make_message(metadata=about, content=body_content(body))


def metadata(source: int, target: int, group: str) -> Metadata:
    return Metadata(0, "", source, target, "", group, 0.0, 1.0, "train")


def test_flower_strategy_run_in_flower_loop_applies_the_algorithm_update() -> None:
    algorithm = SumsOfWeights(SHAPES, mean_of)
    strategy = FlowerStrategy(algorithm, LinearizedParameters(1.0, 100.0), 1)
    result = strategy.start(
        grid=cast("Grid", Nodes()), initial_arrays=ArrayRecord([*WEIGHTS]), num_rounds=1
    )
    changes = [[np.full(each, value, np.float32) for each in SHAPES] for value in (1.0, 2.0)]
    assert result.arrays is not None
    found = result.arrays.to_numpy_ndarrays()
    assert all(map(np.array_equal, found, mean_of(WEIGHTS, changes)))
    assert result.train_metrics_clientapp[1]["replies"] == 2
