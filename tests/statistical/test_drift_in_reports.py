"""Two-sided: drift scores have the claimed standard deviation, and drift sizes are recovered.

Two mutants must fail. One server assumes half or twice the noise. One assumes that the pretrained
model is exact.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_server.inference.corrections import (
    DEFAULT_KERNEL,
    Kernel,
    QueryResponse,
    ReceivedReport,
)
from fedperf_server.inference.drift_evidence import (
    DEFAULT_PROCESS_NOISE,
    SHIFT,
    SteadyStateFilter,
    by_organization,
    compute_evidence,
)
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.experiments.drift.report_detection import (
    IN_TIME,
    USED,
    PlatformShift,
    detections,
    schedule_of,
)
from tests.fakes.new_workloads import year_of_new_workloads
from tests.fakes.report_years import Year, read_drifts, year_of_reports

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

YEARS = 24
GROWN = 6
"""First window in which a growing organization has many more workloads."""

SEEDS = range(1, 21)
FAR_OFF = tuple(
    PlatformShift(platform, -100.0, 1.5) for platform in (Platform.DUCKDB, Platform.POLARS)
)
"""Platforms that took 4.5 times the pretrained model's prediction before the year began."""

FALSE_EPOCHS_A_YEAR = 0.5
SURE = Kernel(1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, organization_sd=1e-2)
"""Prior of a server that assumes an exact pretrained model."""


@lru_cache(maxsize=1)
def quiet_years() -> list[Year]:
    return [year_of_reports(200, 1, [], [41, number]) for number in range(YEARS)]


def claiming(year: Year, factor: float) -> Year:
    """Return the year with declared noise multiplied by `factor`."""

    def louder(each: QueryResponse) -> QueryResponse:
        noise = factor * each.parameters.noise_multiplier
        return replace(each, parameters=replace(each.parameters, noise_multiplier=noise))

    def plain(each: ReceivedReport) -> ReceivedReport:
        noise = factor * each.parameters.noise_multiplier
        return replace(each, parameters=replace(each.parameters, noise_multiplier=noise))

    query_responses = (
        replace(each, responses=tuple(louder(said) for said in each.responses))
        for each in year.query_responses
    )
    return Year(tuple(plain(each) for each in year.plain), tuple(query_responses))


def scores(year: Year, kernel: Kernel = DEFAULT_KERNEL) -> NDArray[np.float64]:
    """Return standardised scores of the used platforms for two change points."""
    (heard,) = by_organization(year.plain, year.query_responses).values()
    steady = SteadyStateFilter.fit(heard, kernel=kernel, process_noise=DEFAULT_PROCESS_NOISE)
    found = compute_evidence(steady, (4, 9))
    standard = found.score / np.sqrt(found.information)
    return np.asarray(standard[:, : len(USED)]).ravel()


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_drift_score_has_unit_variance_only_with_the_right_noise_scale(factor: float) -> None:
    found = np.concatenate([scores(claiming(each, factor)) for each in quiet_years()])
    spread = float(np.sqrt(np.mean(found**2)))
    assert (0.8 < spread < 1.25) == (factor == 1.0), spread


def test_drift_score_with_overconfident_prior_has_inflated_variance() -> None:
    found = np.concatenate([scores(each, SURE) for each in quiet_years()])
    assert float(np.sqrt(np.mean(found**2))) > 1.5


def test_drift_detection_finds_shifts_in_time_with_little_bias() -> None:
    seen = []
    for number in range(YEARS):
        sign = 1.0 if number % 2 else -1.0
        shift = PlatformShift(USED[number % 3], 4.3 + 0.2 * number, sign * SHIFT)
        year = year_of_reports(200, 1, [shift], [43, number])
        found = detections(read_drifts(year.plain, year.query_responses), shift, schedule_of(200))
        seen.append((found, sign))
    in_time = [each.delay is not None and each.delay <= IN_TIME for each, _ in seen]
    sizes = [sign * each.log_factor for each, sign in seen if each.log_factor is not None]
    assert np.mean(in_time) >= 0.8
    assert abs(float(np.mean(sizes)) - SHIFT) < 0.12
    assert sum(each.false_alarms for each, _ in seen) <= 4


def test_drift_detection_without_drift_raises_few_alarms() -> None:
    alarms = [len(read_drifts(each.plain, each.query_responses)) for each in quiet_years()]
    assert np.mean(alarms) <= 0.25


@lru_cache(maxsize=2)
def years_from_the_start(shifts: tuple[PlatformShift, ...]) -> list[Year]:
    return [year_of_reports(200, 1, shifts, [seed]) for seed in SEEDS]


def years_with_a_drift(shifts: tuple[PlatformShift, ...], kernel: Kernel = DEFAULT_KERNEL) -> int:
    found = (
        read_drifts(each.plain, each.query_responses, kernel=kernel)
        for each in years_from_the_start(shifts)
    )
    return sum(map(bool, found))


@pytest.mark.parametrize("shifts", [FAR_OFF, ()], ids=["far off", "quiet"])
def test_platform_offset_present_from_the_beginning_is_rarely_taken_for_drift(
    shifts: tuple[PlatformShift, ...],
) -> None:
    assert years_with_a_drift(shifts) <= 1


def test_drift_detection_with_overconfident_prior_takes_offset_for_drift() -> None:
    assert years_with_a_drift(FAR_OFF, SURE) > 10


def all_history(window: int) -> float:
    """Return the activity of a window. The first report covers all earlier executions."""
    return 13.0 if window == 0 else 1.0


def growing(window: int) -> float:
    return 3.0 if window >= GROWN else 1.0


@pytest.mark.parametrize(
    ("activity", "off_by", "asked"),
    [(all_history, 0.5, False), (all_history, 0.5, True), (growing, 1.0, False)],
)
def test_changed_workload_counts_are_rarely_taken_for_shared_drift(
    activity: Callable[[int], float], off_by: float, asked: bool
) -> None:
    shared = 0
    for number in range(20):
        year = year_of_new_workloads(activity, off_by=off_by, seed=[47, number], asked=asked)
        shared += sum(each.shared for each in read_drifts(year.plain, year.query_responses))
    assert shared / 20 <= FALSE_EPOCHS_A_YEAR
