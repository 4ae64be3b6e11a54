"""The algorithm of a model round as a Flower `Strategy`: query, check, aggregate.

The coordinator handles slots, deadlines, quorum and storage. A strategy designs the linear query of
a round, checks updates, and computes the next model. A period has one strategy
(`period.ModelMethod`): `LinearizedAvg`.

`configure_train` and `aggregate_train` are Flower's hooks. Weeks may pass between the two calls,
which `model_rounds` makes from a durable state machine. The coordinator does not use Flower's own
loop `start`, which stores nothing on disk. Nodes never evaluate, because the reports of the next
window evaluate a version.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedperf_server.rounds.round_messages import TRAIN, AcceptedUpdate, body_content
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow, TrainRequest
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.linear_queries import LinearizedQuery
from fedperf_shared.releases.release import ReleaseKind, Slot, SlotKey, Update
from fedperf_shared.wire.codec import encode_train_request

_CLIP, _COEFFICIENTS = "question.clip", "question.coefficients"

_log = structlog.get_logger()


def _no_rows() -> Sequence[SyntheticRow]:
    return ()


@dataclass(frozen=True, slots=True)
class _ConfiguredRound:
    """A configured round.

    Attributes:
        number: number of the round.
        arrays: arrays that it was configured with.
        current: weights of the base model.
        query: linear query of the round.
        content: content of every message.
    """

    number: int
    arrays: ArrayRecord
    current: Weights
    query: LinearizedQuery | None
    content: RecordDict


@dataclass(eq=False, kw_only=True)
class RoundStrategy(Strategy):
    """The common part of our strategies, which encodes and decodes a round's messages.

    Attributes:
        rehearsed: returns the current rehearsal rows of earlier regimes.
    """

    rehearsed: Callable[[], Sequence[SyntheticRow]] = _no_rows
    _configured: _ConfiguredRound | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def question(self, current: Weights, *, steps_made: int) -> LinearizedQuery | None:
        """Design the linear query of a round. It is stored before it is sent.

        Args:
            current: weights of the base model.
            steps_made: number of rounds of this regime that led to it.
        """

    @abstractmethod
    def check(self, update: Update, slot: Slot) -> None:
        """Check an update.

        Raises:
            RejectedReleaseError: a check failed; it has the first reason.
        """

    @abstractmethod
    def next(
        self,
        current: Weights,
        updates: Sequence[AcceptedUpdate],
        query: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """Return the model after the round. Each update has bounded influence on it.

        Args:
            current: weights of the base model.
            updates: accepted updates.
            query: linear query of the round.
            rehearsed: rows of earlier regimes.
        """

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one message to each node of the grid, with the same request.

        Args:
            server_round: number of the round.
            arrays: the model and the linear query (`round_arrays`).
            config: slot and version of the model (`round_config`).
            grid: grid with the nodes.
        """
        configured = self._configured
        if configured is None or configured.arrays is not arrays:
            configured = self._configured = self._configure(server_round, arrays, config)
        return [
            grid.create_message(configured.content, TRAIN, node, str(server_round))
            for node in grid.get_node_ids()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model from the replies without errors, or None without any.

        Args:
            server_round: the round that was configured last.
            replies: accepted updates (`AcceptedUpdate.content`), in the order of summation.

        Raises:
            InvalidInputError: another round was configured last.
        """
        configured = self._configured
        if configured is None or configured.number != server_round:
            raise InvalidInputError(f"round {server_round} was not configured")
        updates = [
            AcceptedUpdate.from_content(each.content) for each in replies if each.has_content()
        ]
        if not updates:
            return None, None
        weights = self.next(
            configured.current, updates, configured.query, rehearsed=self.rehearsed()
        )
        return round_arrays(weights), MetricRecord({"replies": len(updates)})

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
        """Log the name of the strategy."""
        _log.info("model rounds", strategy=type(self).__name__)

    def _configure(
        self, number: int, arrays: ArrayRecord, config: ConfigRecord
    ) -> _ConfiguredRound:
        current, query = weights_in(arrays), _query_in(arrays)
        request = TrainRequest(
            SlotKey(ReleaseKind.MODEL_UPDATE, _to_int(config, "window"), _to_int(config, "index")),
            _to_int(config, "architecture"),
            _to_int(config, "base-version"),
            tuple(current),
            query,
        )
        return _ConfiguredRound(
            number, arrays, current, query, body_content(encode_train_request(request))
        )


def round_arrays(current: Weights, query: LinearizedQuery | None = None) -> ArrayRecord:
    """Return the weights of a model, in their order, and the linear query."""
    arrays = {str(position): Array(np.asarray(each)) for position, each in enumerate(current)}
    if query is not None:
        arrays[_CLIP] = Array(np.array([query.clip]))
        arrays[_COEFFICIENTS] = Array(query.coefficients)
    return ArrayRecord(arrays)


def round_config(slot: SlotKey, *, architecture: int, base_version: int) -> ConfigRecord:
    """Return the slot of a round, and the version of its base model."""
    return ConfigRecord(
        {
            "window": slot.window,
            "index": slot.index,
            "architecture": architecture,
            "base-version": base_version,
        }
    )


def weights_in(arrays: ArrayRecord) -> list[NDArray[np.float32]]:
    """Return the weights of `round_arrays`."""
    return [each.numpy() for name, each in arrays.items() if name not in {_CLIP, _COEFFICIENTS}]


def _query_in(arrays: ArrayRecord) -> LinearizedQuery | None:
    if _CLIP not in arrays:
        return None
    return LinearizedQuery(float(arrays[_CLIP].numpy()[0]), arrays[_COEFFICIENTS].numpy())


def _to_int(config: ConfigRecord, name: str) -> int:
    value = config[name]
    if not isinstance(value, int):
        raise InvalidInputError(f"{name} of a round must be a whole number, got {value!r}")
    return value
