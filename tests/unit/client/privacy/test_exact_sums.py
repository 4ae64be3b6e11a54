"""One workload moves a sum of clipped gradients by at most one clip, whatever the model.

In whole numbers, so that nothing is "up to rounding". What is compared with is the engine on
one workload at a time: whoever else is there, a workload adds these very numbers.
"""

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from fedperf_client.privacy.clipped_sums import UNIT_BITS, ClippedSum, squares_at_most
from fedperf_client.privacy.dp_sgd import Example, sum_over
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.gradients.records import Rows
from fedperf_shared.model.public_plans import load_public_plans
from tests.fakes.crafted_models import MODELS
from tests.unit.client.privacy import oracle

CLIP = 0.5

FEW, SOME, MANY = 3, 64, 250
"""Workloads of a store: all models add up few."""

IN_FEW = (
    "amplifying 3",
    *(f"cancelling {each}" for each in ("0 1e+06", "1000 1e+06")),
    *(f"cancelling {each} 10000" for each in ("10000", "100000", "1e+06")),
)
"""Close to models that are tried with many."""

IN_MORE = [name for name in MODELS if name not in IN_FEW]

LOOKED_AT = ("public start", "amplifying 0", "cancelling 300 30", "wild 1.5")

HALF_BITS = UNIT_BITS // 2

KERNELS = ("Haswell", "SkylakeX", "Sandybridge")


@cache
def measured() -> list[PlanGraph]:
    return [PlanGraph.of(each.plan, each.cluster) for each in load_public_plans()]


def store(seed: int, count: int) -> list[Example]:
    """Plans that really ran, and every fifth one a random one."""
    rng, graphs = np.random.default_rng(seed), measured()
    return [
        oracle.random_example(rng, int(rng.integers(2, 40)))
        if rng.random() < 0.2
        else Example(graphs[int(rng.integers(len(graphs)))], 2 * float(rng.standard_normal()))
        for _ in range(count)
    ]


def flat(found: ClippedSum) -> Tensor:
    return torch.cat([each.reshape(-1) for each in found.units.values()])


def within_a_clip(units: Tensor) -> bool:
    """In whole numbers, in two halves whose products fit into 64 bits."""
    longest: int = 2**UNIT_BITS
    if int(units.max()) > longest or int(units.min()) < -longest:
        return False
    high, low = units >> HALF_BITS, units & (2**HALF_BITS - 1)
    squares = int((high * high).sum()) << (2 * HALF_BITS)
    squares += int((high * low).sum()) << (HALF_BITS + 1)
    squares += int((low * low).sum())
    return squares <= longest * longest


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, FEW) for name in MODELS),
        *(pytest.param(name, SOME, marks=pytest.mark.slow) for name in IN_MORE),
        *(pytest.param(name, MANY, marks=pytest.mark.slow) for name in IN_MORE),
    ],
)
def test_stores_that_differ_by_one_workload_differ_by_at_most_a_clip(name: str, count: int) -> None:
    model, others = MODELS[name](), store(count, count)
    without = flat(sum_over(model, others, CLIP))
    for place, new in zip((count // 2, 0), store(1000 + count, 2), strict=True):
        moved = flat(sum_over(model, [*others[:place], new, *others[place:]], CLIP)) - without
        assert within_a_clip(moved)
        assert torch.equal(moved, flat(sum_over(model, [new], CLIP)))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, FEW) for name in MODELS),
        *(pytest.param(name, SOME, marks=pytest.mark.slow) for name in IN_MORE),
        *(pytest.param(name, MANY, marks=pytest.mark.slow) for name in LOOKED_AT),
    ],
)
def test_a_sum_is_that_of_its_workloads_one_at_a_time_in_any_order(name: str, count: int) -> None:
    model, together = MODELS[name](), store(7 + count, count)
    alone = [flat(sum_over(model, [each], CLIP)) for each in together]
    assert all(within_a_clip(each) for each in alone)
    total = flat(sum_over(model, together, CLIP))
    assert torch.equal(total, torch.stack(alone).sum(0))
    order = np.random.default_rng(count).permutation(count)
    again = [together[place] for place in order]
    assert torch.equal(flat(sum_over(model, again, CLIP)), total)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("values", [1, 3, 615_809])
def test_a_sum_that_is_one_unit_longer_than_a_clip_is_seen(values: int, more: int) -> None:
    units = torch.zeros(values, dtype=torch.int64)
    units[0] = -(2**UNIT_BITS)
    units[-1] += more if values > 1 else -more
    assert within_a_clip(units) is (more == 0)


@pytest.mark.parametrize("name", ["cancelling 10000 1e+06", "cancelling 1e+06 1e+09"])
def test_a_workload_whose_rows_only_cancel_counts_exactly_zero(name: str) -> None:
    """Rows of many clips would be too large for exact sums."""
    assert all(not flat(sum_over(MODELS[name](), [each], CLIP)).any() for each in store(4, 5))


@pytest.mark.parametrize(
    "clip",
    [pytest.param(1e-9, marks=pytest.mark.slow), 0.01, pytest.param(0.3, marks=pytest.mark.slow)],
)
def test_a_clipped_workload_is_never_longer_than_the_clip_by_even_one_unit(clip: float) -> None:
    """Long gradients are cut just below the clip, so that a bound without a margin shows."""
    model = MODELS["fresh"]()
    clipped = [flat(sum_over(model, [each], clip)) for each in store(3, 40)]
    assert all(within_a_clip(each) for each in clipped)
    assert max(float(each.double().norm()) for each in clipped) > 0.999 * 2**UNIT_BITS


@pytest.mark.parametrize("length", [1, 2, 7, 40, 200])
def test_the_norm_is_never_too_small_however_much_cancels(length: int) -> None:
    """Pairs of rows that cancel but for a little, which rounding alone would lose."""
    generator = torch.Generator().manual_seed(length)
    rows = Rows((1,) * length, torch.zeros(length, dtype=torch.int64))
    for _ in range(20):
        gradient = torch.randint(-(2**22), 2**22, (length, 96), generator=generator)
        activation = torch.randint(-4000, 4000, (length, 60), generator=generator)
        gradient[1::2] = -gradient[: length - length % 2 : 2]
        activation[1::2] = activation[: length - length % 2 : 2]
        if length % 2 == 0:
            gradient[0, 0] += 1
        else:
            gradient[-1] = torch.randint(-3, 3, (96,), generator=generator)
        whole: list[int] = (gradient.T @ activation).flatten().tolist()
        bound = squares_at_most(gradient.double(), activation.double(), rows)
        assert sum(each * each for each in whole) <= float(bound)


@pytest.mark.parametrize("name", ["public start", "fresh"])
def test_no_honest_workload_is_dropped_or_shortened(name: str) -> None:
    model = MODELS[name]()
    exact = MODELS[name]().double()
    for each in store(5, 15):
        found = flat(sum_over(model, [each], CLIP)).double() * (CLIP * 2.0**-UNIT_BITS)
        expected = oracle.clipped_sum(exact, [each], CLIP)
        assert 0.999 <= float(found.norm() / expected.norm()) < 1.0005
        assert float(found @ expected / found.norm() / expected.norm()) > 0.99999


@pytest.mark.parametrize(
    ("kernels", "threads"),
    # Three threads would cut arrays inside a vector.
    [*((kernels, threads) for kernels in KERNELS for threads in (1, 2)), ("Haswell", 3)],
)
@pytest.mark.slow
def test_company_changes_no_bit_under_other_kernels_and_threads(kernels: str, threads: int) -> None:
    capability = {"Sandybridge": "default", "Haswell": "avx2", "SkylakeX": "avx512"}[kernels]
    instructions = {"Sandybridge": "AVX", "Haswell": "AVX2", "SkylakeX": "AVX512"}[kernels]
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": kernels,
        "MKL_ENABLE_INSTRUCTIONS": instructions,
        "ATEN_CPU_CAPABILITY": capability,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.client.privacy.test_exact_sums", str(threads)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == dict.fromkeys(LOOKED_AT, 0)


def differences(name: str) -> int:
    """Workloads of a store that add other numbers alone than in the company of others."""
    model, together = MODELS[name](), store(11, 70)
    total = flat(sum_over(model, together, CLIP))
    found = 0
    for place in range(0, len(together), 14):
        others = [*together[:place], *together[place + 1 :]]
        moved = total - flat(sum_over(model, others, CLIP))
        found += not torch.equal(moved, flat(sum_over(model, [together[place]], CLIP)))
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({name: differences(name) for name in LOOKED_AT}))
