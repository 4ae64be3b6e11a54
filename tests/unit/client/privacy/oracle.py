"""DP-SGD's clipped sum the simple way: one ordinary backward pass per example.

Slow and obviously right, through PyG's GATConv and torch's GRU; what the engine is
compared with.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedperf_client.privacy.dp_sgd import Example
from fedperf_shared.model.batches import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.loss import huber_per_sample


def gradient(model: GGFN, example: Example) -> Tensor:
    """The whole gradient of one example's loss, float64 [parameters]."""
    dtype = next(model.parameters()).dtype
    batch = collate([example.graph])
    batch = replace(batch, operators=batch.operators.to(dtype), plans=batch.plans.to(dtype))
    target = torch.tensor([example.target], dtype=dtype)
    loss = huber_per_sample(model(batch), target).sum()
    parts = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return torch.cat([part.reshape(-1) for part in parts]).double()


def is_smooth_at(model: GGFN, example: Example) -> bool:
    """Whether the gradient stays as it is when inputs move by 2^-12 of themselves, up or down.

    Where it turns, a ReLU's input lies that close to 0, and who computes in single precision may
    come out on the other side of it, with a gradient that is as right.
    """
    here = gradient(model, example)
    for factor in (1 - 2.0**-12, 1 + 2.0**-12):
        graph = example.graph
        moved = replace(graph, operators=graph.operators * factor, plan=graph.plan * factor)
        there = gradient(model, replace(example, graph=moved))
        if not float(here @ there / here.norm() / there.norm()) > 1 - 1e-6:
            return False
    return True


def clipped_sum(model: GGFN, examples: Sequence[Example], clip_norm: float) -> Tensor:
    """Sum of the gradients, each clipped to `clip_norm`; those not finite count zero."""
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = torch.zeros(trained, dtype=torch.float64)
    for example in examples:
        one = gradient(model, example)
        norm = float(one.norm())
        if np.isfinite(norm):
            total += one * min(1.0, clip_norm / norm)
    return total


def random_example(rng: np.random.Generator, operators: int, *, scale: float = 1.0) -> Example:
    """A random plan with several roots at times, and edges that are there twice."""
    parents = [
        (int(rng.integers(child)), child)
        for child in range(1, operators)
        for _ in range(int(rng.integers(3)))
    ]
    edges = torch.tensor(parents + parents[:1], dtype=torch.int64).reshape(-1, 2).T.contiguous()
    graph = PlanGraph(
        torch.from_numpy((scale * rng.standard_normal((operators, 63))).astype(np.float32)),
        torch.from_numpy((scale * rng.standard_normal(39)).astype(np.float32)),
        edges,
    )
    return Example(graph, float(rng.standard_normal()))
