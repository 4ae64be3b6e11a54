"""Benchmark: processor time of a private training step, as a ratio to one without privacy.

Two steps on the same plans take turns, each with Adam on all 615,809 parameters. One is PyG's
GATConv with torch's GRU without privacy; the other is the engine, with clipping in exact arithmetic
and fresh noise for every parameter. Plans are random; the cost of a step depends on their sizes
alone. One thread, so that processor time is comparable.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedperf_client.privacy.clipped_sums import clipped_sum
from fedperf_client.privacy.dp_sgd import PrivateOptimizer
from fedperf_client.release.noise import SystemNoise
from fedperf_shared.model.batches import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.loss import huber_per_sample
from fedperf_shared.releases.release import TrainingParameters
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target

BATCHES = (64, 256)
MEAN_OPERATORS = (8, 20)
LARGEST = 40

OVER_PYG = 3.0

STEPS, QUICK_STEPS = 25, 2
WARM_UP = 2

CLIP_NORM = 0.5
LEARNING_RATE = 1e-4

Step = Callable[[Sequence[PlanGraph], Tensor], None]


class EngineBenchmark:
    """The benchmark."""

    name = "engine"
    claim = "a private step costs at most 3.0 x the CPU of PyG and GRU without privacy"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """One row per batch size and mean number of operators."""
        sizes = [(batch, mean) for batch in BATCHES for mean in MEAN_OPERATORS]
        rows = [
            settings.cell(f"batch{batch}-operators{mean}", partial(_timed, settings, batch, mean))
            for batch, mean in sizes
        ]
        targets = [
            Target(
                f"{row['batch']} plans of {row['mean_operators']} operators: {what}", OVER_PYG, x
            )
            for row in rows
            if isinstance(x := row[what := "private / PyG"], float)
        ]
        return ExperimentOutcome(rows, targets)


def _timed(settings: Settings, batch_size: int, mean: int) -> Row:
    rng = np.random.default_rng([settings.seed, batch_size, mean])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = _seconds(rng, batch_size, mean, QUICK_STEPS if settings.quick else STEPS)
    finally:
        torch.set_num_threads(threads)
    # Each round's steps ran side by side on one batch: their ratio first, then the median.
    pyg, private = seconds["PyG"], seconds["private"]
    return {
        "batch": batch_size,
        "mean_operators": mean,
        "PyG_ms": 1e3 * float(np.median(pyg)),
        "private_ms": 1e3 * float(np.median(private)),
        "private / PyG": float(np.median(private / pyg)),
    }


def _seconds(
    rng: np.random.Generator, batch_size: int, mean: int, count: int
) -> Mapping[str, np.ndarray]:
    """Processor seconds of each kind of step, [count] each."""
    steps = {"PyG": _plain_step(), "private": _private_step(batch_size)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP + count):
        graphs = [_plan(rng, size) for size in _sizes(rng, batch_size, mean)]
        targets = torch.from_numpy(rng.standard_normal(batch_size).astype(np.float32))
        for name in rng.permutation(list(steps)):
            before = time.process_time()
            steps[name](graphs, targets)
            if number >= WARM_UP:
                seconds[name].append(time.process_time() - before)
    return {name: np.array(values) for name, values in seconds.items()}


def _plain_step() -> Step:
    model = GGFN(dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(graphs: Sequence[PlanGraph], targets: Tensor) -> None:
        optimizer.zero_grad()
        losses = huber_per_sample(model(collate(graphs)), targets)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _private_step(batch_size: int) -> Step:
    model = GGFN(dropout=0.0)
    parameters = TrainingParameters(1.0, 0.1, 1, CLIP_NORM, 10.0 * batch_size)
    optimizer = PrivateOptimizer(model, parameters, SystemNoise(), learning_rate=LEARNING_RATE)

    def step(graphs: Sequence[PlanGraph], targets: Tensor) -> None:
        optimizer.take(clipped_sum(model, graphs, targets, CLIP_NORM))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _sizes(rng: np.random.Generator, count: int, mean: int) -> list[int]:
    """Numbers of operators around `mean`, some much smaller and some much larger."""
    return [int(size) for size in np.clip(rng.gamma(4.0, mean / 4, count).round(), 2, LARGEST)]


def _plan(rng: np.random.Generator, operators: int) -> PlanGraph:
    """Random features on a random tree, every fourth operator with a second input."""
    edges = [(int(rng.integers(child)), child) for child in range(1, operators)]
    edges += [(int(rng.integers(child)), child) for child in range(4, operators, 4)]
    return PlanGraph(
        torch.from_numpy(rng.random((operators, 63), dtype=np.float32)),
        torch.from_numpy(rng.random(39, dtype=np.float32)),
        torch.tensor(edges, dtype=torch.int64).T.contiguous(),
    )


EXPERIMENT = EngineBenchmark()
