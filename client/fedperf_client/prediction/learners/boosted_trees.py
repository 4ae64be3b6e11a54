"""Gradient boosting on flat features, and trees as arrays that predict without LightGBM.

Settings are for little data: one thread, deterministic. LightGBM takes seconds to import, so the
trees of its models become arrays. Inputs are finite, so that no split has to handle missing values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.ridge import MARGIN, Ridge, varying_columns
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError

Ints = NDArray[np.int64]
TreeLines = Mapping[str, str]  # A tree's lines of the text, by name
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees; a child below 0 is the leaf `-child - 1`."""

    roots: Ints  # first node or leaf of each tree, int64 [trees]
    features: Ints  # column that each node compares, int64 [nodes]
    thresholds: Floats  # largest values that go left, float64 [nodes]
    children: Ints  # left and right, int64 [nodes, 2]
    constants: Floats  # float64 [leaves]
    line_features: Ints  # columns of each leaf's line, int64 [leaves, most]; 0 where it has less
    line_weights: Floats  # their weights, float64 [leaves, most]; 0 where it has less

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the trees of a LightGBM model's text (`Booster.model_to_string`).

        Raises:
            InvalidInputError: a split is not by a number.
        """
        trees = list(_tables(text))
        if any(int(each["num_cat"]) for each in trees):
            raise InvalidInputError("trees that split by categories cannot be read")
        counts = np.array([int(each["num_leaves"]) for each in trees], np.int64)
        leaf, node = (np.cumsum(each) - each for each in (counts, counts - 1))
        first_leaf, first_node = (np.repeat(each, counts - 1)[:, None] for each in (leaf, node))
        sides = np.column_stack([_numbers(trees, f"{side}_child") for side in ("left", "right")])
        children = np.where(sides >= 0, sides + first_node, sides - first_leaf)
        constants = ("leaf_const" if _is_linear(each) else "leaf_value" for each in trees)
        columns, weights = _lines(trees, counts)
        return cls(
            np.where(counts > 1, node, -leaf - 1),
            _numbers(trees, "split_feature").astype(np.int64),
            _numbers(trees, "threshold"),
            children.astype(np.int64),
            _parsed(each[name] for each, name in zip(trees, constants, strict=True)),
            columns,
            weights,
        )

    def __call__(self, inputs: Floats) -> Floats:
        """Return the sum over the trees, [rows]."""
        chunks = range(0, len(inputs), _ROWS_AT_ONCE)
        parts = [self._sums(inputs[start : start + _ROWS_AT_ONCE]) for start in chunks]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def _nodes(self) -> tuple[Ints, Ints, Floats, Ints]:
        """Roots, features, thresholds and children, where a leaf is a node that leads to itself."""
        inner, leaves = len(self.features), len(self.constants)
        own = np.arange(inner, inner + leaves)
        roots, children = (
            np.where(each >= 0, each, inner - each - 1) for each in (self.roots, self.children)
        )
        return (
            roots,
            np.concatenate([self.features, np.zeros(leaves, np.int64)]),
            np.concatenate([self.thresholds, np.full(leaves, np.inf)]),
            np.concatenate([children.ravel(), np.repeat(own, 2)]),
        )

    def _sums(self, inputs: Floats) -> Floats:
        roots, features, thresholds, children = self._nodes
        rows = np.repeat(np.arange(len(inputs)), len(roots))
        place = np.tile(roots, len(inputs))
        values, begins = inputs.ravel(), rows * inputs.shape[1]
        while (place < len(self.features)).any():
            right = values.take(begins + features.take(place)) > thresholds.take(place)
            place = children.take(2 * place + right)
        leaf = place - len(self.features)
        values = self.constants[leaf]
        if self.line_weights.shape[1]:
            read = inputs[rows[:, None], self.line_features[leaf]]
            values = values + (read * self.line_weights[leaf]).sum(axis=1)
        return np.asarray(values.reshape(len(inputs), -1).sum(axis=1))


def _tables(text: str) -> Iterator[TreeLines]:
    """Yield each tree's lines as words by name."""
    for block in text.split("end of trees", maxsplit=1)[0].split("\nTree=")[1:]:
        lines = [line.partition("=") for line in block.splitlines() if "=" in line]
        yield {name: value for name, _, value in lines}


def _numbers(trees: Sequence[TreeLines], name: str) -> Floats:
    """Return the numbers of all trees, one after the other."""
    return _parsed(each.get(name, "") for each in trees)


def _parsed(texts: Iterable[str]) -> Floats:
    return np.array(" ".join(texts).split(), dtype=np.float64)


def _is_linear(tree: TreeLines) -> bool:
    return tree.get("is_linear") == "1"


def _lines(trees: Sequence[TreeLines], leaves: Ints) -> tuple[Ints, Floats]:
    """Return columns and weights of each leaf, [leaves, most]; a leaf without a line has none."""
    linear = [each for each in trees if _is_linear(each)]
    counts = np.zeros(leaves.sum(), np.int64)
    has_line = np.repeat([_is_linear(each) for each in trees], leaves).astype(bool)
    counts[has_line] = _numbers(linear, "num_features")
    leaf = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(leaf)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.zeros((len(counts), counts.max(initial=0)), np.int64)
    weights = np.zeros(columns.shape)
    columns[leaf, place] = _numbers(linear, "leaf_features")
    weights[leaf, place] = _numbers(linear, "leaf_coeff")
    return columns, weights


ROUNDS = 200
_MANY = 300
_LINEAR_LEAVES: dict[str, object] = {
    "linear_tree": True,
    "linear_lambda": 0.1,
    "feature_fraction": 1.0,
}


@dataclass(frozen=True, slots=True, eq=False)
class BoostedTrees:
    """Trees on some of the features, with clipped predictions."""

    columns: NDArray[np.int64]  # of the features that the trees read, int64
    trees: Trees  # their sum
    floor: float  # least prediction
    ceiling: float  # largest prediction

    def __call__(self, features: Floats) -> Floats:
        """Predict the target, [rows]."""
        return np.clip(self.trees(features[:, self.columns]), self.floor, self.ceiling)


def fit_boosting(
    features: Floats,
    target: Floats,
    *,
    linear_leaves: bool = False,
    weights: Floats | None = None,
) -> BoostedTrees:
    """Fit boosted trees. The same input gives the same trees, bit for bit.

    Args:
        features: [rows, columns].
        target: [rows].
        linear_leaves: leaves hold lines instead of levels; predictions are clipped near the
            targets, because lines of small leaves run away.
        weights: of each row, [rows]; 1 by default.
    """
    columns = varying_columns(features)
    if len(columns) == 0:
        level = float(np.median(target)) if len(target) else 0.0
        return BoostedTrees(columns, Trees.of_text(""), level, level)
    import lightgbm

    leaves = _LINEAR_LEAVES if linear_leaves else {}
    data = lightgbm.Dataset(
        features[:, columns], target, weight=weights, params={"verbose": -1, **leaves}
    )
    rows = len(target) if weights is None else round(float(weights.sum()))
    booster = lightgbm.train(
        _settings(rows) | leaves,
        data,
        num_boost_round=ROUNDS,
        keep_training_booster=True,  # else it is written as text and read again
    )
    margin = MARGIN if linear_leaves else np.inf
    trees = Trees.of_text(booster.model_to_string())
    return BoostedTrees(columns, trees, float(target.min() - margin), float(target.max() + margin))


def _settings(rows: int) -> dict[str, object]:
    return {
        "objective": "regression",
        "learning_rate": 0.08,
        "num_leaves": 15 if rows >= _MANY else 7,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": max(2, min(10, rows // 15)),  # weights of its rows
        "min_data_in_bin": 1,
        "max_bin": 63,
        "feature_fraction": 0.4,
        "lambda_l2": 1.0,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": 1,
        "verbose": -1,
    }


@dataclass(frozen=True, slots=True, eq=False)
class Additive:
    """The fitted form of most learners: numbers alone, which a file can store."""

    base_model: str | None = None  # pretrained model whose prediction is the base; None without
    line: Ridge | None = None  # of the features
    # Of the features, and of the pretrained model's prediction if there is one.
    trees: BoostedTrees | None = None

    def __call__(self, queries: EncodedQueries) -> Floats:
        """Predict log seconds, [queries]."""
        total = (
            np.zeros(len(queries))
            if self.base_model is None
            else queries.base_predictions[self.base_model]
        )
        if self.line is not None:
            total = total + self.line(queries.features)
        return (
            total if self.trees is None else total + self.trees(inputs_of(queries, self.base_model))
        )


def inputs_of(samples: EncodedQueries, base_model: str | None) -> Floats:
    """Return the inputs of trees, [rows, columns]."""
    if base_model is None:
        return samples.features
    return np.column_stack([samples.features, samples.base_predictions[base_model]])
