"""Tests of promotion decisions from reports, public plans and rehearsal rows."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from fedperf_server.controllers.promotion import (
    CONFIDENCE_SDS,
    MAX_FORGETTING,
    PUBLIC_SLACK,
    BestErrors,
    PromotionDecision,
    PromotionMetrics,
    ReportedOffset,
    _by_segment,
    compute_gain,
    decide_promotion,
)
from fedperf_server.state.database import VersionStatus
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.linearized_queries import few_plans

DUCKDB, POLARS = Platform.DUCKDB, Platform.POLARS
NOTHING = np.zeros(CELLS)
PASSED = "better by reports, no worse on public plans and on the buffer"
UNSURE = "no sure gain by reports yet"
PROMOTED = PromotionMetrics(2.0, NOTHING, {DUCKDB: 0.2, POLARS: 0.3})


def reported(mean: float, *, sd: float = 0.01) -> ReportedOffset:
    """Return an offset of `mean` in two cells that hold all workloads."""
    shares = np.zeros(CELLS)
    shares[:2] = 0.5
    return ReportedOffset(np.full(CELLS, mean), sd**2 * np.eye(CELLS), shares)


def stepped(by: float) -> PromotionMetrics:
    """Return the metrics of a version that differs from the promoted one in every cell."""
    return replace(PROMOTED, offsets=np.full(CELLS, by))


def judged(candidate: PromotionMetrics, known: ReportedOffset | None) -> PromotionDecision:
    """Decide promotion with the promoted version as the best one."""
    best = BestErrors(PROMOTED.public_error, PROMOTED.by_segment)
    return decide_promotion(candidate, PROMOTED, best=best, reported=known)


@pytest.mark.parametrize(("step", "gain"), [(0.4, 0.16), (0.2, 0.12), (0.8, 0.0), (-0.2, -0.2)])
def test_compute_gain_equals_decrease_of_mean_squared_error(step: float, gain: float) -> None:
    found, error = compute_gain(stepped(step), PROMOTED, reported(0.4, sd=0.1))
    assert found == pytest.approx(gain)
    assert error == pytest.approx(2 * abs(step) * 0.1 / np.sqrt(2))


def test_compute_gain_matches_samples_from_the_posterior() -> None:
    rng = np.random.default_rng(3)
    known = reported(0.3, sd=0.2)
    one, other = stepped(0.25), stepped(0.1)
    truths = known.mean + 0.2 * rng.standard_normal((20_000, CELLS))
    gains = ((truths - other.offsets) ** 2 - (truths - one.offsets) ** 2) @ known.shares
    found, error = compute_gain(one, other, known)
    assert found == pytest.approx(gains.mean(), abs=4 * gains.std() / np.sqrt(20_000))
    assert error == pytest.approx(gains.std(), rel=0.03)


def test_decide_promotion_promotes_reported_gain_and_rejects_reported_loss() -> None:
    assert judged(stepped(0.3), reported(0.4)).status is VersionStatus.PROMOTED
    refused = judged(stepped(-0.3), reported(0.4))
    assert (refused.status, refused.reason) == (
        VersionStatus.REJECTED,
        "worse by the reports of the next window",
    )
    assert refused.gain is not None
    assert refused.gain < 0


@pytest.mark.parametrize(
    ("standard_errors", "reason"),
    [
        (1.1 * CONFIDENCE_SDS, PASSED),
        (0.9 * CONFIDENCE_SDS, UNSURE),
        (-0.1, UNSURE),
        (-0.9 * CONFIDENCE_SDS, UNSURE),
        (-1.1 * CONFIDENCE_SDS, "worse by the reports of the next window"),
    ],
)
def test_decide_promotion_requires_lower_bound_of_gain_above_zero(
    standard_errors: float, reason: str
) -> None:
    sd = 0.05
    error = 2 * 0.1 * sd / np.sqrt(2)
    mean = (0.1**2 + standard_errors * error) / (2 * 0.1)
    found = judged(stepped(0.1), reported(mean, sd=sd))
    assert found.gain == pytest.approx(standard_errors * error)
    assert found.gain_error == pytest.approx(error)
    rulings = {PASSED: VersionStatus.PROMOTED, UNSURE: VersionStatus.CANDIDATE}
    assert (found.status, found.reason) == (rulings.get(reason, VersionStatus.REJECTED), reason)


def test_promotion_confidence_is_99_percent_one_sided() -> None:
    assert NormalDist().cdf(CONFIDENCE_SDS) == pytest.approx(0.99, abs=1e-4)


def test_decide_promotion_of_unchanged_or_undefined_candidate_does_not_promote() -> None:
    assert judged(PROMOTED, reported(0.4, sd=1e-6)).status is VersionStatus.CANDIDATE
    undefined = judged(stepped(float("nan")), reported(0.4))
    assert undefined.status is VersionStatus.REJECTED


@pytest.mark.parametrize(
    ("error", "promoted"),
    [(2.0 * PUBLIC_SLACK, True), (2.11, False), (None, False), (float("nan"), False)],
)
def test_decide_promotion_with_worse_or_undefined_public_error_rejects(
    error: float | None, *, promoted: bool
) -> None:
    found = judged(replace(stepped(0.1), public_error=error), reported(0.1))
    assert (found.status is VersionStatus.PROMOTED) is promoted
    if not promoted:
        assert (found.reason, found.status) == ("worse on public plans", VersionStatus.REJECTED)


@pytest.mark.parametrize(("lost", "promoted"), [(0.9, True), (1.1, False), (np.nan, False)])
def test_decide_promotion_with_forgetting_in_a_segment_rejects(
    lost: float, *, promoted: bool
) -> None:
    by_segment = {DUCKDB: 0.1, POLARS: 0.3 + lost * MAX_FORGETTING}
    found = judged(replace(stepped(0.3), by_segment=by_segment), reported(0.4))
    assert (found.status is VersionStatus.PROMOTED) is promoted
    if not promoted:
        assert (found.reason, found.status) == ("forgets polars", VersionStatus.REJECTED)


def test_errors_by_segment_are_computed_per_platform() -> None:
    (one,) = few_plans(1)
    rows = [SyntheticRow(one.plan, one.cluster, 1.0, each) for each in (POLARS, DUCKDB, POLARS)]
    found = _by_segment(lambda _: np.array([1.1, 0.6, 0.7]), rows)
    assert found == {DUCKDB: pytest.approx(0.4), POLARS: pytest.approx(0.2)}
    assert _by_segment(lambda _: np.zeros(0), []) == {}


def test_small_losses_stay_bounded_over_the_windows_of_a_drift_regime() -> None:
    reached = [PROMOTED]
    for _ in range(12):
        last = reached[-1]
        worse = replace(last, public_error=1.04 * (last.public_error or 0.0))
        forgetful = replace(
            last, by_segment={**last.by_segment, POLARS: 0.09 + last.by_segment[POLARS]}
        )
        best = BestErrors.over(
            [each.public_error for each in reached], [each.by_segment for each in reached]
        )
        for candidate in (worse, forgetful):
            further = replace(candidate, offsets=last.offsets + 0.01)
            if (
                decide_promotion(further, last, best=best, reported=reported(1.0)).status
                is VersionStatus.PROMOTED
            ):
                reached.append(further)
    assert len(reached) > 2
    assert max(each.public_error or 0.0 for each in reached) <= 2.0 * PUBLIC_SLACK
    assert max(each.by_segment[POLARS] for each in reached) <= 0.3 + MAX_FORGETTING


def test_decide_promotion_without_reports_does_not_promote() -> None:
    found = judged(replace(PROMOTED, public_error=1.0), None)
    assert found == PromotionDecision(VersionStatus.CANDIDATE, "no report supports it yet")
    astray = judged(replace(PROMOTED, public_error=9.0), None)
    assert astray.status is VersionStatus.REJECTED


def test_best_errors_are_the_minimum_of_each_segment() -> None:
    found = BestErrors.over(
        [None, 2.0, 1.5], [{DUCKDB: 0.1, POLARS: 0.4}, {DUCKDB: 0.2, POLARS: 0.3}]
    )
    assert found == BestErrors(1.5, {DUCKDB: 0.1, POLARS: 0.3})
    assert BestErrors.over([None], []) == BestErrors(None, {})
