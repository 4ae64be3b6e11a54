"""GGFN's answers from its arrays alone, without torch.

A prediction at home should not wait seconds for a training library to be imported. The
same float32 arithmetic as `ggfn.GGFN` in evaluation mode, to rounding; nothing here learns.
"""

import math
from collections.abc import Mapping, Sequence

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
)
from fedperf_shared.model.checkpoint import Checkpoint
from fedperf_shared.workflow.features import Features
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, MIN_RUNTIME_SECONDS

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_NEGATIVE_SLOPE = np.float32(0.2)
_PLANS_AT_ONCE = 256


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
        predicted[chosen] = _forward(arrays, [plans[place] for place in chosen])
    log_seconds = predicted * TARGET_SCALE + TARGET_CENTER
    return np.clip(log_seconds, math.log(MIN_RUNTIME_SECONDS), math.log(MAX_RUNTIME_SECONDS))


def _forward(arrays: Mapping[str, Floats], plans: Sequence[Features]) -> Floats:
    """Standardised log run times [plans]; plans with more operators stand first."""
    lengths = np.array([len(plan.order) for plan in plans])
    starts = np.cumsum(lengths) - lengths
    steps = [starts[lengths > step] + step for step in range(int(lengths[0]))]
    states = _attend(arrays, plans, starts)
    for layer in range(RECURRENT_LAYERS):
        states, last = _recurrent_layer(arrays, f"l{layer}", states, steps)
    fused = np.concatenate([last, np.stack([plan.plan for plan in plans])], axis=1)
    for layer in range(DENSE_LAYERS):
        fused = fused @ arrays[f"dense.{layer}.weight"].T + arrays[f"dense.{layer}.bias"]
        if layer < DENSE_LAYERS - 1:
            fused = np.maximum(fused, 0)
    return np.asarray(fused[:, 0])


def _attend(arrays: Mapping[str, Floats], plans: Sequence[Features], starts: Ints) -> Floats:
    states = np.concatenate([plan.operators for plan in plans])
    edges = [plan.edges + start for plan, start in zip(plans, starts, strict=True)]
    forward = np.concatenate(edges, axis=1)
    loops = np.tile(np.arange(len(states)), (2, 1))
    both = np.concatenate([forward, forward[::-1], loops], axis=1)
    both = both[:, np.argsort(both[1], kind="stable")]  # by target, for sums in one sweep
    for layer in range(ATTENTION_LAYERS):
        states = _elu(_attention_layer(arrays, f"attention.{layer}", states, both))
    return states


def _attention_layer(
    arrays: Mapping[str, Floats], name: str, states: Floats, edges: Ints
) -> Floats:
    values = (states @ arrays[f"{name}.lin.weight"].T).reshape(-1, HEADS, HIDDEN)
    begins, ends = edges
    from_source = (values * arrays[f"{name}.att_src"]).sum(axis=2)
    to_target = (values * arrays[f"{name}.att_dst"]).sum(axis=2)
    raw = from_source[begins] + to_target[ends]
    logits = np.where(raw > 0, raw, _NEGATIVE_SLOPE * raw)
    firsts = np.flatnonzero(np.diff(ends, prepend=-1))  # every row has a self loop
    shares = np.exp(logits - np.maximum.reduceat(logits, firsts)[ends])
    shares /= np.add.reduceat(shares, firsts)[ends]
    messages = np.einsum("eh,ehc->ec", shares, values[begins]) / np.float32(HEADS)
    return np.asarray(np.add.reduceat(messages, firsts) + arrays[f"{name}.bias"])


def _recurrent_layer(
    arrays: Mapping[str, Floats], layer: str, inputs: Floats, steps: Sequence[Ints]
) -> tuple[Floats, Floats]:
    """States of both directions [rows, 2 * hidden], and the last of each [plans, 2 * hidden].

    `steps` holds, for every step, the rows of those plans that have so many operators.
    """
    plans = len(steps[0])
    outputs = np.empty((len(inputs), 2 * HIDDEN), np.float32)
    last = np.empty((plans, 2 * HIDDEN), np.float32)
    for part, suffix in enumerate((layer, f"{layer}_reverse")):
        columns = slice(part * HIDDEN, (part + 1) * HIDDEN)
        weight, bias = (
            arrays[f"recurrent.weight_ih_{suffix}"],
            arrays[f"recurrent.bias_ih_{suffix}"],
        )
        given = inputs @ weight.T + bias
        state = np.zeros((plans, HIDDEN), np.float32)
        for rows in reversed(steps) if part else steps:
            active = slice(0, len(rows))
            state[active] = _gru(arrays, suffix, given[rows], state[active])
            outputs[rows, columns] = state[active]
        last[:, columns] = state
    return outputs, last


def _gru(arrays: Mapping[str, Floats], suffix: str, given: Floats, state: Floats) -> Floats:
    weight, bias = arrays[f"recurrent.weight_hh_{suffix}"], arrays[f"recurrent.bias_hh_{suffix}"]
    own = state @ weight.T + bias
    gates = _sigmoid(given[:, : 2 * HIDDEN] + own[:, : 2 * HIDDEN])
    reset, update = gates[:, :HIDDEN], gates[:, HIDDEN:]
    new = np.tanh(given[:, 2 * HIDDEN :] + reset * own[:, 2 * HIDDEN :])
    return np.asarray(new + update * (state - new))


def _sigmoid(values: Floats) -> Floats:
    return np.asarray((np.tanh(values / 2) + 1) / 2)  # no overflow


def _elu(values: Floats) -> Floats:
    return np.where(values > 0, values, np.expm1(np.minimum(values, 0)))
