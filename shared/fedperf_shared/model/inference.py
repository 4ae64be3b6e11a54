"""GGFN's answers from its arrays alone, without torch.

A prediction at home should not wait seconds for a training library to be imported. The
same float32 arithmetic as `ggfn.GGFN` in evaluation mode, to rounding; nothing here learns.
"""

import math
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
    RECURRENT_LAYERS,
    TARGET_CENTER,
    TARGET_SCALE,
    offset_of,
)
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.workflow.features import Features
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, MIN_RUNTIME_SECONDS

Floats = NDArray[np.float32]

_NEGATIVE_SLOPE = np.float32(0.2)
_GATES = 2 * HIDDEN
_PLANS_AT_ONCE = 256
_PAIRS_AT_ONCE = 2**20
"""Of operators that attend to each other; a bound on memory."""


def predict_log_seconds(checkpoint: Checkpoint, plans: Sequence[Features]) -> NDArray[np.float64]:
    """Natural log of the predicted run times in seconds [plans], within the public bounds.

    Args:
        checkpoint: a state of the model.
        plans: in any number and order.
    """
    arrays = checkpoint.arrays
    predicted = np.empty(len(plans))
    order = sorted(range(len(plans)), key=lambda place: -len(plans[place].order))
    for start in range(0, len(order), _PLANS_AT_ONCE):
        chosen = order[start : start + _PLANS_AT_ONCE]
        with np.errstate(over="ignore", divide="ignore"):
            predicted[chosen] = _forward(arrays, [plans[place] for place in chosen])
    log_seconds = predicted * TARGET_SCALE + TARGET_CENTER
    return np.clip(log_seconds, math.log(MIN_RUNTIME_SECONDS), math.log(MAX_RUNTIME_SECONDS))


def _forward(arrays: Mapping[str, Floats], plans: Sequence[Features]) -> Floats:
    """Standardised log run times [plans]; plans with more operators stand first."""
    lengths = np.array([len(plan.order) for plan in plans])
    starts = np.cumsum(lengths) - lengths
    packed = [starts[lengths > step] + step for step in range(int(lengths[0]))]
    ends = np.cumsum([len(rows) for rows in packed]).tolist()
    steps = [slice(end - len(rows), end) for rows, end in zip(packed, ends, strict=True)]
    states = _attend(arrays, plans)[np.concatenate(packed)]  # step by step, one slice each
    for layer in range(RECURRENT_LAYERS):
        states, last = _recurrent_layer(arrays, f"l{layer}", states, steps)
    fused = np.concatenate([last, np.stack([plan.plan for plan in plans])], axis=1)
    for layer in range(DENSE_LAYERS):
        fused = fused @ arrays[f"dense.{layer}.weight"].T + arrays[f"dense.{layer}.bias"]
        if layer < DENSE_LAYERS - 1:
            fused = np.maximum(fused, 0)
    return np.asarray(fused[:, 0] + np.array([offset_of(plan) for plan in plans], np.float32))


def _attend(arrays: Mapping[str, Floats], plans: Sequence[Features]) -> Floats:
    """States of all operators [rows, hidden], plan by plan.

    Plans of one length attend together, as dense matrices: an operator has few neighbours,
    but products of matrices are so much faster than sums over edges.
    """
    attended = []
    for length, group in groupby(plans, key=lambda plan: len(plan.order)):
        same = list(group)
        at_once = max(1, _PAIRS_AT_ONCE // length**2)
        for start in range(0, len(same), at_once):
            chosen = same[start : start + at_once]
            states = np.stack([plan.operators for plan in chosen])
            log_edges = np.log(_edge_counts(chosen))[:, None]  # of no edge: -infinity
            for layer in range(ATTENTION_LAYERS):
                states = _elu(_attention_layer(arrays, f"attention.{layer}", states, log_edges))
            attended.append(states.reshape(-1, HIDDEN))
    return np.concatenate(attended)


def _edge_counts(plans: Sequence[Features]) -> Floats:
    """How many edges lead from an operator to another [plans, to, from], with self loops."""
    length = len(plans[0].order)
    places = [
        (number * length + plan.edges[1]) * length + plan.edges[0]
        for number, plan in enumerate(plans)
    ]
    counts = np.bincount(np.concatenate(places), minlength=len(plans) * length**2)
    forward = counts.reshape(len(plans), length, length).astype(np.float32)
    return np.asarray(forward + forward.transpose(0, 2, 1) + np.eye(length, dtype=np.float32))


def _attention_layer(
    arrays: Mapping[str, Floats], name: str, states: Floats, log_edges: Floats
) -> Floats:
    """New states [plans, operators, hidden] of old ones; heads are averaged."""
    weight = arrays[f"{name}.lin.weight"].reshape(HEADS, HIDDEN, -1)
    from_source = _scores(states, weight, arrays[f"{name}.att_src"])[:, :, None, :]
    to_target = _scores(states, weight, arrays[f"{name}.att_dst"])[:, :, :, None]
    raw = from_source + to_target
    logits = np.maximum(raw, _NEGATIVE_SLOPE * raw) + log_edges
    logits -= logits.max(axis=3, keepdims=True)
    shares = np.exp(logits, out=logits)
    shares /= shares.sum(axis=3, keepdims=True) * HEADS
    mixed = shares @ states[:, None]  # [plans, heads, operators, inputs]
    plans, operators, inputs = states.shape
    beside = mixed.transpose(0, 2, 1, 3).reshape(plans * operators, HEADS * inputs)
    values = beside @ weight.transpose(0, 2, 1).reshape(HEADS * inputs, HIDDEN)
    return np.asarray(values + arrays[f"{name}.bias"]).reshape(plans, operators, HIDDEN)


def _scores(states: Floats, weight: Floats, vectors: Floats) -> Floats:
    """Scalar products of a head's vector with the values of the states [plans, heads, rows]."""
    of_inputs = (vectors.reshape(HEADS, 1, HIDDEN) @ weight)[:, 0]
    return np.ascontiguousarray((states @ of_inputs.T).transpose(0, 2, 1))


def _recurrent_layer(
    arrays: Mapping[str, Floats], layer: str, inputs: Floats, steps: Sequence[slice]
) -> tuple[Floats, Floats]:
    """States of both directions [rows, 2 * hidden], and the last of each [plans, 2 * hidden].

    `steps` holds, for every step, the rows of those plans that have so many operators.
    """
    plans = steps[0].stop
    outputs = np.empty((len(inputs), 2 * HIDDEN), np.float32)
    last = np.empty((plans, 2 * HIDDEN), np.float32)
    for part, suffix in enumerate((layer, f"{layer}_reverse")):
        columns = slice(part * HIDDEN, (part + 1) * HIDDEN)
        direction = _Direction.of(arrays, suffix)
        gates, news = direction.read(inputs)
        state = np.zeros((plans, HIDDEN), np.float32)
        for rows in reversed(steps) if part else steps:
            active = state[: rows.stop - rows.start]
            direction.step(active, gates[rows], news[rows])
            outputs[rows, columns] = active
        last[:, columns] = state
    return outputs, last


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """One direction of a GRU layer; its arrays split into gates (reset, update) and new state."""

    of_input: Floats
    input_bias: Floats
    gates_of_state: Floats
    new_of_state: Floats
    state_bias: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, Floats], suffix: str) -> "_Direction":
        of_state = arrays[f"recurrent.weight_hh_{suffix}"].T
        state_bias = arrays[f"recurrent.bias_hh_{suffix}"]
        input_bias = arrays[f"recurrent.bias_ih_{suffix}"].copy()
        input_bias[:_GATES] += state_bias[:_GATES]
        return cls(
            of_input=arrays[f"recurrent.weight_ih_{suffix}"].T,
            input_bias=input_bias,
            gates_of_state=np.ascontiguousarray(of_state[:, :_GATES]),
            new_of_state=np.ascontiguousarray(of_state[:, _GATES:]),
            state_bias=state_bias[_GATES:],
        )

    def read(self, inputs: Floats) -> tuple[Floats, Floats]:
        """What all rows give to the gates and to the new state, biases of the gates included."""
        gates, news = inputs @ self.of_input[:, :_GATES], inputs @ self.of_input[:, _GATES:]
        gates += self.input_bias[:_GATES]
        news += self.input_bias[_GATES:]
        return gates, news

    def step(self, state: Floats, gates: Floats, news: Floats) -> None:
        """The next `state` [plans, hidden], in its place."""
        opened = _sigmoid(state @ self.gates_of_state + gates)
        new = state @ self.new_of_state + self.state_bias
        new *= opened[:, :HIDDEN]
        new += news
        np.tanh(new, out=new)
        state -= new
        state *= opened[:, HIDDEN:]
        state += new


def _sigmoid(values: Floats) -> Floats:
    """In the place of `values`; large negative ones overflow to the right answer, 0."""
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += 1
    return np.reciprocal(values, out=values)


def _elu(values: Floats) -> Floats:
    return np.asarray(np.maximum(values, 0) + (np.exp(np.minimum(values, 0)) - 1))
