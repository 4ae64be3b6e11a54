"""The fitted form of most learners: the sum of a start model, a line and trees.

It holds numbers alone. So a fitted learner can be kept in a file of arrays, and it answers without
the libraries that fitted it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.learners.boosted_trees import BoostedTrees, Trees
from fedperf_client.prediction.learners.ridge import Ridge
from fedperf_client.prediction.prediction import Floats

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, eq=False)
class Additive:
    """Samples -> log seconds.

    Attributes:
        start: the start model whose answer is added to; None without.
        line: of the features.
        trees: of the features, and of the start model's answer where there is one.
    """

    start: str | None = None
    line: Ridge | None = None
    trees: BoostedTrees | None = None

    def __call__(self, asked: Samples) -> Floats:
        """[questions]."""
        total = np.zeros(len(asked)) if self.start is None else asked.starts[self.start]
        if self.line is not None:
            total = total + self.line(asked.features)
        return total if self.trees is None else total + self.trees(inputs_of(asked, self.start))

    def arrays(self) -> Arrays:
        """Everything but the name of the start model."""
        found: Arrays = {}
        if self.line is not None:
            for each in fields(Ridge):
                found[f"line.{each.name}"] = np.asarray(getattr(self.line, each.name))
        if self.trees is not None:
            for name in ("columns", "floor", "ceiling"):
                found[f"boosted.{name}"] = np.asarray(getattr(self.trees, name))
            for each in fields(Trees):
                found[f"trees.{each.name}"] = np.asarray(getattr(self.trees.trees, each.name))
        return found

    @classmethod
    def of(cls, start: str | None, arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """What `arrays` gave, or KeyError, ValueError or TypeError."""
        line = _line_of(arrays) if "line.columns" in arrays else None
        trees = _trees_of(arrays) if "boosted.columns" in arrays else None
        return cls(start, line, trees)


def inputs_of(samples: Samples, start: str | None) -> Floats:
    """What trees read."""
    if start is None:
        return samples.features
    return np.column_stack([samples.features, samples.starts[start]])


def _line_of(arrays: Mapping[str, NDArray[np.generic]]) -> Ridge:
    def values(name: str) -> Floats:
        return np.asarray(arrays[f"line.{name}"], np.float64)

    return Ridge(
        np.asarray(arrays["line.columns"], np.int64),
        values("low"),
        values("high"),
        values("centre"),
        values("scale"),
        values("weights"),
        float(values("level").item()),
        float(values("floor").item()),
        float(values("ceiling").item()),
        int(values("degree").item()),
    )


def _trees_of(arrays: Mapping[str, NDArray[np.generic]]) -> BoostedTrees:
    def values(name: str) -> Floats:
        return np.asarray(arrays[name], np.float64)

    def whole(name: str) -> NDArray[np.int64]:
        return np.asarray(arrays[name], np.int64)

    trees = Trees(
        whole("trees.roots"),
        whole("trees.features"),
        values("trees.thresholds"),
        whole("trees.children"),
        values("trees.constants"),
        whole("trees.line_features"),
        values("trees.line_weights"),
    )
    floor, ceiling = values("boosted.floor").item(), values("boosted.ceiling").item()
    return BoostedTrees(whole("boosted.columns"), trees, float(floor), float(ceiling))
