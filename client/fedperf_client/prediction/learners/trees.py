"""Boosted trees as arrays: what LightGBM learned, answered without it.

LightGBM takes seconds to import; its model text says all that an answer needs. Inputs are
finite, so that no split has to send a missing value somewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError

Ints = NDArray[np.int64]

_ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A sum of trees; a child below 0 is the leaf `-child - 1`.

    Attributes:
        roots: node or leaf that each tree begins with, int64 [trees].
        features: column that each node asks about, int64 [nodes].
        thresholds: up to which one goes left, float64 [nodes].
        children: left and right, int64 [nodes, 2].
        constants: float64 [leaves].
        line_features: columns of each leaf's line, int64 [leaves, most]; 0 where it has less.
        line_weights: their weights, float64 [leaves, most]; 0 where it has less.
    """

    roots: Ints
    features: Ints
    thresholds: Floats
    children: Ints
    constants: Floats
    line_features: Ints
    line_weights: Floats

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The trees of a LightGBM model's text (`Booster.model_to_string`).

        Raises:
            InvalidInputError: a split is not by a number.
        """
        trees = list(_tables(text))
        nodes = np.cumsum([0, *(len(_numbers(each, "split_feature")) for each in trees)])
        leaves = np.cumsum([0, *(int(each["num_leaves"]) for each in trees)])
        if any(int(each["num_cat"]) for each in trees):
            raise InvalidInputError("trees that split by categories cannot be read")
        children = [
            np.where(side >= 0, side + node, side - leaf)
            for each, node, leaf in zip(trees, nodes, leaves, strict=False)
            for side in [_pair(each)]
        ]
        begins = [
            node if len(side) else -leaf - 1
            for side, node, leaf in zip(children, nodes, leaves, strict=False)
        ]
        lines = [line for each in trees for line in _lines(each)]
        width = max((len(weights) for _, weights in lines), default=0)
        places, weights = np.zeros((len(lines), width), np.int64), np.zeros((len(lines), width))
        for leaf, (columns, values) in enumerate(lines):
            places[leaf, : len(columns)], weights[leaf, : len(values)] = columns, values
        return cls(
            np.array(begins, np.int64),
            _joined([_numbers(each, "split_feature") for each in trees]).astype(np.int64),
            _joined([_numbers(each, "threshold") for each in trees]),
            np.concatenate([np.zeros((0, 2), np.int64), *children]),
            _joined([_constants(each) for each in trees]),
            places,
            weights,
        )

    def __call__(self, inputs: Floats) -> Floats:
        """The sum over the trees, [rows]."""
        chunks = range(0, len(inputs), _ROWS_AT_ONCE)
        parts = [self._sums(inputs[start : start + _ROWS_AT_ONCE]) for start in chunks]
        return _joined(parts)

    def _sums(self, inputs: Floats) -> Floats:
        rows = np.repeat(np.arange(len(inputs)), len(self.roots))
        place = np.tile(self.roots, len(inputs))
        walking = np.flatnonzero(place >= 0)
        while len(walking):
            node = place[walking]
            right = inputs[rows[walking], self.features[node]] > self.thresholds[node]
            place[walking] = self.children[node, right.astype(np.int64)]
            walking = walking[place[walking] >= 0]
        leaf = -place - 1
        values = self.constants[leaf]
        if self.line_weights.shape[1]:
            read = inputs[rows[:, None], self.line_features[leaf]]
            values = values + (read * self.line_weights[leaf]).sum(axis=1)
        return np.asarray(values.reshape(len(inputs), -1).sum(axis=1))


def _tables(text: str) -> Iterator[dict[str, str]]:
    """Each tree's lines as words by name."""
    for block in text.split("end of trees", maxsplit=1)[0].split("\nTree=")[1:]:
        lines = [line.partition("=") for line in block.splitlines() if "=" in line]
        yield {name: value for name, _, value in lines}


def _numbers(table: dict[str, str], name: str) -> Floats:
    return np.array(table.get(name, "").split(), dtype=np.float64)


def _pair(table: dict[str, str]) -> Ints:
    sides = [_numbers(table, "left_child"), _numbers(table, "right_child")]
    return np.column_stack(sides).astype(np.int64)


def _constants(table: dict[str, str]) -> Floats:
    return _numbers(table, "leaf_const" if table.get("is_linear") == "1" else "leaf_value")


def _lines(table: dict[str, str]) -> Iterator[tuple[Ints, Floats]]:
    """Columns and weights of each leaf."""
    counts = _numbers(table, "num_features") if table.get("is_linear") == "1" else None
    if counts is None:
        counts = np.zeros(int(table["num_leaves"]))
    columns, weights = _numbers(table, "leaf_features"), _numbers(table, "leaf_coeff")
    ends = np.cumsum(counts).astype(np.int64)
    for end, count in zip(ends, counts.astype(np.int64), strict=True):
        chosen = slice(end - count, end)
        yield columns[chosen].astype(np.int64), weights[chosen]


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])
