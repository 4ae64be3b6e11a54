"""The personalized ensemble, which is fitted separately for each query regime."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.prediction.encoding import History
from fedperf_client.prediction.ensemble import predictor as personal_module
from fedperf_client.prediction.ensemble.ensemble import Reliability, cross_validate
from fedperf_client.prediction.ensemble.predictor import (
    HELD_TOGETHER,
    LearnerPool,
    PersonalizedEnsemble,
    fit_personalized_ensemble,
)
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize
from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    LogRidge,
    joined_learners,
    local_learners,
    public_learners,
)
from fedperf_client.prediction.prediction import (
    Evidence,
    EvidenceSource,
    Floats,
    Prediction,
    PredictLog,
    QueryRegime,
)
from fedperf_client.prediction.serving.predictor_cache import CachedPredictor
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model import pretrained
from fedperf_shared.model.pretrained import PretrainedWidth, pretrained_half_width
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind, Platform
from tests.unit.client.prediction.synthetic import (
    draw_history,
    draw_questions,
    excellent,
    garbage,
    true_log_seconds,
)

HISTORY = draw_history(np.random.default_rng(0), 360)


def figures(each: Prediction) -> tuple[float, ...]:
    return each.lower_seconds, each.median_seconds, each.upper_seconds, each.deviation


def on_cores(question: PlanOnCluster, cores: int) -> PlanOnCluster:
    return PlanOnCluster(question.plan, replace(question.cluster, cores=cores))


def of_rows(question: PlanOnCluster, rows: float) -> PlanOnCluster:
    first, *others = question.plan.workflow.operators
    operators = (replace(first, output_rows=rows), *others)
    return PlanOnCluster(Plan(Workflow(operators), question.plan.platforms), question.cluster)


def predictor(history: History = HISTORY) -> PersonalizedEnsemble:
    return fit_personalized_ensemble(history, {}, [*local_learners()[1:3], LogRidge("other ridge")])


@cache
def asked_before() -> PersonalizedEnsemble:
    """Return one ensemble for several tests, which share its cached weights."""
    return predictor()


@pytest.mark.parametrize(
    ("cores", "rows", "kind"),
    [
        (4, None, QueryRegime.SEEN),
        (3, None, QueryRegime.BETWEEN_SCALES),
        (64, None, QueryRegime.BEYOND_SCALES),
        (4, 1e9, QueryRegime.BEYOND_SIZES),
        (4, 10.0, QueryRegime.BEYOND_SIZES),
    ],
)
def test_query_is_weighted_by_folds_of_its_regime_when_predicted(
    cores: int, rows: float | None, kind: QueryRegime
) -> None:
    own = predictor()
    assert own.weights_by_split == {}
    asked = on_cores(HISTORY.queries[0], cores)
    [estimate] = own.predict([asked if rows is None else of_rows(asked, rows)])
    assert estimate.regime is kind
    weighed = {found for mix in own.with_parts().values() for found, _ in mix.weights_by_split}
    assert weighed == {QueryRegime.SEEN, kind}
    assert estimate.extrapolating is kind.is_beyond


def test_query_slightly_beyond_seen_sizes_extrapolates_within_support() -> None:
    own = asked_before()
    largest = max(HISTORY.queries, key=lambda each: each.plan.workflow.source_rows)
    for factor, kind in ((1.0, QueryRegime.SEEN), (1.5, QueryRegime.BEYOND_SIZES)):
        asked = of_rows(largest, factor * largest.plan.workflow.operators[0].output_rows)
        [estimate] = own.predict([asked])
        assert own.pool.summary.support.contains(asked)
        assert (estimate.regime, estimate.extrapolating) == (kind, kind.is_beyond)


def test_prediction_is_independent_of_other_queries() -> None:
    asked = draw_questions(np.random.default_rng(1), 30)
    asked = (*asked, on_cores(asked[0], 16), on_cores(asked[0], 512), of_rows(asked[1], 1e11))
    together = asked_before().predict_log(asked)
    alone = [predictor().predict_log([each])[0] for each in asked[-5:]]
    np.testing.assert_allclose(together[-5:], alone)


@pytest.mark.slow
def test_repeated_query_returns_identical_prediction_without_model_calls() -> None:
    heard: list[int] = []

    def start(questions: Sequence[PlanOnCluster]) -> Floats:
        heard.append(len(questions))
        return true_log_seconds(questions)

    asked = draw_questions(np.random.default_rng(1), 3)
    some = HISTORY.take(np.arange(25))
    own, other = (
        fit_personalized_ensemble(some, {PUBLIC: start}, public_learners()) for _ in range(2)
    )
    of_one, of_all = own.predict(asked[:1]), own.predict(asked)
    heard.clear()
    same = [PlanOnCluster(each.plan, each.cluster) for each in asked]  # no cached values
    assert [own.predict(same[:1]), own.predict(same)] == [of_one, of_all]
    assert heard == []
    for first, anew in zip(of_all, other.predict(asked), strict=True):
        assert first.evidence == anew.evidence
        assert figures(first) == figures(anew)
    assert sum(heard) == len(asked)  # one call per engine


def test_prediction_cache_has_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(personal_module, "MOST_HELD", 2)
    own = predictor(HISTORY.take(np.arange(25)))
    asked = draw_questions(np.random.default_rng(1), 5)
    first = [figures(own.predict([each])[0]) for each in asked]
    assert len(own._predictions) == 2
    assert all(len(mix._reliabilities) <= 2 for mix in own.with_parts().values())
    assert [figures(own.predict([each])[0]) for each in asked] == first
    many = [on_cores(asked[0], each) for each in range(1, HELD_TOGETHER + 2)]
    own.predict(many)
    assert tuple(many) not in own._predictions


def test_reliability_is_computed_once_per_batch_despite_small_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weighed: list[int] = []

    of_ensemble = Reliability.of_ensemble

    def counted(errors: Floats, groups: NDArray[np.int64]) -> Reliability:
        weighed.append(len(errors))
        return of_ensemble(errors, groups)

    monkeypatch.setattr(personal_module, "HELD_TOGETHER", 1)
    monkeypatch.setattr(Reliability, "of_ensemble", counted)
    own = predictor(HISTORY.take(np.arange(25)))
    own.predict(draw_questions(np.random.default_rng(1), 8))
    assert len(weighed) == sum(len(mix._reliabilities) for mix in own.with_parts().values()) > 1


def test_folds_split_no_workload_within_support_and_no_repeats_outside() -> None:
    history = draw_history(np.random.default_rng(2), 60, executions=3)
    candidates = LearnerPool.from_history(history, {}, [LogRidge()])
    groups = candidates.training.groups
    split, learners = candidates.workload_split, candidates.learners
    inside = cross_validate(candidates.training, learners, split)
    for fold in range(inside.folds.max() + 1):
        held, rest = (
            groups[inside.rows[inside.folds == fold]],
            groups[inside.rows[inside.folds != fold]],
        )
        assert not set(held.tolist()) & set(rest.tolist())
    configurations = np.array([hash(each) for each in history.queries])
    splits = [
        candidates.split_for(
            regime, ScaleAndSize.from_queries([on_cores(history.queries[0], cores)])
        )
        for regime, cores in ((QueryRegime.BEYOND_SCALES, 64), (QueryRegime.BETWEEN_SCALES, 3))
    ]
    assert any(split is not candidates.workload_split for split in splits)
    for split in splits:
        for each in split.folds:
            held, kept = configurations[each.held_out], configurations[each.training]
            assert not set(held.tolist()) & set(kept.tolist())


def test_single_workload_is_split_by_configuration_not_by_repeat() -> None:
    questions = tuple(
        on_cores(HISTORY.queries[0], cores) for cores in (1, 2, 4, 8) for _ in range(5)
    )
    history = History(questions, ("w",) * 20, np.arange(20) / 20)
    pool = LearnerPool.from_history(history, {}, [LogRidge(fewest=2)])
    assert len(pool.workload_split.folds) == 4


def test_extrapolating_intervals_are_wider_and_quantiles_are_ordered() -> None:
    own = asked_before()
    inside, beyond = own.predict([on_cores(HISTORY.queries[0], each) for each in (4, 64)])
    widths = [np.log(each.upper_seconds / each.median_seconds) for each in (inside, beyond)]
    assert widths[1] >= 2 * widths[0]
    for each in (inside, beyond):
        assert each.median_seconds <= each.p90_seconds <= each.upper_seconds


def test_probability_within_grows_with_deadline_and_agrees_with_p90() -> None:
    [estimate] = asked_before().predict(HISTORY.queries[:1])
    median = estimate.median_seconds
    chances = [estimate.probability_within(median * factor) for factor in (0.01, 0.5, 1, 2, 100)]
    assert chances == sorted(chances)
    assert 0 < chances[0] < 0.05
    assert 0.3 < chances[2] < 0.7
    assert 0.95 < chances[-1] < 1
    assert estimate.probability_within(1.0001 * estimate.p90_seconds) >= 0.9


@pytest.mark.parametrize("executions", [0, 3, 12])
def test_probability_with_few_executions_agrees_with_the_interval(
    executions: int,
) -> None:
    starts = {REFERENCE: excellent, SHARED: excellent, PUBLIC: excellent}
    history = draw_history(np.random.default_rng(3), executions)
    [estimate] = fit_personalized_ensemble(history, starts, joined_learners()).predict(
        HISTORY.queries[:1]
    )
    assert estimate.probability_within(estimate.median_seconds) == pytest.approx(0.5, abs=0.3)
    assert estimate.probability_within(estimate.p90_seconds * 1.001) >= 0.9


@pytest.mark.slow
@pytest.mark.statistical
def test_p90_covers_90_percent_of_new_workloads_within_tolerance() -> None:
    below = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        own = fit_personalized_ensemble(draw_history(rng, 60), {}, [LogRidge()])
        asked = draw_questions(rng, 100)
        seconds = np.exp(true_log_seconds(asked) + 0.1 * rng.standard_normal(100))
        below += [
            measured <= each.p90_seconds
            for each, measured in zip(own.predict(asked), seconds, strict=True)
            if not each.extrapolating
        ]
    assert 0.87 < np.mean(below) < 0.95


def test_useless_shared_model_raises_extrapolation_error_by_at_most_5_percent() -> None:
    """The queries exceed all known sizes. The mean covers 4 data sets of 100 executions each."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        history = draw_history(rng, 100)
        asked = [of_rows(each, 2e7) for each in draw_questions(rng, 60)]
        starts = {SHARED: garbage(seed), REFERENCE: garbage(seed), PUBLIC: garbage(seed + 50)}
        truth = true_log_seconds(asked)
        errors = [
            np.abs(own.predict_log(asked) - truth).mean()
            for own in (
                fit_personalized_ensemble(history, {}, local_learners()),
                fit_personalized_ensemble(history, starts, joined_learners()),
            )
        ]
        ratios.append(errors[1] / errors[0])
    print(np.round(ratios, 3))
    assert np.mean(ratios) <= 1.05


def test_matched_folds_are_not_used_with_too_few_workloads() -> None:
    few = draw_history(np.random.default_rng(4), 25)
    candidates = LearnerPool.from_history(few, {}, [LogRidge()])
    asked = ScaleAndSize.from_queries([on_cores(few.queries[0], 64)])
    split = candidates.split_for(QueryRegime.BEYOND_SCALES, asked)
    assert split is candidates.workload_split


def test_query_deep_in_a_size_gap_is_marked_as_extrapolating() -> None:
    questions = [
        of_rows(each, rows)
        for rows in (1e3, 2e3, 4e3, 8e3, 1.6e4, 1e7, 2e7, 4e7)
        for each in HISTORY.queries[:10]
    ]
    names = tuple(str(number) for number in range(80))
    history = History(tuple(questions), names, true_log_seconds(questions))
    own = fit_personalized_ensemble(history, {}, [LogRidge()])
    near, deep = own.predict([of_rows(questions[0], rows) for rows in (2e3, 4e5)])
    assert (near.regime, near.extrapolating) == (QueryRegime.SEEN, False)
    assert (deep.regime, deep.extrapolating) == (QueryRegime.BETWEEN_SIZES, True)


def test_cached_predictor_save_on_full_disk_raises_storage_error() -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    own = asked_before()
    own.weights_for()
    with pytest.raises(StorageError, match="No space left"):
        CachedPredictor(own, Path("predictor"), {}, 0).save(full)


def repeated(times: int, *, level: float = 5.0, spread: float = 0.03, seed: int = 0) -> History:
    """Return one job that ran this often in one configuration."""
    noise = spread * np.random.default_rng(seed).standard_normal(times)
    return History(HISTORY.queries[:1] * times, ("job",) * times, level + noise)


@pytest.mark.parametrize(
    "times", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 10))]
)
def test_exact_repeat_is_predicted_by_its_own_runs(times: int) -> None:
    starts = {PUBLIC: excellent}
    alone = fit_personalized_ensemble(repeated(times), starts, public_learners())
    others = HISTORY.queries[20:], HISTORY.workloads[20:], HISTORY.log_seconds[20:]
    own = repeated(times)
    beside = History(
        own.queries + others[0],
        own.workloads + others[1],
        np.concatenate([own.log_seconds, others[2]]),
    )
    for found in (alone, fit_personalized_ensemble(beside, starts, public_learners())):
        [estimate] = found.predict(HISTORY.queries[:1])
        assert estimate.evidence == Evidence(EvidenceSource.OWN_RUNS, times)
        assert np.log(estimate.median_seconds) == pytest.approx(5.0, abs=0.1)
        assert not estimate.extrapolating
        assert estimate.covers(np.exp(5.0))
    assert np.isclose(found.predict_log(HISTORY.queries[:1])[0], np.log(estimate.median_seconds))


def test_run_on_other_resources_is_scaled_by_the_pretrained_model() -> None:
    asked = [on_cores(HISTORY.queries[0], cores) for cores in (8, 16, 64)]
    [ran, *others] = asked
    by_start = excellent(asked)
    found = fit_personalized_ensemble(
        History((ran,), ("job",), np.array([by_start[0] + 3.0])),
        {PUBLIC: excellent},
        public_learners(),
    ).predict(others)
    medians = np.log([each.median_seconds for each in found])
    np.testing.assert_allclose(medians, by_start[1:] + 3.0, atol=0.4)
    assert {each.evidence.source for each in found} == {EvidenceSource.OTHER_RESOURCES}
    assert [each.evidence.runs for each in found] == [1, 1]
    assert found[0].deviation < found[1].deviation
    assert found[1].extrapolating


def other_plan(change: str) -> Plan:
    """Return a plan with the rows of `HISTORY.queries[0]` and one other property."""
    plan = HISTORY.queries[0].plan
    if change == "platform":
        others = {Platform.PANDAS: Platform.POLARS}
        platforms = tuple(others.get(each, Platform.PANDAS) for each in plan.platforms)
        return replace(plan, platforms=platforms)
    *operators, last = plan.workflow.operators
    changed: dict[str, Operator] = {
        "rounds": replace(last, iterations=100),
        "bytes": replace(last, row_bytes=10 * last.row_bytes + 10),
        "code": replace(last, complexity=Complexity.LINEAR, code_steps=500),
    }
    return replace(plan, workflow=Workflow((*operators, changed[change])))


@pytest.mark.parametrize("change", ["platform", "rounds", "bytes", "code"])
def test_different_plan_with_same_rows_is_not_evidence_from_other_resources(change: str) -> None:
    asked = HISTORY.queries[0]
    other = replace(asked, plan=other_plan(change))
    known = History((on_cores(other, 8),), ("job",), np.array([5.0]))
    [found] = fit_personalized_ensemble(known, {PUBLIC: excellent}, public_learners()).predict(
        [asked]
    )
    assert found.evidence.source is not EvidenceSource.OTHER_RESOURCES


def test_unnamed_platform_gives_no_evidence_for_another_plan() -> None:
    few, many = (
        Operator(OperatorKind.FILE_SOURCE, OperatorClass.RELATIONAL, output_rows=rows)
        for rows in (1e3, 1e9)
    )
    cluster = HISTORY.queries[0].cluster
    asked, other = (
        PlanOnCluster(Plan.on_one_platform(Workflow((each,)), Platform.OTHER), cluster)
        for each in (few, many)
    )
    known = History((on_cores(other, 8),), ("job",), np.array([5.0]))
    [found] = fit_personalized_ensemble(known, {PUBLIC: garbage(1)}, public_learners()).predict(
        [asked]
    )
    assert found.evidence.source is not EvidenceSource.OTHER_RESOURCES


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("spread", [0.02, 0.45])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_interval_of_the_only_job_covers_its_next_run(times: int, spread: float) -> None:
    covered = []
    for seed in range(300):
        runs = repeated(times + 1, spread=spread, seed=seed, level=1.0)
        known = History(runs.queries[:times], runs.workloads[:times], runs.log_seconds[:times])
        own = fit_personalized_ensemble(known, {PUBLIC: excellent}, public_learners())
        [found] = own.predict(runs.queries[:1])
        covered.append(found.covers(float(np.exp(runs.log_seconds[-1]))))
    assert np.mean(covered) > 0.83


def test_prediction_without_executions_has_pretrained_interval() -> None:
    own = fit_personalized_ensemble(
        History((), (), np.zeros(0)), {PUBLIC: excellent}, public_learners()
    )
    [found] = own.predict(HISTORY.queries[:1])
    assert found.evidence.source is EvidenceSource.PRETRAINED
    assert found.extrapolating
    ratio = found.upper_seconds / found.median_seconds
    assert np.log(ratio) == pytest.approx(pretrained_half_width(HISTORY.queries[0]))


@pytest.mark.parametrize("claim", [np.log(2.0), np.log(30.0)])
def test_prediction_by_pretrained_model_has_its_claimed_width(
    claim: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = dict.fromkeys(Platform, PretrainedWidth(float(claim)))
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: widths)
    few = History(HISTORY.queries[:12], HISTORY.workloads[:12], HISTORY.log_seconds[:12])
    machine = replace(HISTORY.queries[0].cluster, machine_speed=0.9)
    asked = PlanOnCluster(on_spark(HISTORY.queries[0].plan), machine)
    for history in (History((), (), np.zeros(0)), few):
        [found] = fit_personalized_ensemble(
            history, {PUBLIC: garbage(1)}, public_learners()
        ).predict([asked])
        ratio = found.upper_seconds / found.median_seconds
        assert np.log(ratio) == pytest.approx(claim)


def test_estimated_cardinalities_widen_intervals_by_a_common_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = next(
        PlanOnCluster(plan_with_estimated_cardinalities(each.plan), each.cluster)
        for each in HISTORY.queries
        if plan_with_estimated_cardinalities(each.plan).workflow.rows_are_estimates
    )
    workflow = replace(asked.plan.workflow, rows_are_estimates=False)
    counted = replace(asked, plan=replace(asked.plan, workflow=workflow))
    ends: list[Floats] = []
    kinships = []
    for added in (0.0, 2.0):
        claimed = dict.fromkeys(
            Platform, PretrainedWidth(0.01, of_estimates=added, of_other_estimates=added)
        )
        monkeypatch.setattr(pretrained, "shipped_widths", partial(dict, claimed))
        [found] = predictor().predict([asked])
        each = found
        of_ends = np.array([each.lower_seconds, each.upper_seconds]) / each.median_seconds
        ends.append(np.log(of_ends))
        kinships.append(found.evidence.error_correlation)
        [of_counted] = predictor().predict([counted])
        assert (figures(of_counted) == figures(each)) is (added == 0)
    assert np.abs(ends[1]) == pytest.approx(np.hypot(ends[0], 2.0))
    assert kinships[1] > kinships[0]


@pytest.mark.slow
def test_evidence_is_local_jobs_where_they_outperform_the_pretrained_model() -> None:
    few = History(HISTORY.queries[:40], HISTORY.workloads[:40], HISTORY.log_seconds[:40])
    own = fit_personalized_ensemble(few, {PUBLIC: garbage(1)}, public_learners())
    asked = draw_questions(np.random.default_rng(5), 20)
    assert {each.evidence.source for each in own.predict(asked)} <= {
        EvidenceSource.OWN_JOBS,
        EvidenceSource.OWN_JOBS_AND_PRETRAINED,
    }
    elsewhere = [PlanOnCluster(on_spark(each.plan), each.cluster) for each in asked]
    assert {each.evidence.source for each in own.predict(elsewhere)} == {EvidenceSource.PRETRAINED}
    joined = fit_personalized_ensemble(
        few, {SHARED: garbage(1), REFERENCE: garbage(2)}, joined_learners()
    )
    assert {each.evidence.source for each in joined.predict(elsewhere)} == {EvidenceSource.SHARED}


def on_spark(plan: Plan) -> Plan:
    return Plan.on_one_platform(plan.workflow, Platform.SPARK)


def about_right(seed: int, spread: float = 1.4) -> PredictLog:
    """Return a pretrained model with about its claimed error.

    The error depends on shape and size, plus a constant level.
    """

    def answers(questions: Sequence[PlanOnCluster]) -> Floats:
        shapes = [(len(each.plan.platforms), each.plan.platforms[0], seed) for each in questions]
        noise = [float(np.random.default_rng(shape).standard_normal()) for shape in shapes]
        sizes = [float(np.log1p(each.plan.workflow.source_rows) % 1) - 0.5 for each in questions]
        off: Floats = 0.2 + spread * (np.array(noise) + np.array(sizes))
        return true_log_seconds(questions) + off

    return answers


@pytest.mark.statistical
@pytest.mark.parametrize("workloads", [3, 12, 40])
def test_platform_without_runs_is_predicted_like_pretrained_model_and_covered(
    workloads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = dict.fromkeys(Platform, PretrainedWidth())
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: claimed)
    ratios, covered = [], []
    for seed in range(4):
        rng = np.random.default_rng([seed, workloads])
        start = about_right(seed)
        home = draw_history(rng, 4 * workloads)
        rows = [
            row
            for row, each in enumerate(home.queries)
            if each.plan.platforms[0] is Platform.POLARS
        ][:workloads]
        known = History(
            tuple(home.queries[row] for row in rows),
            tuple(home.workloads[row] for row in rows),
            home.log_seconds[rows] + 2.0,  # far slower than any pretrained prediction
        )
        asked = [
            each for each in draw_questions(rng, 150) if each.plan.platforms[0] is Platform.PANDAS
        ][:50]
        truth = true_log_seconds(asked) + 0.1 * rng.standard_normal(len(asked))
        found = fit_personalized_ensemble(known, {PUBLIC: start}, public_learners()).predict(asked)
        off = np.abs(np.log([each.median_seconds for each in found]) - truth)
        ratios.append(np.exp(np.median(off) - np.median(np.abs(start(asked) - truth))))
        covered += [each.covers(float(np.exp(t))) for each, t in zip(found, truth, strict=True)]
    print(np.round(ratios, 3), np.mean(covered))
    assert max(ratios) <= 1.10
    assert 0.85 <= np.mean(covered) < 0.99


@pytest.mark.slow
def test_censored_runs_count_as_lower_bounds_in_predictions() -> None:
    asked = HISTORY.queries[0]
    before = predictor().predict([asked])[0].median_seconds
    nothing = replace(repeated(0), censored=((asked, float(np.log(100 * before))),))
    several = History(
        HISTORY.queries[1:],
        HISTORY.workloads[1:],
        HISTORY.log_seconds[1:],
        censored=nothing.censored,
    )
    for history in (nothing, several):
        own = fit_personalized_ensemble(history, {PUBLIC: excellent}, public_learners())
        [found, other] = own.predict([asked, HISTORY.queries[1]])
        assert found.median_seconds > 100 * before
        assert found.probability_within(100 * before) == pytest.approx(1 / 3, abs=0.01)
        assert other.median_seconds < 100 * before
        np.testing.assert_allclose(own.predict_log([asked]), [np.log(found.median_seconds)])
