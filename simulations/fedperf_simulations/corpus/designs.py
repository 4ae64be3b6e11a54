"""Designs of `fedperf-sim measure`: the settings that follow from its options."""

from dataclasses import replace

from fedperf_engines.workloads.data import SCALES
from fedperf_shared.workflow.vocabulary import Platform, platform_of
from fedperf_simulations.corpus.comparison_set import LESSON_PROGRAMS, ComparisonSettings
from fedperf_simulations.corpus.resource_cap import CAPPED_PLATFORMS, CAPPED_WORKLOADS, Cap
from fedperf_simulations.corpus.workload_draws import MeasuringSettings

LARGE_WORKLOADS = 400
_LARGE_ROWS = (3_000_000, SCALES[-1])
"""Most runs take 0.3 to 60 seconds."""


def measuring_settings(
    seed: int, workloads: int | None, platform: str | None, *, quick: bool
) -> MeasuringSettings:
    """Settings of the measured set, or of one platform's alone."""
    alone = platform_of(platform) if platform else None
    full = MeasuringSettings(seed)
    count = workloads or (40 if quick else full.workloads)
    compared = 0 if alone else min(full.comparisons, count // 10)
    most_rows = 100_000 if quick else full.most_rows
    return MeasuringSettings(seed, count, comparisons=compared, most_rows=most_rows, platform=alone)


def capped_settings(
    seed: int, workloads: int | None, cap: Cap, *, quick: bool
) -> MeasuringSettings:
    """Settings under a cap: less than a core per thread; a busy core elsewhere disturbs nothing."""
    drawn = measuring_settings(
        seed, workloads or (None if quick else CAPPED_WORKLOADS), None, quick=quick
    )
    return replace(
        drawn,
        comparisons=0,
        two_threads_share=0.0,
        disturbed_cores=1.2,
        among=CAPPED_PLATFORMS,
        cap=cap,
    )


def comparison_settings(seed: int, workloads: int | None, *, quick: bool) -> ComparisonSettings:
    """Settings of the comparison set: many plans of each workload."""
    full = ComparisonSettings(seed)
    if not quick:
        return ComparisonSettings(seed, workloads or full.workloads)
    return ComparisonSettings(
        seed, workloads or 12, series=1, exhaustive=1, most_rows=10_000, mixed=1
    )


def lesson_settings(seed: int, workloads: int | None, *, quick: bool) -> ComparisonSettings:
    """Settings of the lessons: no series, and the next seed, so that workloads are others."""
    drawn = comparison_settings(seed + 1, workloads, quick=quick)
    return replace(drawn, series=0, exhaustive=1 if quick else LESSON_PROGRAMS)


def large_settings(seed: int, workloads: int | None, *, quick: bool) -> MeasuringSettings:
    """Settings of inputs hundreds of times as large; each plan runs once, or twice if disturbed."""
    drawn = measuring_settings(seed, workloads or LARGE_WORKLOADS, None, quick=quick)
    least, most = _LARGE_ROWS
    return replace(
        drawn,
        comparisons=0,
        least_rows=drawn.most_rows if quick else least,
        most_rows=drawn.most_rows if quick else most,
        small_weight=0.2,
        timeout_seconds=120.0,
        repeats=1,
        among=(Platform.DUCKDB, Platform.POLARS, Platform.PANDAS),
    )
