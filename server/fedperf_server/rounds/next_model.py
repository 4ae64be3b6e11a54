"""The next model of a round, made by its strategy from the accepted replies.

A usable model is finite, has the shapes of its format, and has an error on public data. Anything
else raises one error, and the caller keeps the current model.
"""

from collections.abc import Callable, Sequence

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedperf_server.rounds.round_strategy import RoundStrategy, weights_in
from fedperf_server.state.registry import ModelFormat
from fedperf_shared.errors import ConfigurationError, FedperfError, InvalidInputError
from fedperf_shared.model.architecture import Weights

Evaluate = Callable[[Weights], float]
"""The model's error on public data."""


class AggregationError(FedperfError):
    """The strategy made no model of what was accepted, or none that can be used."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no usable model could be made of what was accepted: {why}")


def next_model(
    number: int,
    replies: Sequence[Message],
    *,
    strategy: RoundStrategy,
    model_format: ModelFormat,
    evaluate: Evaluate,
) -> tuple[Weights, float]:
    """The model after round `number`, which was configured, and its error.

    Raises:
        AggregationError: none that could be used.
    """
    try:
        made, _ = strategy.aggregate_train(number, replies)
        if made is None:
            raise AggregationError("there was no reply")
        arrays = [np.asarray(array, dtype=np.float32) for array in weights_in(made)]
        if not _well_formed(arrays, model_format.shapes):
            raise AggregationError("it is not finite or has another shape")
        return arrays, float(evaluate(arrays))
    except _ARITHMETIC_ERRORS as error:
        raise AggregationError(f"{type(error).__name__}: {error}") from error


_ARITHMETIC_ERRORS = (
    ArithmeticError,
    ValueError,
    RuntimeError,
    InvalidInputError,
    ConfigurationError,
)
"""What numpy (ValueError), torch (RuntimeError) and our own checks raise over numbers that cannot
be computed with: the same again at every try. After any other failure, such as the database's,
the round stays open and is run again."""


def _well_formed(arrays: Sequence[NDArray[np.float32]], shapes: Sequence[tuple[int, ...]]) -> bool:
    if [array.shape for array in arrays] != [tuple(shape) for shape in shapes]:
        return False
    return all(bool(np.isfinite(array).all()) for array in arrays)
