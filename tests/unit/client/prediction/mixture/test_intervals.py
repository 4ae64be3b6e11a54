import math

import numpy as np
import pytest

from fedperf_client.prediction.learners.local_learners import LogRidge
from fedperf_client.prediction.learners.residual_learners import PUBLIC, REFERENCE, SHARED
from fedperf_client.prediction.mixture.intervals import (
    DEFAULT_HALF_WIDTH,
    WIDENING,
    Estimate,
    Hull,
    Spread,
    with_interval,
)
from fedperf_client.prediction.mixture.learner_catalogue import joined_learners
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.personal import personalize
from fedperf_client.prediction.prediction import InvalidPredictionError
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.prediction.synthetic import (
    draw_history,
    draw_questions,
    excellent,
    garbage,
    true_log_seconds,
)

CLUSTER = ClusterConfig(1, 2, 2**33)


def question(
    rows: float = 1000.0,
    *,
    kind: OperatorKind = OperatorKind.SORT,
    platform: Platform = Platform.DUCKDB,
    cluster: ClusterConfig = CLUSTER,
) -> SizedPlan:
    operators = (
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 8.0),
        Operator(kind, OperatorClass.RELATIONAL, (0,), rows, 8.0),
    )
    return SizedPlan(Plan.on_one_platform(Workflow(operators), platform), cluster)


def test_the_half_width_is_the_finite_sample_quantile() -> None:
    residuals = np.arange(1.0, 20.0) * np.where(np.arange(19) % 2, 1, -1)
    assert Spread.of(residuals, np.arange(19)).half_width(0.9) == 18.0
    assert Spread.of(residuals, np.arange(19)).half_width(0.5) == 10.0


@pytest.mark.statistical
def test_new_workloads_are_covered_with_the_promised_chance() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(4000):
        residuals = rng.standard_normal(31)
        half = Spread.of(residuals[:30], np.arange(30)).half_width(0.9)
        covered.append(abs(residuals[30]) <= half)
    assert 0.89 < np.mean(covered) < 0.935  # between level and level + 1 / (n + 1)


def test_a_workload_that_ran_often_weighs_as_much_as_one_that_ran_once() -> None:
    residuals = np.concatenate([np.full(1000, 0.01), np.linspace(1, 2, 19)])
    groups = np.concatenate([np.zeros(1000, np.int64), np.arange(1, 20)])
    assert Spread.of(residuals, groups).half_width(0.9) > 1.8


def test_too_few_workloads_for_the_level_fall_back_to_the_public_width() -> None:
    assert Spread.of(np.zeros(0), np.zeros(0, np.int64)).half_width(0.9) == DEFAULT_HALF_WIDTH
    few = Spread.of(np.full(5, 0.1), np.arange(5)).half_width(0.9)
    assert few == DEFAULT_HALF_WIDTH
    assert Spread.of(np.array([0.1, 3.0]), np.arange(2)).half_width(0.9) == 3.0
    assert Spread.of(np.full(9, 0.1), np.arange(9)).half_width(0.9) == pytest.approx(0.1)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(InvalidPredictionError, match="level"):
        Spread.of(np.ones(3), np.arange(3)).half_width(level)


@pytest.mark.parametrize(
    ("asked", "inside"),
    [
        (question(1500.0), True),
        (question(19_000.0), True),
        (question(90_000.0), False),
        (question(10.0), False),
        (question(kind=OperatorKind.JOIN), False),
        (question(platform=Platform.PANDAS), False),
        (question(cluster=ClusterConfig(1, 64, 2**33)), False),
        (question(cluster=ClusterConfig(8, 2, 2**33)), False),
    ],
)
def test_the_hull_knows_sizes_cores_platforms_and_kinds(asked: SizedPlan, inside: bool) -> None:
    hull = Hull.around([question(1000.0), question(10_000.0)])
    assert hull.contains(asked) is inside


def test_a_kind_and_a_platform_seen_apart_are_not_known_together() -> None:
    sort, join = OperatorKind.SORT, OperatorKind.JOIN
    hull = Hull.around([question(kind=sort), question(kind=join, platform=Platform.POLARS)])
    for kind, platform, known in (
        (sort, Platform.DUCKDB, True),
        (join, Platform.POLARS, True),
        (sort, Platform.POLARS, False),
        (join, Platform.DUCKDB, False),
    ):
        asked = question(kind=kind, platform=platform)
        assert hull.share_seen(asked.plan) == known
        assert hull.contains(asked) is known


def test_a_pair_is_known_ever_less_from_ten_to_a_hundred_times_its_rows() -> None:
    large = question(1e9, kind=OperatorKind.JOIN, platform=Platform.SPARK)
    hull = Hull.around([question(1e3), large])
    shares = [hull.share_seen(question(rows).plan) for rows in (1e3, 9e3, 3e4, 9e4, 1.1e5, 1e9)]
    assert shares[:2] == [1, 1]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[3] < 0.1
    assert shares[4:] == [0, 0]
    assert not hull.contains(question(9e4))  # the box goes up to 1e9, but on Spark alone


def test_rows_beyond_everything_seen_are_a_question_of_sizes_and_not_of_kinds() -> None:
    assert Hull.around([question(1e3)]).share_seen(question(1e9).plan) == 1


def test_a_source_says_nothing_of_the_work_behind_it() -> None:
    hull = Hull.around([question(kind=OperatorKind.SORT)])
    assert hull.share_seen(question(kind=OperatorKind.JOIN).plan) == 0
    [source, _] = question().plan.workflow.operators
    alone = Plan.on_one_platform(Workflow((source,)), Platform.DUCKDB)
    assert hull.share_seen(alone) == 1


def test_without_executions_everything_extrapolates() -> None:
    assert not Hull.around([]).contains(question())


def test_outside_the_interval_is_wider_and_says_so() -> None:
    inside = with_interval(1.0, 0.3, level=0.9, inside=True)
    outside = with_interval(1.0, 0.3, level=0.9, inside=False)
    assert (inside.extrapolating, outside.extrapolating) == (False, True)
    assert math.log(inside.upper_seconds) == pytest.approx(1.3)
    assert math.log(outside.upper_seconds) == pytest.approx(1.0 + WIDENING * 0.3)
    assert outside.lower_seconds < inside.lower_seconds < inside.median_seconds


def test_of_two_spreads_the_wider_one_counts_in_whatever_order() -> None:
    narrow, wide = (Spread.of(np.full(20, size), np.arange(20)) for size in (0.1, 0.5))
    for spreads in ((narrow, wide), (wide, narrow)):
        found = Estimate.around(0.0, spreads, kind=Asks.SEEN, level=0.9, inside=True)
        assert math.log(found.prediction.upper_seconds) == pytest.approx(0.5)
        assert math.log(found.p90_seconds) == pytest.approx(0.5)
        assert found.chance_within(math.exp(0.3)) == pytest.approx(wide.chance_below(0.3))


def test_a_half_width_without_end_still_gives_finite_seconds() -> None:
    assert math.isfinite(with_interval(0.0, 1e6, level=0.9, inside=False).upper_seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("executions", "worlds"), [(40, 6), (100, 3)])
def test_intervals_of_the_mix_cover_what_they_promise(executions: int, worlds: int) -> None:
    covered = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        history = draw_history(rng, executions)
        asked = draw_questions(rng, 150)
        seconds = np.exp(true_log_seconds(asked) + 0.1 * rng.standard_normal(150))
        starts = {SHARED: excellent, REFERENCE: excellent, PUBLIC: garbage(seed)}
        predictions = personalize(history, starts, joined_learners(), seed=seed).predict(asked)
        covered += [
            p.lower_seconds <= s <= p.upper_seconds
            for p, s in zip(predictions, seconds, strict=True)
            if not p.extrapolating
        ]
    assert 0.85 < np.mean(covered) < 0.97


def test_the_level_asked_for_is_the_level_given() -> None:
    history = draw_history(np.random.default_rng(0), 30)
    wide = personalize(history, {}, [LogRidge()], level=0.95)
    narrow = personalize(history, {}, [LogRidge()], level=0.5)
    assert wide.half_width > narrow.half_width
    assert narrow.predict(history.questions[:1])[0].level == 0.5
