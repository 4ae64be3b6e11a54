"""Directed reports over the cells: what is asked, what answers tell, what a liar can do."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fedperf_server.inference.cell_directions import (
    CHANGE,
    CellPosterior,
    OrganizationPosterior,
    QueryResponses,
    design_cell_query,
    directions_through_clips,
    infer_cells,
    observe,
)
from fedperf_server.inference.corrections import SAME_PLATFORM
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.release import InvalidReleaseError
from tests.fakes.corrections import correct
from tests.fakes.influence_bounds import influence_bounds
from tests.fakes.questions import make_question
from tests.unit.server.inference.worlds_of_cells import (
    PLAIN,
    REFERENCE,
    Floats,
    Member,
    asked,
    declared,
    draw_truth,
    learned_in_stages,
    members,
    occupied,
    stage,
)

EPSILON_1 = 3.73
"""Noise of a single report at epsilon 1; of three that together cost as much, sqrt(3) times."""
THIRD = EPSILON_1 * np.sqrt(3)
SEEDS = range(6)


def world(
    seed: int, *, off: float = 0.0, count: int = 4, workloads: int = 200, cells: int = 24
) -> tuple[Floats, list[Member]]:
    truth = draw_truth(np.random.default_rng([seed, 1])) + off
    return truth, members(truth, seed=seed, count=count, workloads=workloads, cells=cells)


def error(learned: CellPosterior, truth: Floats, group: Sequence[Member]) -> float:
    """Root mean square over the cells where somebody has workloads."""
    return float(np.sqrt(np.mean((learned.correction.mean - truth)[occupied(group)] ** 2)))


def mean_error(plain: float, directed: Sequence[float], **options: float) -> float:
    errors = []
    for seed in SEEDS:
        truth, group = world(seed, **options)  # type: ignore[arg-type]  # off and count
        learned = learned_in_stages(group, plain=plain, directed=directed)[2]
        errors.append(error(learned, truth, group))
    return float(np.mean(errors))


@pytest.mark.statistical
def test_at_the_same_epsilon_staged_reports_tell_more_than_a_plain_one() -> None:
    plain = mean_error(EPSILON_1, ())
    staged = mean_error(THIRD, (THIRD, THIRD))
    assert staged < 0.7 * plain


def heard_as(group: Sequence[Member], factor: float) -> CellPosterior:
    """One directed stage, whose noise the server takes to be `factor` of what it is."""
    reports, (answered,), _ = learned_in_stages(group, plain=THIRD, directed=(THIRD,))
    answers = tuple(
        replace(each, parameters=replace(each.parameters, noise_multiplier=factor * THIRD))
        for each in answered.responses
    )
    return infer_cells(reports, [replace(answered, responses=answers)], reference_version=REFERENCE)


def gain_of_a_stage(factor: float) -> float:
    """Error with the stage over error without it."""
    errors = []
    for seed in SEEDS:
        truth, group = world(seed)
        without = learned_in_stages(group, plain=THIRD, directed=())[2]
        errors.append([error(each, truth, group) for each in (heard_as(group, factor), without)])
    with_stage, without_stage = np.mean(errors, axis=0)
    return float(with_stage / without_stage)


@pytest.mark.slow
def test_answers_add_to_what_the_plain_reports_told_if_their_noise_is_known() -> None:
    """The second half is the mutant: who is not aware of the noise learns next to nothing."""
    assert gain_of_a_stage(1.0) < 0.75
    assert gain_of_a_stage(0.01) > 0.9


@pytest.mark.statistical
def test_the_stated_uncertainty_covers_the_truth_about_as_often_as_it_says() -> None:
    """90 % intervals; counts that are wrong in every stage make them somewhat too narrow."""
    covered = []
    for seed in SEEDS:
        truth, group = world(seed)
        learned = learned_in_stages(group, plain=THIRD, directed=(THIRD, THIRD))[2]
        spread = np.sqrt(np.diag(learned.correction.covariance))
        covered.append(np.mean(np.abs(learned.correction.mean - truth) < 1.645 * spread))
    assert 0.75 < np.mean(covered) < 0.97


def test_a_start_that_is_off_by_more_than_its_clips_is_recovered_by_the_wide_first_stage() -> None:
    off = 2.5
    noise = 1.39 * np.sqrt(3)  # three stages at epsilon 3
    truth, group = world(1, off=off)
    _, answered, staged = learned_in_stages(group, plain=noise, directed=(noise, noise))
    tight = asked(infer_cells([], [], reference_version=REFERENCE), group, noise)
    assert tight.design.clips.max() < off
    _, _, unprepared = learned_in_stages(group, plain=None, directed=(noise,))
    assert error(staged, truth, group) < 0.5
    assert error(unprepared, truth, group) > 0.9
    centers = [each.query.center[occupied(group)].mean() for each in answered]
    assert abs(centers[0] - off) < 1.0


def test_clips_are_as_wide_as_what_is_believed_and_tighter_stage_by_stage() -> None:
    _, group = world(2)
    learned = infer_cells([], [], reference_version=REFERENCE)
    first, second = (asked(learned, group, THIRD, index=index) for index in (1, 2))
    assert np.all(second.design.clips < first.design.clips)
    doubtful = replace(learned.correction, covariance=4 * learned.correction.covariance)
    wider = asked(replace(learned, correction=doubtful), group, THIRD)
    assert np.all(wider.design.clips > 1.5 * first.design.clips)


def test_answers_that_nobody_expected_widen_the_belief() -> None:
    _, group = world(3, off=3.0)
    learned = learned_in_stages(group, plain=None, directed=(0.5,))[2]
    assert learned.correction.scale == 2.0


def test_the_same_workloads_do_not_count_twice() -> None:
    """Without noise a second answer to the same question says nothing about the truth."""
    _, group = world(4, count=1)
    reports, answered, once = learned_in_stages(group, plain=0.01, directed=(0.01,))
    question = replace(answered[0].query, slot=stage(2), version=2)
    again = QueryResponses(question, (group[0].answer(question, 0.01),))
    twice = infer_cells(reports, [*answered, again], reference_version=REFERENCE, scales=(1.0,))
    before, after = (np.diag(each.correction.covariance) for each in (once, twice))
    assert np.all(after > 0.99 * before / once.correction.scale)


def test_a_declared_number_is_believed_as_far_as_the_noise_hides_the_counts() -> None:
    _, (member,) = world(5, count=1)
    declared_only = OrganizationPosterior.before_responses(200.0, None)
    assert declared_only.counts.sum() == pytest.approx(200.0)
    drowned, clear = (
        infer_cells([member.plain(noise)], [], reference_version=REFERENCE).organization_posterior(
            member.name, declared(member, noise)
        )
        for noise in (1e5, 0.01)
    )
    np.testing.assert_allclose(drowned.counts, declared_only.counts, rtol=0.05)
    true = np.bincount([int(each.cells[0]) for each in member.workloads], minlength=CELLS)
    np.testing.assert_allclose(clear.counts, true, atol=0.1)
    assert clear.count_variance.max() < 0.01 < drowned.count_variance.min()


def test_counts_that_are_declared_public_are_believed_as_they_are_and_help() -> None:
    errors = {True: 0.0, False: 0.0}
    for seed, public in product(SEEDS, errors):
        truth, group = world(seed, workloads=60, cells=12)
        learned = learned_in_stages(
            group, plain=THIRD, directed=(THIRD, THIRD), public_counts=public
        )[2]
        errors[public] += error(learned, truth, group) / len(SEEDS)
        true = np.bincount([int(each.cells[0]) for each in group[0].workloads], minlength=CELLS)
        believed = learned.organizations[group[0].name].counts
        assert np.allclose(believed, true, atol=0.01) is public
    assert errors[True] < 0.9 * errors[False]


def test_without_answers_the_correction_is_that_of_the_plain_reports() -> None:
    _, group = world(6)
    reports = [each.plain(EPSILON_1) for each in group]
    alone = correct(reports, reference_version=REFERENCE)
    unanswered = QueryResponses(make_question(stage(1)), ())
    for answered in ([], [unanswered]):
        learned = infer_cells(reports, answered, reference_version=REFERENCE).correction
        np.testing.assert_array_equal(learned.mean, alone.mean)
        assert learned.organizations == alone.organizations == 4


def test_a_sender_that_lies_in_every_way_moves_the_correction_by_the_stated_bound() -> None:
    _, group = world(7, count=6)
    reports = [each.plain(THIRD) for each in group]
    before = infer_cells(reports, [], reference_version=REFERENCE)
    question = asked(before, group, THIRD)
    honest = QueryResponses(question, tuple(each.answer(question, THIRD) for each in group))
    belief = GaussianPosterior(before.correction.mean, before.correction.covariance)
    bound = influence_bounds(belief, [each for each, _ in observe(before, honest)], 0, scale=1.0)

    def mean_with(values: np.ndarray) -> Floats:
        lie = replace(
            honest.responses[0], report=replace(honest.responses[0].report, values=values)
        )
        answered = replace(honest, responses=(lie, *honest.responses[1:]))
        found = infer_cells(reports, [answered], reference_version=REFERENCE, scales=(1.0,))
        return found.correction.mean

    rng = np.random.default_rng(1)
    lies = [np.zeros(16, dtype=np.int64)]
    for size in (2**24, 2**40, 2**62):
        lies += [sign * np.full(16, size, dtype=np.int64) for sign in (1, -1)]
        lies += [size * rng.choice([-1, 1], 16).astype(np.int64) for _ in range(3)]
    means = np.array([mean_with(each) for each in lies])
    assert np.all(np.ptp(means, axis=0) <= bound * (1 + 1e-9))
    assert np.ptp(means, axis=0).max() > 0.2 * bound.max()  # it is not bound by accident


def test_no_correction_leaves_the_widest_clip_around_a_center() -> None:
    _, group = world(8, off=30.0, count=1)
    _, answered, learned = learned_in_stages(group, plain=None, directed=(0.01,))
    question = answered[0].query
    limit = np.abs(question.center) + question.design.clips
    assert np.all(np.abs(learned.correction.mean) <= limit + 1e-12)


def test_what_answers_another_question_is_refused() -> None:
    _, group = world(9, count=1)
    _, (answered,), _ = learned_in_stages(group, plain=None, directed=(THIRD,))
    (answer,) = answered.responses
    for changes in (
        {"design_version": 9},
        {"slot": PLAIN},
        {"values": np.zeros(15, dtype=np.int64)},
    ):
        wrong = replace(answer, report=replace(answer.report, **changes))
        with pytest.raises(InvalidReleaseError, match="does not match query 1"):
            infer_cells([], [replace(answered, responses=(wrong,))], reference_version=REFERENCE)
    with pytest.raises(InvalidReleaseError, match="model version 1, expected 2"):
        infer_cells([], [answered], reference_version=2)


def test_nobody_is_asked_nothing() -> None:
    nothing = correct([], reference_version=REFERENCE)
    with pytest.raises(ConfigurationError, match="at least one sender"):
        design_cell_query(nothing, [], slot=stage(1), version=1)


def test_what_passes_a_clip_is_what_a_normal_residual_keeps_of_a_shift() -> None:
    """Two-sided, by the client's own clipping: kappa is 3, 1.5 and 1 standard deviations."""
    rng = np.random.default_rng(5)
    around = rng.standard_normal(200_000)
    for index, kappa in enumerate((3.0, 1.5, 1.0)):
        question = make_question(stage(index))
        passed = directions_through_clips(question)
        kept = np.mean(np.clip(around + 0.05, -kappa, kappa) - np.clip(around, -kappa, kappa))
        shown = np.linalg.norm(passed) / np.linalg.norm(question.design.directions)
        assert shown == pytest.approx(kept / 0.05, rel=0.02)


def test_in_a_later_window_questions_ask_for_whole_platforms() -> None:
    """What answers tell about a platform that changed: its signal over all that varies."""
    told = {0.0: 0.0, CHANGE: 0.0}
    for seed in range(10, 14):
        _, group = world(seed, count=1)
        learned = learned_in_stages(group, plain=THIRD, directed=(THIRD, THIRD))[2]
        parameters = declared(group[0], THIRD)
        sums = learned.organization_posterior(group[0].name, parameters)
        shown = sums.slopes @ learned.correction.covariance @ sums.slopes.T + sums.covariance
        for change in told:
            question = design_cell_query(
                learned.correction, [(sums, parameters)], slot=stage(1), version=9, change=change
            )
            asked = directions_through_clips(question)
            signal = asked @ (sums.counts[:, None] * SAME_PLATFORM)
            varies = asked @ shown @ asked.T + parameters.noise_multiplier**2 * np.eye(len(asked))
            information = np.sum(signal * np.linalg.solve(varies, signal), axis=0)
            told[change] += float(information[occupied(group)].mean())
    assert told[CHANGE] > 1.15 * told[0.0]


def in_window(answered: QueryResponses, window: int) -> QueryResponses:
    """The same question and answers, as if they were of another window."""
    slot = replace(answered.query.slot, window=window)
    answers = tuple(
        replace(each, report=replace(each.report, slot=slot)) for each in answered.responses
    )
    return QueryResponses(replace(answered.query, slot=slot), answers)


def test_what_workloads_told_in_an_earlier_window_holds_a_little_less() -> None:
    _, group = world(11, count=1)
    reports, answered, _ = learned_in_stages(group, plain=1.0, directed=(1.0, 1.0))
    spread = {}
    for window in (0, 1):
        own = infer_cells(
            reports, [answered[0], in_window(answered[1], window)], reference_version=REFERENCE
        ).organizations[group[0].name]
        spread[window] = float(np.trace(own.covariance))
    assert 1.02 * spread[0] < spread[1] < 3 * spread[0]


def test_only_the_first_window_may_double_the_doubt() -> None:
    """Else noise would come to do it, one window or another."""
    _, group = world(3, off=3.0)
    reports, answered, learned = learned_in_stages(group, plain=None, directed=(0.5,))
    assert learned.correction.scale == 2.0
    nothing = QueryResponses(
        make_question(stage(1)),
        tuple(
            replace(each, report=replace(each.report, values=np.zeros(16, dtype=np.int64)))
            for each in answered[0].responses
        ),
    )
    nothing = in_window(replace(nothing, query=replace(answered[0].query, slot=stage(1))), 0)
    later = [nothing, in_window(answered[0], 1)]
    found = infer_cells(reports, later, reference_version=REFERENCE).correction
    first = infer_cells(reports, later[:1], reference_version=REFERENCE).correction
    assert found.scale == first.scale
