"""The algorithm of a model round as a Flower `Strategy`, for Flower's own loop.

`FlowerStrategy(LinearizedAvg(anchors), ...).start(grid, initial_arrays, num_rounds)` runs rounds on
any `Grid` whose nodes run `fedperf_client.node.flower_node`. The product's coordinator calls
the algorithm itself (`fedperf_server.rounds.model_rounds`), because weeks may pass within a round
and Flower's loop stores nothing on disk. Nodes never evaluate, and signatures are not verified.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedperf_server.endpoints.gateway import TRAIN, body_content, body_in
from fedperf_server.rounds.open_round import AcceptedUpdate, RoundStrategy
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.kinds import TANGENT_UPDATE
from fedperf_shared.releases.release import LinearizedParameters, ReleaseKind, Slot, SlotKey
from fedperf_shared.wire.codec import (
    decode_release,
    decode_signed_release,
    encode_train_request,
)

_log = structlog.get_logger()


@dataclass(eq=False)
class FlowerStrategy(Strategy):
    """Flower's interface to a round's algorithm, one slot of window 0 per round."""

    algorithm: RoundStrategy  # designs the linear query, checks updates and computes the next model
    parameters: LinearizedParameters  # parameters that every node declared for its slots
    architecture: int  # number of the model's architecture on the wire
    _request: TrainRequest | None = field(default=None, init=False, repr=False)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one message to each node of the grid, with the same request."""
        del config
        current, steps_made = arrays.to_numpy_ndarrays(), server_round - 1
        query = self.algorithm.design_query(current, steps_made=steps_made)
        slot = SlotKey(ReleaseKind.MODEL_UPDATE, 0, steps_made)
        self._request = TrainRequest(slot, self.architecture, server_round, tuple(current), query)
        content = body_content(encode_train_request(self._request))
        return [
            grid.create_message(content, TRAIN, node, str(server_round))
            for node in grid.get_node_ids()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model from the replies without errors, or None without any.

        Raises:
            RejectedReleaseError: the algorithm cannot use an update.
        """
        del server_round
        request = self._request
        updates = []
        for each in replies:
            if request is None or each.has_error():
                continue
            signed = decode_signed_release(body_in(each.content))
            update = TANGENT_UPDATE.as_release(decode_release(signed.payload))
            slot = Slot(request.slot, self.parameters)
            self.algorithm.check(update, slot)
            updates.append(AcceptedUpdate(update, slot))
        if request is None or not updates:
            return None, None
        weights = self.algorithm.next(request.arrays, updates, request.query)
        return ArrayRecord([*weights]), MetricRecord({"replies": len(updates)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return no messages, as nodes do not evaluate."""
        del server_round, arrays, config, grid
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Do nothing, as nodes do not evaluate."""
        del server_round, replies

    def summary(self) -> None:
        """Log the name of the algorithm."""
        _log.info("model rounds", algorithm=type(self.algorithm).__name__)
