"""Predictions of GGFN from its arrays, without torch.

A client should not wait seconds for the import of a training library. The float32 arithmetic is
that of the torch module that experiments train, except for rounding. This module does not train.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.model.architecture import (
    ATTENTION_LAYERS,
    DENSE_LAYERS,
    HEADS,
    HIDDEN,
    HIGHEST,
    LOWEST,
    NEGATIVE_SLOPE,
    RECURRENT_LAYERS,
    TARGET_CENTER,
    TARGET_SCALE,
    check_arrays,
    offset_of,
)
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.workflow.features import Features

Floats = NDArray[np.float32]

_SLOPE = np.float32(NEGATIVE_SLOPE)
_GATES = 2 * HIDDEN
_PLANS_AT_ONCE = 256
_PAIRS_AT_ONCE = 2**20  # bound on pairs of operators in one pass, which bounds memory


@dataclass(frozen=True, slots=True, eq=False)
class GgfnArrays:
    """The model's arrays, prepared once for the forward passes of many queries."""

    attention: tuple["_Attention", ...]
    recurrent: tuple["_Recurrent", ...]
    dense: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "GgfnArrays":
        """Build the network of a checkpoint."""
        return cls.from_arrays(checkpoint.arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "GgfnArrays":
        """Build the network of the arrays by their names.

        Raises:
            InvalidModelStateError: the arrays are not a state of this architecture.
        """
        check_arrays(arrays)
        return cls(
            tuple(_Attention.of(arrays, f"attention.{each}") for each in range(ATTENTION_LAYERS)),
            tuple(_Recurrent.of(arrays, f"l{each}") for each in range(RECURRENT_LAYERS)),
            tuple(
                (arrays[f"dense.{each}.weight"].T, arrays[f"dense.{each}.bias"])
                for each in range(DENSE_LAYERS)
            ),
        )

    def log_seconds(self, plans: Sequence[Features]) -> NDArray[np.float64]:
        """Return the natural log of the predicted seconds [plans], within the public bounds.

        Args:
            plans: features of plans, in any number and order.
        """
        predicted = np.empty(len(plans))
        order = sorted(range(len(plans)), key=lambda place: -len(plans[place].order))
        for start in range(0, len(order), _PLANS_AT_ONCE):
            rows = order[start : start + _PLANS_AT_ONCE]
            with np.errstate(over="ignore", divide="ignore"):
                predicted[rows] = self._forward([plans[place] for place in rows])
        log_seconds = predicted * TARGET_SCALE + TARGET_CENTER
        return np.clip(log_seconds, LOWEST, HIGHEST)

    def _forward(self, plans: Sequence[Features]) -> Floats:
        """Return the standardised log run times [plans]. Plans with more operators come first."""
        lengths = np.array([len(plan.order) for plan in plans])
        starts = np.cumsum(lengths) - lengths
        packed = [starts[lengths > step] + step for step in range(int(lengths[0]))]
        ends = np.cumsum([len(rows) for rows in packed]).tolist()
        steps = [slice(end - len(rows), end) for rows, end in zip(packed, ends, strict=True)]
        states = self._attend(plans)[np.concatenate(packed)]  # step by step, one slice each
        for layer in self.recurrent:
            states, last = layer(states, steps)
        fused = np.concatenate([last, np.stack([plan.plan for plan in plans])], axis=1)
        for number, (weight, bias) in enumerate(self.dense):
            fused = fused @ weight + bias
            if number < DENSE_LAYERS - 1:
                fused = np.maximum(fused, 0)
        return np.asarray(fused[:, 0] + np.array([offset_of(plan) for plan in plans], np.float32))

    def _attend(self, plans: Sequence[Features]) -> Floats:
        """Return the states of all operators [rows, hidden], plan by plan.

        Plans of one length are computed together, as dense matrices. An operator has few
        neighbours, but products of matrices are much faster than sums over edges.
        """
        attended = []
        for length, group in groupby(plans, key=lambda plan: len(plan.order)):
            same = list(group)
            at_once = max(1, _PAIRS_AT_ONCE // length**2)
            for start in range(0, len(same), at_once):
                batch = same[start : start + at_once]
                states = np.stack([plan.operators for plan in batch])
                log_edges = np.log(edge_counts(batch, length))[:, None]  # of no edge: -infinity
                for layer in self.attention:
                    states = layer(states, log_edges)
                    states = np.maximum(states, 0) + (np.exp(np.minimum(states, 0)) - 1)
                attended.append(states.reshape(-1, HIDDEN))
        return np.concatenate(attended)


def edge_counts(plans: Sequence[Features], length: int) -> Floats:
    """Count the edges between operators, [plans, length, length] to and from, with self loops.

    Edges count in both directions. Every plan has at most `length` operators.
    """
    places = [
        (number * length + plan.edges[1]) * length + plan.edges[0]
        for number, plan in enumerate(plans)
    ]
    counts = np.bincount(np.concatenate(places), minlength=len(plans) * length**2)
    forward = counts.reshape(len(plans), length, length).astype(np.float32)
    return np.asarray(forward + forward.transpose(0, 2, 1) + np.eye(length, dtype=np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class _Attention:
    """An attention layer that averages its heads."""

    of_source: Floats  # weights of an edge's score on its source states, [heads, inputs]
    of_target: Floats  # weights of an edge's score on its target states, [heads, inputs]
    weight: Floats  # weights of all heads, one after the other, [heads * inputs, hidden]
    bias: Floats  # [hidden]

    @classmethod
    def of(cls, arrays: Mapping[str, Floats], name: str) -> "_Attention":
        weight = arrays[f"{name}.lin.weight"].reshape(HEADS, HIDDEN, -1)
        source, target = (
            (arrays[f"{name}.{each}"].reshape(HEADS, 1, HIDDEN) @ weight)[:, 0]
            for each in ("att_src", "att_dst")
        )
        stacked = weight.transpose(0, 2, 1).reshape(-1, HIDDEN)
        return cls(source, target, stacked, arrays[f"{name}.bias"])

    def __call__(self, states: Floats, log_edges: Floats) -> Floats:
        """Return new states [plans, operators, hidden] from old ones."""
        from_source = _scores(states, self.of_source)[:, :, None, :]
        to_target = _scores(states, self.of_target)[:, :, :, None]
        raw = from_source + to_target
        logits = np.maximum(raw, _SLOPE * raw) + log_edges
        logits -= logits.max(axis=3, keepdims=True)
        shares = np.exp(logits, out=logits)
        shares /= shares.sum(axis=3, keepdims=True) * HEADS
        mixed = shares @ states[:, None]  # [plans, heads, operators, inputs]
        plans, operators, inputs = states.shape
        joined = mixed.transpose(0, 2, 1, 3).reshape(plans * operators, HEADS * inputs)
        return np.asarray(joined @ self.weight + self.bias).reshape(plans, operators, HIDDEN)


def _scores(states: Floats, of_inputs: Floats) -> Floats:
    """Return scalar products of each head's vector with the states [plans, heads, rows]."""
    return np.ascontiguousarray((states @ of_inputs.T).transpose(0, 2, 1))


@dataclass(frozen=True, slots=True, eq=False)
class _Recurrent:
    """A bidirectional GRU layer. Its arrays are split into gates (reset, update) and new state."""

    of_input: tuple[Floats, Floats]
    input_bias: tuple[Floats, Floats]
    gates_of_state: Floats
    new_of_state: Floats
    state_bias: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, Floats], layer: str) -> "_Recurrent":
        suffixes = (layer, f"{layer}_reverse")
        of_state = np.stack([arrays[f"recurrent.weight_hh_{each}"].T for each in suffixes])
        state_bias = np.stack([arrays[f"recurrent.bias_hh_{each}"] for each in suffixes])
        biases = np.stack([arrays[f"recurrent.bias_ih_{each}"] for each in suffixes])
        biases[:, :_GATES] += state_bias[:, :_GATES]
        forward, backward = (arrays[f"recurrent.weight_ih_{each}"].T for each in suffixes)
        return cls(
            of_input=(forward, backward),
            input_bias=(biases[0], biases[1]),
            gates_of_state=np.ascontiguousarray(of_state[:, :, :_GATES]),
            new_of_state=np.ascontiguousarray(of_state[:, :, _GATES:]),
            state_bias=state_bias[:, None, _GATES:],
        )

    def __call__(self, inputs: Floats, steps: Sequence[slice]) -> tuple[Floats, Floats]:
        """Return states of both directions [rows, 2 * hidden], and the last [plans, 2 * hidden].

        `steps` holds for every step the rows of the plans with that many operators.
        """
        plans = steps[0].stop
        states = np.empty((len(inputs), 2, HIDDEN), np.float32)
        last = np.zeros((2, plans, HIDDEN), np.float32)
        read = self._read(inputs, 0), self._read(inputs, 1)
        if len(inputs) == plans * len(steps):
            self._walk_together(read, last, states.reshape(-1, plans, 2, HIDDEN))
        else:
            for part, (gates, news) in enumerate(read):
                for rows in reversed(steps) if part else steps:
                    active = last[part, : rows.stop - rows.start]
                    self._step(active, gates[rows], news[rows], part)
                    states[rows, part] = active
        return states.reshape(-1, 2 * HIDDEN), np.concatenate([last[0], last[1]], axis=1)

    def _walk_together(self, read: "_Read", state: Floats, states: Floats) -> None:
        """Compute both directions of plans of one length; fill [steps, plans, 2, hidden]."""
        count, plans = states.shape[:2]
        both = slice(None)
        gates, news = (
            np.stack([forward.reshape(count, plans, -1), backward.reshape(count, plans, -1)[::-1]])
            for forward, backward in zip(*read, strict=True)
        )
        for step in range(count):
            self._step(state, gates[:, step], news[:, step], both)
            states[step, :, 0] = state[0]
            states[count - 1 - step, :, 1] = state[1]

    def _read(self, inputs: Floats, part: int) -> tuple[Floats, Floats]:
        """Return the terms of all rows in the gates (with biases) and in the new state."""
        weight, bias = self.of_input[part], self.input_bias[part]
        gates, news = inputs @ weight[:, :_GATES], inputs @ weight[:, _GATES:]
        gates += bias[:_GATES]
        news += bias[_GATES:]
        return gates, news

    def _step(self, state: Floats, gates: Floats, news: Floats, part: int | slice) -> None:
        """Replace `state` [plans, hidden], of one or both directions, by the next one."""
        opened = state @ self.gates_of_state[part] + gates
        np.negative(opened, out=opened)  # its sigmoid, in place
        np.exp(opened, out=opened)  # overflows to infinity for a closed gate
        opened += 1
        np.reciprocal(opened, out=opened)
        new = state @ self.new_of_state[part] + self.state_bias[part]
        new *= opened[..., :HIDDEN]
        new += news
        np.tanh(new, out=new)
        state -= new
        state *= opened[..., HIDDEN:]
        state += new


# By direction, the terms of all rows in the gates and in the new state.
_Read = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
