"""The additive surrogate of the cost model: seconds of every operator, transfer and start-up.

Two small networks are distilled from the cost model (`distillation`). One predicts the seconds of
an operator on every named platform, from the model's features except those of the platform. The
other predicts the seconds of an edge for every pair of platforms, from the data that flows over
it. A plan's cost is their sum (`costs.AdditiveCosts`), which a search can minimize exactly. The
cost model then decides among the cheapest plans. Needs no torch.

Start-ups are not learned: run times are measured on platforms that are warm.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedperf_engines.optimizer.costs import AdditiveCosts
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.features import (
    FEATURE_SCHEMA_VERSION,
    OPERATOR_FEATURES,
    Features,
    featurize,
)
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_RUNTIME_SECONDS,
    NAMED_PLATFORMS,
    Platform,
)

# To import and open an engine and run a trivial job, as measured on one machine; public.
STARTUP_SECONDS: Mapping[Platform, float] = MappingProxyType(
    {
        Platform.DUCKDB: 0.1,
        Platform.POLARS: 0.15,
        Platform.PANDAS: 0.35,
        Platform.SKLEARN: 1.0,
        Platform.SPARK: 14.0,
    }
)

_OF_PLATFORMS = (*range(28, 38), 57, 58, 59)
# The operator features without those of the platform.
OPERATOR_COLUMNS = tuple(c for c in range(OPERATOR_FEATURES) if c not in _OF_PLATFORMS)

RESOURCE_COLUMNS = (35, 36, 37, 38)  # of the plan features: cores, memory, nodes, machine speed
# Of the parent's features: rows, bytes and row bytes that flow over an edge.
EDGE_COLUMNS = (52, 55, 56)

OPERATOR_INPUTS = len(OPERATOR_COLUMNS) + len(RESOURCE_COLUMNS)
EDGE_INPUTS = len(EDGE_COLUMNS) + len(RESOURCE_COLUMNS)
HIDDEN = 64
PLATFORMS = len(NAMED_PLATFORMS)

# Names and shapes of the surrogate's arrays, float32.
SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "operator.0.weight": (HIDDEN, OPERATOR_INPUTS),
        "operator.0.bias": (HIDDEN,),
        "operator.1.weight": (HIDDEN, HIDDEN),
        "operator.1.bias": (HIDDEN,),
        "operator.2.weight": (PLATFORMS, HIDDEN),
        "operator.2.bias": (PLATFORMS,),
        "edge.0.weight": (HIDDEN, EDGE_INPUTS),
        "edge.0.bias": (HIDDEN,),
        "edge.1.weight": (PLATFORMS * PLATFORMS, HIDDEN),
        "edge.1.bias": (PLATFORMS * PLATFORMS,),
    }
)

_LOG_LIMIT = float(np.log(MAX_RUNTIME_SECONDS))

Floats = NDArray[np.float32]


class InvalidSurrogateError(InvalidInputError):
    """A file is not an additive surrogate that this version can use."""


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveSurrogate:
    """The arrays of both networks, checked."""

    arrays: Mapping[str, Floats]

    def __post_init__(self) -> None:
        if {name: each.shape for name, each in self.arrays.items()} != dict(SHAPES):
            raise InvalidSurrogateError(
                "the additive surrogate has other arrays than this version needs"
            )
        for name, each in self.arrays.items():
            if not np.isfinite(each).all():
                raise InvalidSurrogateError(f"array {name} of the additive surrogate is not finite")

    def costs(
        self,
        workflow: Workflow,
        cluster: ClusterConfig,
        platforms: Sequence[Platform],
        *,
        startup_seconds: Mapping[Platform, float] = STARTUP_SECONDS,
    ) -> AdditiveCosts:
        """Return the costs of every part of a plan of `workflow` on `cluster`.

        Args:
            workflow: whose plans.
            cluster: where.
            platforms: named ones, each once.
            startup_seconds: of those that are not warm.
        """
        features = featurize(Plan.on_one_platform(workflow, Platform.UNASSIGNED), cluster)
        operators, edges = inputs_of(features)
        columns = np.array([int(platform) for platform in platforms])
        seconds = np.empty((len(features.order), len(platforms)))
        seconds[list(features.order)] = self._seconds("operator", operators)[:, columns]
        transfers = self._seconds("edge", edges).reshape(-1, PLATFORMS, PLATFORMS)
        transfers = transfers[:, columns][:, :, columns] * (1 - np.eye(len(platforms)))
        return AdditiveCosts(
            workflow,
            tuple(platforms),
            seconds,
            transfers[_edge_rows(workflow, features)],
            np.array([startup_seconds.get(platform, 0.0) for platform in platforms]),
        )

    def _seconds(self, name: str, inputs: Floats) -> NDArray[np.float64]:
        layers = sum(each.startswith(f"{name}.") for each in self.arrays) // 2
        for layer in range(layers):
            weight, bias = (self.arrays[f"{name}.{layer}.{part}"] for part in ("weight", "bias"))
            inputs = inputs @ weight.T + bias
            if layer < layers - 1:
                inputs = np.maximum(inputs, 0)
        return np.exp(np.clip(inputs.astype(np.float64), -_LOG_LIMIT, _LOG_LIMIT))


def inputs_of(features: Features) -> tuple[Floats, Floats]:
    """Return the inputs of the two networks for a plan.

    Returns:
        Of the operators, float32 [operators, 54], in the order of the features' rows; of the
        edges, float32 [edges, 7], in the order of `features.edges`.
    """
    resources = features.plan[list(RESOURCE_COLUMNS)]
    operators = features.operators[:, list(OPERATOR_COLUMNS)]
    edges = features.operators[features.edges[0]][:, list(EDGE_COLUMNS)]
    return _joined_columns(operators, resources), _joined_columns(edges, resources)


def save_surrogate(surrogate: AdditiveSurrogate, path: Path) -> None:
    """Write the surrogate as safetensors; a reader sees the old file or the whole new one."""
    arrays = {name: np.ascontiguousarray(each) for name, each in surrogate.arrays.items()}
    scratch = path.with_suffix(".tmp")
    scratch.write_bytes(save(arrays, metadata={"feature_schema": str(FEATURE_SCHEMA_VERSION)}))
    scratch.replace(path)


def load_surrogate(path: Path) -> AdditiveSurrogate:
    """Read and check a surrogate.

    Raises:
        InvalidSurrogateError: the file is damaged, or of another version.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InvalidSurrogateError(f"{path} is not an additive surrogate: {error}") from error
    if metadata.get("feature_schema") != str(FEATURE_SCHEMA_VERSION):
        raise InvalidSurrogateError(f"{path} was made for another version of the features")
    return AdditiveSurrogate({name: each.astype(np.float32) for name, each in arrays.items()})


def _joined_columns(rows: Floats, same: Floats) -> Floats:
    """Append the same values to every row."""
    return np.concatenate([rows, np.tile(same, (len(rows), 1))], axis=1)


def _edge_rows(workflow: Workflow, features: Features) -> list[int]:
    """For every edge of the workflow its place in `features.edges`; repeated ones are alike."""
    order, ends = features.order, features.edges.T.tolist()
    places = {(order[parent], order[child]): place for place, (parent, child) in enumerate(ends)}
    return [places[edge] for edge in workflow.edges]
