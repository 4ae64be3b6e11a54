"""Candidates are judged by reports, public plans and the buffer."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_server.promotion import (
    MOST_FORGOTTEN,
    PUBLIC_SLACK,
    Best,
    Judgement,
    Merits,
    Reported,
    errors_by_segment,
    gain_of,
    judge,
)
from fedperf_shared.basis import CELLS
from fedperf_shared.workflow.vocabulary import Platform

DUCKDB, POLARS = Platform.DUCKDB, Platform.POLARS
NOTHING = np.zeros(CELLS)
PROMOTED = Merits(2.0, NOTHING, {DUCKDB: 0.2, POLARS: 0.3})


def reported(mean: float, *, sd: float = 0.01) -> Reported:
    """All workloads in two cells; the reference is off by `mean` in both."""
    shares = np.zeros(CELLS)
    shares[:2] = 0.5
    return Reported(np.full(CELLS, mean), sd**2 * np.eye(CELLS), shares)


def stepped(by: float) -> Merits:
    """A version that differs from the promoted one in every cell."""
    return replace(PROMOTED, apart=np.full(CELLS, by))


def judged(candidate: Merits, known: Reported | None) -> Judgement:
    """Where the promoted version is the best one as well."""
    best = Best(PROMOTED.public_error, PROMOTED.by_segment)
    return judge(candidate, PROMOTED, best=best, reported=known)


@pytest.mark.parametrize(("step", "gain"), [(0.4, 0.16), (0.2, 0.12), (0.8, 0.0), (-0.2, -0.2)])
def test_the_gain_is_how_much_the_mean_squared_error_falls(step: float, gain: float) -> None:
    found, error = gain_of(stepped(step), PROMOTED, reported(0.4, sd=0.1))
    assert found == pytest.approx(gain)
    assert error == pytest.approx(2 * abs(step) * 0.1 / np.sqrt(2))


def test_the_gain_is_that_of_a_draw_from_the_belief() -> None:
    rng = np.random.default_rng(3)
    known = reported(0.3, sd=0.2)
    one, other = stepped(0.25), stepped(0.1)
    truths = known.mean + 0.2 * rng.standard_normal((20_000, CELLS))
    gains = ((truths - other.apart) ** 2 - (truths - one.apart) ** 2) @ known.shares
    found, error = gain_of(one, other, known)
    assert found == pytest.approx(gains.mean(), abs=4 * gains.std() / np.sqrt(20_000))
    assert error == pytest.approx(gains.std(), rel=0.03)


def test_what_reports_speak_for_is_promoted_and_what_they_speak_against_is_not() -> None:
    assert judged(stepped(0.3), reported(0.4)).promoted
    refused = judged(stepped(-0.3), reported(0.4))
    assert (refused.promoted, refused.reason) == (False, "worse by the reports of the next window")
    assert refused.gain is not None
    assert refused.gain < 0


def test_reports_that_are_not_sure_reject_nothing() -> None:
    assert judged(stepped(-0.05), reported(0.0, sd=1.0)).promoted
    assert not judged(stepped(-0.5), reported(0.0, sd=0.001)).promoted


@pytest.mark.parametrize(
    ("error", "with_reports", "promoted"),
    [
        (2.0, False, True),
        (2.01, False, False),
        (2.0 * PUBLIC_SLACK, True, True),
        (2.11, True, False),
        (None, True, False),
        (float("nan"), True, False),
    ],
)
def test_a_version_that_went_astray_on_public_plans_is_rejected(
    error: float | None, *, with_reports: bool, promoted: bool
) -> None:
    candidate = replace(stepped(0.1), public_error=error)
    found = judged(candidate, reported(0.1) if with_reports else None)
    assert found.promoted is promoted
    if not promoted:
        assert found.reason == "worse on public plans"


@pytest.mark.parametrize(("lost", "promoted"), [(0.9, True), (1.1, False), (np.nan, False)])
def test_a_version_that_forgets_a_segment_is_rejected(lost: float, *, promoted: bool) -> None:
    by_segment = {DUCKDB: 0.1, POLARS: 0.3 + lost * MOST_FORGOTTEN}
    found = judged(replace(stepped(0.3), by_segment=by_segment), reported(0.4))
    assert found.promoted is promoted
    if not promoted:
        assert found.reason == "forgets polars"


def test_errors_are_told_apart_by_segment() -> None:
    found = errors_by_segment([POLARS, DUCKDB, POLARS], np.array([0.1, -0.4, -0.3]))
    assert found == {DUCKDB: pytest.approx(0.4), POLARS: pytest.approx(0.2)}
    assert errors_by_segment([], np.zeros(0)) == {}


def test_small_losses_do_not_add_up_over_the_windows_of_an_epoch() -> None:
    reached = [PROMOTED]
    for _ in range(12):
        last = reached[-1]
        worse = replace(last, public_error=1.04 * (last.public_error or 0.0))
        forgetful = replace(
            last, by_segment={**last.by_segment, POLARS: 0.09 + last.by_segment[POLARS]}
        )
        best = Best.of(
            [each.public_error for each in reached], [each.by_segment for each in reached]
        )
        for candidate in (worse, forgetful):
            if judge(candidate, last, best=best, reported=reported(0.1, sd=1.0)).promoted:
                reached.append(candidate)
    assert len(reached) > 2
    assert max(each.public_error or 0.0 for each in reached) <= 2.0 * PUBLIC_SLACK
    assert max(each.by_segment[POLARS] for each in reached) <= 0.3 + MOST_FORGOTTEN


def test_without_reports_a_version_is_no_worse_than_the_one_in_force() -> None:
    best = Best(1.95, {})
    for error, promoted in ((2.0, True), (2.01, False)):
        candidate = replace(PROMOTED, public_error=error, by_segment={})
        assert judge(candidate, PROMOTED, best=best, reported=None).promoted is promoted


def test_the_best_is_the_least_error_on_each_segment_for_itself() -> None:
    found = Best.of([None, 2.0, 1.5], [{DUCKDB: 0.1, POLARS: 0.4}, {DUCKDB: 0.2, POLARS: 0.3}])
    assert found == Best(1.5, {DUCKDB: 0.1, POLARS: 0.3})
    assert Best.of([None], []) == Best(None, {})
