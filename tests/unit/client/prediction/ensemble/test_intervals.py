import math

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.ensemble import USUAL_CORRELATION, error_correlation
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    LogRidge,
    joined_learners,
)
from fedperf_client.prediction.prediction import (
    WIDENING,
    Distribution,
    ErrorDistribution,
    Evidence,
    EvidenceSource,
    InvalidPredictionError,
    Prediction,
    StudentT,
)
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.prediction.synthetic import (
    draw_history,
    draw_questions,
    excellent,
    garbage,
    hull_around,
    true_log_seconds,
)

CLUSTER = ClusterConfig(1, 2, 2**33)


def question(
    rows: float = 1000.0,
    *,
    kind: OperatorKind = OperatorKind.SORT,
    platform: Platform = Platform.DUCKDB,
    cluster: ClusterConfig = CLUSTER,
) -> PlanOnCluster:
    operators = (
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 8.0),
        Operator(kind, OperatorClass.RELATIONAL, (0,), rows, 8.0),
    )
    return PlanOnCluster(Plan.on_one_platform(Workflow(operators), platform), cluster)


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
def test_training_support_bounds_sizes_cores_platforms_and_kinds(
    asked: PlanOnCluster, inside: bool
) -> None:
    hull = hull_around([question(1000.0), question(10_000.0)])
    assert hull.contains(asked) is inside


def test_training_support_of_small_nodes_does_not_contain_a_large_node() -> None:
    hull = hull_around([question(cluster=ClusterConfig(n, 2 * n, 2**33)) for n in (1, 4)])
    assert hull.contains(question(cluster=ClusterConfig(4, 8, 2**33)))
    assert not hull.contains(question(cluster=ClusterConfig(1, 8, 2**33)))


def test_training_support_requires_kind_and_platform_seen_together() -> None:
    sort, join = OperatorKind.SORT, OperatorKind.JOIN
    hull = hull_around([question(kind=sort), question(kind=join, platform=Platform.POLARS)])
    for kind, platform, known in (
        (sort, Platform.DUCKDB, True),
        (join, Platform.POLARS, True),
        (sort, Platform.POLARS, False),
        (join, Platform.DUCKDB, False),
    ):
        asked = question(kind=kind, platform=platform)
        assert hull.fraction(asked) == known
        assert hull.contains(asked) is known


def test_support_fraction_falls_from_10_to_100_times_the_rows() -> None:
    large = question(1e9, kind=OperatorKind.JOIN, platform=Platform.SPARK)
    hull = hull_around([question(1e3), large])
    shares = [hull.fraction(question(rows)) for rows in (1e3, 9e3, 3e4, 9e4, 1.1e5, 1e9)]
    assert shares[:2] == [1, 1]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[3] < 0.1
    assert shares[4:] == [0, 0]
    assert not hull.contains(question(9e4))  # the support reaches 1e9 on Spark only


def test_support_fraction_is_one_for_known_kind_beyond_all_rows() -> None:
    assert hull_around([question(1e3)]).fraction(question(1e9)) == 1


def test_support_fraction_ignores_sources_of_plans_with_other_work() -> None:
    hull = hull_around([question(kind=OperatorKind.SORT)])
    assert hull.fraction(question(kind=OperatorKind.JOIN)) == 0
    [source, _] = question().plan.workflow.operators
    alone = Plan.on_one_platform(Workflow((source,)), Platform.DUCKDB)
    assert hull.fraction(PlanOnCluster(alone, CLUSTER)) == 1


def test_training_support_without_executions_contains_no_query() -> None:
    assert not hull_around([]).contains(question())


def test_support_fraction_falls_from_4_to_32_times_the_cores() -> None:
    cluster = question(kind=OperatorKind.JOIN, cluster=ClusterConfig(16, 128, 2**33))
    hull = hull_around([question(), cluster])
    shares = [
        hull.fraction(question(cluster=ClusterConfig(1, cores, 2**33)))
        for cores in (1, 2, 8, 16, 32, 64, 128)
    ]
    assert shares[:3] == [1, 1, 1]
    assert 0 < shares[4] < shares[3] < 1
    assert shares[5:] == pytest.approx([0, 0])
    assert hull_around([question()]).fraction(cluster) == 0  # a join, which never ran
    far = question(cluster=cluster.cluster)
    assert hull_around([question()]).fraction(far) == 1  # scales are unknown, kinds are known


def around(spread: Distribution, *, center: float = 0.0, level: float = 0.9) -> Prediction:
    return Prediction(center, spread, level)


def test_prediction_quantiles_and_probabilities_agree() -> None:
    rng = np.random.default_rng(5)
    for spread in (
        StudentT(0.3, 3.0),
        ErrorDistribution.from_errors(rng.standard_normal(12), np.arange(12)),
        ErrorDistribution.from_errors(rng.standard_normal(60) + 0.2, np.arange(60)),
        around(StudentT(0.3, 3.0)).with_censored_runs(np.array([0.5]), np.zeros(0)).distribution,
    ):
        found = around(spread, center=2.0)
        step = 1 / 13 if isinstance(spread, ErrorDistribution) else 1e-9
        for seconds, chance in (
            (found.lower_seconds, 0.05),
            (found.median_seconds, 0.5),
            (found.p90_seconds, 0.9),
            (found.upper_seconds, 0.95),
        ):
            assert found.probability_within(seconds) == pytest.approx(chance, abs=step + 1e-9)


def test_extrapolating_prediction_has_wider_interval_and_flag() -> None:
    inside = around(StudentT(0.3, 3.0), center=1.0)
    outside = inside.as_extrapolation()
    assert outside.extrapolating
    assert not inside.extrapolating
    ends = [math.log(each.upper_seconds) - 1 for each in (inside, outside)]
    assert ends[1] == pytest.approx(WIDENING * ends[0])
    assert outside.median_seconds == inside.median_seconds
    assert outside.probability_within(5.0) < inside.probability_within(5.0)
    assert outside.as_extrapolation() is outside


def test_prediction_with_huge_scale_has_finite_seconds() -> None:
    assert math.isfinite(around(StudentT(1e6, 3.0)).upper_seconds)


def test_prediction_with_non_finite_center_is_refused() -> None:
    for nowhere in (math.nan, math.inf, -math.inf):
        with pytest.raises(InvalidPredictionError, match="finite"):
            around(StudentT(0.3, 3.0), center=nowhere)


def test_probability_within_invalid_deadline_is_refused() -> None:
    for deadline in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidPredictionError, match="deadline"):
            around(StudentT(0.3, 3.0)).probability_within(deadline)


@pytest.mark.parametrize(("source", "runs", "text"), [
    (EvidenceSource.OWN_RUNS, 1, "1 own run of it"),
    (EvidenceSource.OWN_RUNS, 4, "4 own runs of it"),
    (EvidenceSource.OTHER_RESOURCES, 1, "1 own run of it on other resources"),
    (EvidenceSource.OTHER_RESOURCES, 2, "2 own runs of it on other resources"),
    (EvidenceSource.OWN_JOBS, 0, "own jobs of its kind"),
    (EvidenceSource.PRETRAINED, 0, "the pretrained model"),
])  # fmt: skip
def test_evidence_text_names_source_and_number_of_runs(
    source: EvidenceSource, runs: int, text: str
) -> None:
    assert Evidence(source, runs).text == text


def test_error_correlation_is_variance_fraction_shared_by_plans_of_a_job() -> None:
    rng = np.random.default_rng(7)
    jobs = np.repeat(np.arange(300), 3)
    of_job, own = rng.standard_normal(300)[jobs], rng.standard_normal(900)
    plans = np.arange(900)
    assert (
        error_correlation(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
        == USUAL_CORRELATION
    )
    assert (
        error_correlation(own[:300], plans[:300], plans[:300]) == USUAL_CORRELATION
    )  # each job has one plan
    assert (
        error_correlation(np.zeros(len(own)), jobs, plans) == USUAL_CORRELATION
    )  # zero errors contain no information
    assert error_correlation(own, jobs, plans) < 0.1
    assert error_correlation(2 * of_job + own, jobs, plans) == pytest.approx(0.8, abs=0.05)
    repeated = np.repeat(own, 4)  # repeats are not different plans
    as_often = error_correlation(repeated, np.repeat(jobs, 4), np.repeat(plans, 4))
    assert as_often == pytest.approx(error_correlation(own, jobs, plans))


def test_common_error_raises_error_correlation_of_evidence() -> None:
    basis, whole = Evidence(error_correlation=0.5), StudentT.within(5.0)
    assert basis.with_common_error(0.0, whole).error_correlation == pytest.approx(0.5)
    # The common error is 16 of 25 parts. Half of the other 9 parts is shared.
    assert basis.with_common_error(4.0, whole).error_correlation == pytest.approx(1 - 9 / 2 / 25)
    assert basis.with_common_error(5.0, whole).error_correlation < 1


@pytest.mark.slow
@pytest.mark.parametrize(("executions", "worlds"), [(40, 6), (100, 3)])
def test_ensemble_intervals_cover_90_percent_within_tolerance(executions: int, worlds: int) -> None:
    covered = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        history = draw_history(rng, executions)
        asked = draw_questions(rng, 150)
        seconds = np.exp(true_log_seconds(asked) + 0.1 * rng.standard_normal(150))
        starts = {SHARED: excellent, REFERENCE: excellent, PUBLIC: garbage(seed)}
        predictions = fit_personalized_ensemble(
            history, starts, joined_learners(), seed=seed
        ).predict(asked)
        covered += [
            p.lower_seconds <= s <= p.upper_seconds
            for p, s in zip(predictions, seconds, strict=True)
            if not p.extrapolating
        ]
    assert 0.85 < np.mean(covered) < 0.97


def test_prediction_interval_has_the_requested_confidence_level() -> None:
    history = draw_history(np.random.default_rng(0), 30)
    asked = draw_questions(np.random.default_rng(1), 1)
    [wide] = fit_personalized_ensemble(history, {}, [LogRidge()], confidence_level=0.95).predict(
        asked
    )
    [narrow] = fit_personalized_ensemble(history, {}, [LogRidge()], confidence_level=0.5).predict(
        asked
    )
    assert (wide.confidence_level, narrow.confidence_level) == (0.95, 0.5)
    assert wide.upper_seconds / wide.lower_seconds > narrow.upper_seconds / narrow.lower_seconds
