"""Tests that queries, corrections and drifts are the same under any BLAS kernel of the CPU."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

NEEDS = {
    "Haswell": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "Sandybridge": {"avx"},
}
"""CPU flags that OpenBLAS needs for each kernel."""

MOST_APART = 1e-3
"""Tolerance: radians between the subspaces of two queries, log seconds between centers."""

Found = Mapping[str, Any]


@lru_cache(maxsize=1)
def runnable() -> tuple[str, ...]:
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists():
        return ()
    flags = set(cpu.read_text().split())
    return tuple(name for name, needed in NEEDS.items() if needed <= flags)


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    if len(runnable()) < 2:
        pytest.skip(f"this CPU runs {len(runnable())} of the kernels {', '.join(NEEDS)}")
    folder = tmp_path_factory.mktemp("kernels")
    found: dict[str, Found] = {}
    for name in runnable():
        path = folder / f"{name}.npz"
        subprocess.run(
            [sys.executable, "-m", "tests.fakes.query_year", str(path)],
            env={**os.environ, "OPENBLAS_CORETYPE": name, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        found[name] = dict(np.load(path))
        assert set(found[name]["kernels"]) == {name}
    return found


def pairs(years: dict[str, Found]) -> list[tuple[Found, Found]]:
    return list(combinations(years.values(), 2))


@pytest.mark.slow
def test_linear_queries_of_a_year_are_identical_under_all_blas_kernels(
    years: dict[str, Found],
) -> None:
    for one, other in pairs(years):
        assert len(one["directions"]) == len(other["directions"]) > 20
        for what in ("directions", "centers", "clips"):
            np.testing.assert_array_equal(one[what], other[what], err_msg=what)
        for mine, theirs in zip(one["directions"], other["directions"], strict=True):
            assert subspace_angles(mine.T, theirs.T).max() < MOST_APART
        np.testing.assert_allclose(one["centers"], other["centers"], rtol=0, atol=MOST_APART)
        np.testing.assert_allclose(one["clips"], other["clips"], rtol=0, atol=MOST_APART)


@pytest.mark.slow
def test_correction_and_drifts_of_a_year_agree_under_all_blas_kernels(
    years: dict[str, Found],
) -> None:
    for one, other in pairs(years):
        np.testing.assert_allclose(one["correction"], other["correction"], rtol=0, atol=MOST_APART)
        assert list(one["verdicts"]) == list(other["verdicts"]) != []
