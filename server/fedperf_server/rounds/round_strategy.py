"""The algorithm of a model round as a Flower `Strategy`: ask, check, make the next model.

The coordinator handles slots, deadlines, quorum and storage. A strategy decides what a round asks
beside the model, which answers are valid, and what the next model is. A period has one strategy
(`period.ModelMethod`): `LinearizedAvg`.

`configure_train` and `aggregate_train` are Flower's hooks. Weeks may pass between the two calls:
`model_rounds` makes them from a durable state machine. The coordinator does not use Flower's own
loop `start`, which keeps nothing on disk. Nodes are never asked to evaluate: the reports of the
next window show what a version is worth.
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
    """A round as it was configured.

    Attributes:
        number: of the round.
        arrays: what it was configured with.
        current: weights that it starts from.
        question: that it asks.
        content: of every message.
    """

    number: int
    arrays: ArrayRecord
    current: Weights
    question: LinearizedQuery | None
    content: RecordDict


@dataclass(eq=False, kw_only=True)
class RoundStrategy(Strategy):
    """The common part of our strategies: the making and reading of a round's messages.

    Attributes:
        rehearsed: rows of earlier epochs, as they are now.
    """

    rehearsed: Callable[[], Sequence[SyntheticRow]] = _no_rows
    _configured: _ConfiguredRound | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def question(self, current: Weights, *, steps_made: int) -> LinearizedQuery | None:
        """The question of a round beside the model; it is stored before anybody gets it.

        Args:
            current: the model that the round starts from.
            steps_made: rounds of this epoch that led to it.
        """

    @abstractmethod
    def check(self, update: Update, slot: Slot) -> None:
        """Refuse what this strategy's updates cannot be.

        Raises:
            RejectedReleaseError: with the first reason that holds.
        """

    @abstractmethod
    def next(
        self,
        current: Weights,
        answers: Sequence[AcceptedUpdate],
        question: LinearizedQuery | None,
        *,
        rehearsed: Sequence[SyntheticRow] = (),
    ) -> Sequence[NDArray[np.float32]]:
        """The model after the round; each answer has bounded influence on it.

        Args:
            current: the model that it started from.
            answers: accepted ones.
            question: that it asked.
            rehearsed: rows of earlier epochs.
        """

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """One message to each node of the grid, with the same request.

        Args:
            server_round: number of the round.
            arrays: the model and what is asked beside it (`round_arrays`).
            config: slot and version of the model (`round_config`).
            grid: whose nodes are asked.
        """
        kept = self._configured
        if kept is None or kept.arrays is not arrays:
            kept = self._configured = self._made(server_round, arrays, config)
        return [
            grid.create_message(kept.content, TRAIN, node, str(server_round))
            for node in grid.get_node_ids()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, from the replies that are no errors; None where there are none.

        Args:
            server_round: the round that was configured last.
            replies: accepted updates (`AcceptedUpdate.content`); their order is that of sums.

        Raises:
            InvalidInputError: another round was configured last.
        """
        asked = self._configured
        if asked is None or asked.number != server_round:
            raise InvalidInputError(f"round {server_round} was not configured")
        answers = [AcceptedUpdate.of(each.content) for each in replies if each.has_content()]
        if not answers:
            return None, None
        made = self.next(asked.current, answers, asked.question, rehearsed=self.rehearsed())
        return round_arrays(made), MetricRecord({"replies": len(answers)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Nobody is asked."""
        del server_round, arrays, config, grid
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Nothing."""
        del server_round, replies

    def summary(self) -> None:
        """Say in the log who makes the steps."""
        _log.info("model rounds", strategy=type(self).__name__)

    def _made(self, number: int, arrays: ArrayRecord, config: ConfigRecord) -> _ConfiguredRound:
        current, question = weights_in(arrays), _question_in(arrays)
        request = TrainRequest(
            SlotKey(ReleaseKind.MODEL_UPDATE, _whole(config, "window"), _whole(config, "index")),
            _whole(config, "architecture"),
            _whole(config, "base-version"),
            tuple(current),
            question,
        )
        return _ConfiguredRound(
            number, arrays, current, question, body_content(encode_train_request(request))
        )


def round_arrays(current: Weights, question: LinearizedQuery | None = None) -> ArrayRecord:
    """The weights of a model, in their order, and what is asked beside it."""
    arrays = {str(place): Array(np.asarray(each)) for place, each in enumerate(current)}
    if question is not None:
        arrays[_CLIP] = Array(np.array([question.clip]))
        arrays[_COEFFICIENTS] = Array(question.coefficients)
    return ArrayRecord(arrays)


def round_config(slot: SlotKey, *, architecture: int, base_version: int) -> ConfigRecord:
    """Which slot a round fills, and which version of the model it starts from."""
    return ConfigRecord(
        {
            "window": slot.window,
            "index": slot.index,
            "architecture": architecture,
            "base-version": base_version,
        }
    )


def weights_in(arrays: ArrayRecord) -> list[NDArray[np.float32]]:
    """The weights of `round_arrays`."""
    return [each.numpy() for name, each in arrays.items() if name not in {_CLIP, _COEFFICIENTS}]


def _question_in(arrays: ArrayRecord) -> LinearizedQuery | None:
    if _CLIP not in arrays:
        return None
    return LinearizedQuery(float(arrays[_CLIP].numpy()[0]), arrays[_COEFFICIENTS].numpy())


def _whole(config: ConfigRecord, name: str) -> int:
    value = config[name]
    if not isinstance(value, int):
        raise InvalidInputError(f"{name} of a round must be a whole number, got {value!r}")
    return value
