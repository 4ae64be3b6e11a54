"""Tests of drift in reports: it is located, found once, and robust to one organization."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pytest

from fedperf_server.inference import drift_evidence
from fedperf_server.inference.corrections import DEFAULT_KERNEL, QueryResponse, ReceivedReport
from fedperf_server.inference.drift_evidence import (
    DEFAULT_PROCESS_NOISE,
    MAX_OWN_DRIFTS,
    SHIFT,
    STATE,
    THRESHOLD,
    DriftReader,
    PlatformDrift,
    ProcessNoise,
    SteadyStateFilter,
    WindowInformation,
    by_organization,
    compute_evidence,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import CELLS, PLATFORM_GROUPS
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.experiments.drift.report_detection import PlatformShift
from tests.fakes.new_workloads import year_of_new_workloads
from tests.fakes.report_years import Year, read_drifts, year_of_reports

Said = TypeVar("Said", QueryResponse, ReceivedReport)
SLOWER = PlatformShift(Platform.POLARS, 5.2, SHIFT)


WORKLOADS = 400
"""Workloads per platform, so many that the result does not depend on one draw of the noise."""


@lru_cache(maxsize=16)
def year(*shifts: PlatformShift, organizations: int = 1, seed: int = 1) -> Year:
    return year_of_reports(WORKLOADS, organizations, shifts, [seed])


@lru_cache(maxsize=16)
def found(reports: Year) -> tuple[PlatformDrift, ...]:
    return read_drifts(reports.plain, reports.query_responses)


def until(reports: Year, window: int) -> Year:
    return Year(
        tuple(each for each in reports.plain if each.report.slot.window <= window),
        tuple(each for each in reports.query_responses if each.query.slot.window <= window),
    )


def since(reports: Year, window: int) -> Year:
    return Year(
        tuple(each for each in reports.plain if each.report.slot.window >= window),
        tuple(each for each in reports.query_responses if each.query.slot.window >= window),
    )


def edited(
    reports: Year,
    organization: str,
    answer: Callable[[QueryResponse], QueryResponse],
    plain: Callable[[ReceivedReport], ReceivedReport] = lambda each: each,
) -> Year:
    """Return the year with replaced responses and plain reports of one organization."""
    query_responses = tuple(
        replace(
            each,
            responses=tuple(
                answer(said) if said.organization == organization else said
                for said in each.responses
            ),
        )
        for each in reports.query_responses
    )
    said = (plain(each) if each.organization == organization else each for each in reports.plain)
    return Year(tuple(said), query_responses)


def test_read_drifts_detects_a_slower_platform_with_window_and_size() -> None:
    (drift,) = found(year(SLOWER))
    assert drift.platform is Platform.POLARS
    assert drift.organizations == ("0",)
    assert not drift.shared
    assert (
        6 <= drift.since <= drift.detected_in <= 9
    )  # the report of window 6 is the first to cover it
    assert abs(drift.log_factor - SHIFT) < 3 * drift.standard_error < SHIFT


def test_read_drifts_detects_a_faster_platform_as_faster() -> None:
    (drift,) = found(year(replace(SLOWER, log_factor=-SHIFT)))
    assert drift.platform is Platform.POLARS
    assert drift.log_factor < -SHIFT / 2


@pytest.mark.slow
def test_read_drifts_with_constant_offset_reports_no_drift() -> None:
    """The year has few workloads.

    Many seeds are tested in `tests/statistical/test_drift_in_reports.py`.
    """
    always = [
        PlatformShift(platform, -100.0, 1.5) for platform in (Platform.DUCKDB, Platform.POLARS)
    ]
    assert found(year_of_reports(200, 1, always, [1])) == ()
    assert found(year_of_reports(200, 1, [], [1])) == ()


def test_read_drifts_with_first_report_about_all_history_reports_no_drift() -> None:
    """Where workloads do not recur, the first report covers many more of them than later ones."""

    def all_history(window: int) -> float:
        return 13.0 if window == 0 else 1.0

    for seed in (1, 2):
        new = year_of_new_workloads(all_history, off_by=0.5, seed=[seed], asked=False)
        assert found(until(new, 4)) == ()


def test_read_drifts_is_independent_of_an_organizations_first_window() -> None:
    """Any values of that window give identical results. Here the organization joins in window 2."""
    joined = since(year(SLOWER), 2)
    drifts = found(joined)
    assert drifts
    for factor in (-13, 0, 13):

        def other(each: Said, factor: int = factor) -> Said:
            if each.report.slot.window != 2:
                return each
            return replace(each, report=replace(each.report, values=factor * each.report.values))

        assert found(edited(joined, "0", other, other)) == drifts


def test_read_drifts_with_growing_workload_counts_reports_no_drift() -> None:
    """The sums of a reference with an offset grow with the counts."""

    def growing(window: int) -> float:
        return 3.0 if window >= 3 else 1.0

    for seed in (1, 2):
        new = year_of_new_workloads(growing, off_by=1.0, seed=[seed], asked=False)
        assert found(until(new, 6)) == ()


def test_read_drifts_without_reports_or_with_one_window_reports_no_drift() -> None:
    assert read_drifts([], []) == ()
    assert found(until(year(), 0)) == ()


@pytest.mark.slow
def test_read_drifts_marks_drift_of_several_organizations_as_shared() -> None:
    first = found(year(SLOWER, organizations=3))[0]
    assert first.shared
    assert first.platform is Platform.POLARS
    assert len(first.organizations) >= 2
    assert first.detected_in <= 8


@pytest.mark.slow
def test_read_drifts_marks_drift_of_one_organization_as_not_shared() -> None:
    drifts = found(year(replace(SLOWER, only="1", log_factor=0.8), organizations=3))
    assert [(each.platform, each.organizations, each.shared) for each in drifts] == [
        (Platform.POLARS, ("1",), False)
    ]


@pytest.mark.slow
def test_read_drifts_reports_each_drift_once_and_continues() -> None:
    later = PlatformShift(Platform.DUCKDB, 8.3, -0.6)
    drifts = found(year(SLOWER, later))
    assert [each.platform for each in drifts] == [Platform.POLARS, Platform.DUCKDB]


def test_drift_reader_by_window_matches_batch_and_rereads_only_late_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows from a late report on are read once more."""
    reports, read, reader = year(SLOWER), list[int](), DriftReader()
    whole = found(reports)
    new_drifts = drift_evidence._new_drifts

    def counted(*arguments: Any) -> tuple[PlatformDrift, ...]:
        read.append(arguments[2])
        return new_drifts(*arguments)

    monkeypatch.setattr(drift_evidence, "_new_drifts", counted)
    late = next(each for each in reports.plain if each.report.slot.window == 6)
    punctual = Year(tuple(e for e in reports.plain if e is not late), reports.query_responses)
    for window in range(13):
        heard = until(punctual, window)
        seen = reader.read(heard.plain, heard.query_responses)
    assert read == [*range(1, 13)]
    assert seen == found(punctual)
    read.clear()
    assert reader.read(reports.plain, reports.query_responses) == whole != ()
    assert read == [*range(6, 13)]


def test_read_drifts_of_earlier_windows_is_unchanged_by_later_reports() -> None:
    whole = found(year(SLOWER))
    for window in (6, 9):
        early = found(until(year(SLOWER), window))
        assert early == tuple(each for each in whole if each.detected_in <= window)


def lies(window: int, size: float) -> Callable[[QueryResponse], QueryResponse]:
    """Replace all values from a window on by `size` times the noise, with implausible signs."""

    def lie(answer: QueryResponse) -> QueryResponse:
        if answer.report.slot.window < window:
            return answer
        scale = size * answer.parameters.noise_multiplier * 2.0**-answer.report.grid_exponent
        signs = np.where(np.arange(len(answer.report.values)) % 2, 1, -1)
        values = (scale * signs).astype(np.int64)
        return replace(answer, report=replace(answer.report, values=values))

    return lie


@pytest.mark.slow
@pytest.mark.parametrize("size", [5.0, 1e4])
def test_dishonest_organization_causes_no_shared_drift(size: float) -> None:
    drifts = found(edited(year(organizations=3), "0", lies(6, size)))
    assert len(drifts) == MAX_OWN_DRIFTS
    assert {each.organizations for each in drifts} == {("0",)}
    assert not any(each.shared for each in drifts)


@pytest.mark.parametrize("size", [5.0, -1e4])
def test_dishonest_organization_cannot_hide_a_shared_drift(size: float) -> None:
    drifts = found(edited(year(SLOWER, organizations=3), "0", lies(0, size)))
    (shared,) = (each for each in drifts if each.shared and each.platform is Platform.POLARS)
    assert {"1", "2"} & set(shared.organizations)
    assert 0 < shared.log_factor < 2 * SHIFT


def test_organization_claiming_many_workloads_causes_no_shared_drift() -> None:
    def claim(received: ReceivedReport) -> ReceivedReport:
        values = received.report.values.copy()
        values[:CELLS] += np.int64(1000) << 20
        return replace(received, report=replace(received.report, values=values))

    drifts = found(edited(year(organizations=3), "0", lies(6, 5.0), claim))
    assert not any(each.shared for each in drifts)


@pytest.mark.slow
def test_organization_claiming_many_workloads_cannot_hide_a_shared_drift() -> None:
    def claim(received: ReceivedReport) -> ReceivedReport:
        values = received.report.values.copy()
        values[:CELLS] += np.int64(60) << 20
        return replace(received, report=replace(received.report, values=values))

    shifts = [replace(SLOWER, only=str(number)) for number in range(1, 5)]
    reports = edited(year(*shifts, organizations=5, seed=4), "0", lambda each: each, claim)
    (drift,) = (each for each in found(reports) if each.shared)
    assert drift.organizations == ("1", "2", "3", "4")
    assert abs(drift.log_factor - SHIFT) < 3 * drift.standard_error


def a_steady_state(seed: int, windows: Sequence[int]) -> SteadyStateFilter:
    rng = np.random.default_rng(seed)

    def some(scale: float, rank: int) -> np.ndarray:
        root = scale * rng.standard_normal((STATE, rank))
        return root @ root.T / rank

    told = tuple(
        WindowInformation(window, some(0.1, 30), 0.1 * rng.standard_normal(STATE))
        for window in windows
    )
    prior = some(0.3, 2 * STATE) + 0.01 * np.eye(STATE)
    return SteadyStateFilter(rng.uniform(0, 20, CELLS), prior, rng.standard_normal(STATE), told)


def test_compute_evidence_equals_log_likelihood_ratio_of_a_shift() -> None:
    """The reference is the marginal likelihood of the shift, integrated over the state."""
    steady = a_steady_state(1, (0, 2, 3, 7))
    evidence = compute_evidence(steady, (2, 3, 7))
    precision = steady.precision + sum(each.precision for each in steady.windows)
    for row, since in enumerate((2, 3, 7)):
        for place in range(len(PLATFORM_GROUPS)):
            shift = steady.shifts()[:, place]
            after = [each for each in steady.windows if each.window >= since]

            def likelihood(
                size: float, shift: np.ndarray = shift, after: list[WindowInformation] = after
            ) -> float:
                seen = steady.information + sum(each.information for each in steady.windows)
                seen = seen - size * sum(each.precision @ shift for each in after)
                own = sum(
                    size * shift @ each.information - size**2 / 2 * shift @ each.precision @ shift
                    for each in after
                )
                return float(seen @ np.linalg.solve(precision, seen) / 2 + own)

            for sign in (1.0, -1.0):
                expected = likelihood(sign * SHIFT) - likelihood(0.0)
                assert evidence.nats(sign)[row, place] == pytest.approx(expected, rel=1e-6)


def test_compute_evidence_given_a_known_drift_vanishes_for_its_shift() -> None:
    heard = by_organization(year(SLOWER).plain, year(SLOWER).query_responses)["0"]
    steady = SteadyStateFilter.fit(
        heard, kernel=DEFAULT_KERNEL, process_noise=DEFAULT_PROCESS_NOISE
    )
    place = PLATFORM_GROUPS.index(Platform.POLARS)
    before = compute_evidence(steady, (6,)).nats(1.0)[0, place]
    after = compute_evidence(steady, (6,), [(6, place)]).nats(1.0)[0, place]
    assert before > THRESHOLD
    assert abs(after) < 1


def test_compute_evidence_has_less_information_with_more_process_noise() -> None:
    heard = by_organization(year(SLOWER).plain, year(SLOWER).query_responses)["0"]
    found_by = {
        wander: compute_evidence(
            SteadyStateFilter.fit(
                heard, kernel=DEFAULT_KERNEL, process_noise=ProcessNoise(wander=wander)
            ),
            (6,),
        ).information.max()
        for wander in (0.0, 0.05, 0.3)
    }
    assert found_by[0.0] > found_by[0.05] > 2 * found_by[0.3]
    with pytest.raises(ConfigurationError, match="process noise wander must not be negative"):
        ProcessNoise(wander=-0.1)


def test_responses_after_a_first_report_are_grouped_with_its_window() -> None:
    """The first report covers all history, which would resemble a change in a later window."""
    reports = year()
    first = replace(reports.plain[0], is_first=True)
    later = [each for each in reports.plain[1:] if each.report.slot.window > 1]
    asked = [each for each in reports.query_responses if each.query.slot.window > 0]
    heard = by_organization([first, *later], asked)["0"]
    answers = {each.window: len(each.responses) for each in heard}
    assert 1 not in answers
    assert answers[0] == answers[2] > 0
    own = by_organization([first, *reports.plain[1:]], asked)["0"]
    assert [each.window for each in own][:2] == [0, 1], "a plain report of its own comes before"
