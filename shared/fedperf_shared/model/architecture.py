"""The architecture of the shared model as constants, by which a server checks updates.

GGFN: two graph attention layers (2 heads, averaged, 128), a 2-layer bidirectional
GRU (128) over the topological order, and dense layers 128-128-128-1 over its last
states and the plan features. Their output is added to the prediction of the analytic cost
model (`offset_of`), which remains where the network learned nothing. Names and shapes are those
of the torch state dict, in its order. So arrays are checked without torch.

Other names, shapes and dtypes are refused, and values that are not finite.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.features import OPERATOR_FEATURES, PLAN_FEATURES, Features
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, MIN_RUNTIME_SECONDS

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE_VERSION = 2  # on the wire; another number, order or shape of arrays is another version
ARCHITECTURE = f"ggfn-{ARCHITECTURE_VERSION}"
HIDDEN = 128
HEADS = 2
NEGATIVE_SLOPE = 0.2  # slope of the leaky ReLU on attention scores
ATTENTION_LAYERS = 2
RECURRENT_LAYERS = 2
DENSE_LAYERS = 4

TARGET_CENTER = math.log(0.1)
TARGET_SCALE = 2.0  # the model's output is (log runtime_seconds - center) / scale: public constants


# Public bounds of log run times.
LOWEST, HIGHEST = math.log(MIN_RUNTIME_SECONDS), math.log(MAX_RUNTIME_SECONDS)

_Values = TypeVar("_Values", NDArray[np.float64], "Tensor")


def standardise(log_seconds: _Values) -> _Values:
    """Return the training target of log run times, clamped to the public bounds."""
    return (log_seconds.clip(LOWEST, HIGHEST) - TARGET_CENTER) / TARGET_SCALE


def offset_of(features: Features) -> float:
    """Return the prediction of the analytic cost model, in units of the model's output."""
    return (features.analytic_log_seconds - TARGET_CENTER) / TARGET_SCALE


class InvalidModelStateError(InvalidInputError):
    """Raised for arrays that are not a state of this architecture. The message names one."""


def _array_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(ATTENTION_LAYERS):
        width = OPERATOR_FEATURES if layer == 0 else HIDDEN
        shapes[f"attention.{layer}.att_src"] = (1, HEADS, HIDDEN)
        shapes[f"attention.{layer}.att_dst"] = (1, HEADS, HIDDEN)
        shapes[f"attention.{layer}.bias"] = (HIDDEN,)
        shapes[f"attention.{layer}.lin.weight"] = (HEADS * HIDDEN, width)
    for layer in range(RECURRENT_LAYERS):
        width = HIDDEN if layer == 0 else 2 * HIDDEN
        for suffix in (f"l{layer}", f"l{layer}_reverse"):
            shapes[f"recurrent.weight_ih_{suffix}"] = (3 * HIDDEN, width)
            shapes[f"recurrent.weight_hh_{suffix}"] = (3 * HIDDEN, HIDDEN)
            shapes[f"recurrent.bias_ih_{suffix}"] = (3 * HIDDEN,)
            shapes[f"recurrent.bias_hh_{suffix}"] = (3 * HIDDEN,)
    widths = [2 * HIDDEN + PLAN_FEATURES, *[HIDDEN] * (DENSE_LAYERS - 1), 1]
    for layer, (width, following) in enumerate(pairwise(widths)):
        shapes[f"dense.{layer}.weight"] = (following, width)
        shapes[f"dense.{layer}.bias"] = (following,)
    return shapes


# Name -> shape of every parameter, in the order of the state dict. All float32.
ARRAY_SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType(_array_shapes())

# The model's arrays in the order of `ARRAY_SHAPES`.
Weights: TypeAlias = Sequence[NDArray[np.float32]]

# Number of trainable parameters: 615,809.
PARAMETERS = sum(math.prod(shape) for shape in ARRAY_SHAPES.values())


def named_arrays(weights: Weights) -> dict[str, NDArray[np.float32]]:
    """Return the arrays by their names.

    Raises:
        ValueError: the number of arrays is not that of the model.
    """
    return dict(zip(ARRAY_SHAPES, weights, strict=True))


def weights_of(arrays: Mapping[str, NDArray[np.float32]]) -> Weights:
    """Return named arrays in the order of the architecture, the inverse of `named_arrays`."""
    return [arrays[name] for name in ARRAY_SHAPES]


def check_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Check that `arrays` are a state (or an update) of this architecture.

    Raises:
        InvalidModelStateError: a name is missing or unknown, a shape or dtype is
            wrong, or a value is not finite.
    """
    missing = [name for name in ARRAY_SHAPES if name not in arrays]
    foreign = [name for name in arrays if name not in ARRAY_SHAPES]
    if missing or foreign:
        # Unknown names come from outside. They are counted and not repeated.
        raise InvalidModelStateError(
            f"not a state of {ARCHITECTURE}: {len(foreign)} foreign names, "
            f"{len(missing)} missing {missing[:3]}"
        )
    for name, shape in ARRAY_SHAPES.items():
        array = arrays[name]
        if array.shape != shape:
            raise InvalidModelStateError(f"{name} has the shape {array.shape}, not {shape}")
        if array.dtype != np.float32:
            raise InvalidModelStateError(f"{name} has the dtype {array.dtype}, not float32")
        if not np.isfinite(array).all():
            raise InvalidModelStateError(f"{name} holds values that are not finite")
