"""Tests of directed reports over cells: query design, inference and bounded influence."""

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
from tests.fakes.cell_queries import make_cell_query
from tests.fakes.corrections import correct
from tests.fakes.influence_bounds import influence_bounds
from tests.unit.server.inference.simulated_organizations import (
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
"""Noise multiplier of one report at epsilon 1. Three that cost as much have sqrt(3) times it."""
THIRD = EPSILON_1 * np.sqrt(3)
SEEDS = range(6)


def world(
    seed: int, *, off: float = 0.0, count: int = 4, workloads: int = 200, cells: int = 24
) -> tuple[Floats, list[Member]]:
    truth = draw_truth(np.random.default_rng([seed, 1])) + off
    return truth, members(truth, seed=seed, count=count, workloads=workloads, cells=cells)


def error(learned: CellPosterior, truth: Floats, group: Sequence[Member]) -> float:
    """Return the root mean square error over the cells that contain workloads."""
    return float(np.sqrt(np.mean((learned.correction.mean - truth)[occupied(group)] ** 2)))


def mean_error(plain: float, directed: Sequence[float], **options: float) -> float:
    errors = []
    for seed in SEEDS:
        truth, group = world(seed, **options)  # type: ignore[arg-type]  # off and count
        learned = learned_in_stages(group, plain=plain, directed=directed)[2]
        errors.append(error(learned, truth, group))
    return float(np.mean(errors))


@pytest.mark.statistical
def test_staged_reports_at_equal_epsilon_reduce_error_more_than_a_plain_report() -> None:
    plain = mean_error(EPSILON_1, ())
    staged = mean_error(THIRD, (THIRD, THIRD))
    assert staged < 0.7 * plain


def heard_as(group: Sequence[Member], factor: float) -> CellPosterior:
    """Infer from one directed stage whose noise is assumed to be `factor` times the true one."""
    reports, (query_responses,), _ = learned_in_stages(group, plain=THIRD, directed=(THIRD,))
    answers = tuple(
        replace(each, parameters=replace(each.parameters, noise_multiplier=factor * THIRD))
        for each in query_responses.responses
    )
    return infer_cells(
        reports, [replace(query_responses, responses=answers)], reference_version=REFERENCE
    )


def gain_of_a_stage(factor: float) -> float:
    """Return the error with the stage divided by the error without it."""
    errors = []
    for seed in SEEDS:
        truth, group = world(seed)
        without = learned_in_stages(group, plain=THIRD, directed=())[2]
        errors.append([error(each, truth, group) for each in (heard_as(group, factor), without)])
    with_stage, without_stage = np.mean(errors, axis=0)
    return float(with_stage / without_stage)


@pytest.mark.slow
def test_directed_reports_reduce_error_only_if_their_noise_is_modelled() -> None:
    """The second assertion is the mutant: with the noise ignored, almost nothing is learned."""
    assert gain_of_a_stage(1.0) < 0.75
    assert gain_of_a_stage(0.01) > 0.9


@pytest.mark.statistical
def test_cell_posterior_intervals_have_about_stated_coverage() -> None:
    """Inexact counts in every stage make these 90 % intervals somewhat too narrow."""
    covered = []
    for seed in SEEDS:
        truth, group = world(seed)
        learned = learned_in_stages(group, plain=THIRD, directed=(THIRD, THIRD))[2]
        spread = np.sqrt(np.diag(learned.correction.covariance))
        covered.append(np.mean(np.abs(learned.correction.mean - truth) < 1.645 * spread))
    assert 0.75 < np.mean(covered) < 0.97


def test_infer_cells_recovers_offset_beyond_clips_after_a_wide_first_report() -> None:
    off = 2.5
    noise = 1.39 * np.sqrt(3)  # three stages at epsilon 3
    truth, group = world(1, off=off)
    _, query_responses, staged = learned_in_stages(group, plain=noise, directed=(noise, noise))
    tight = asked(infer_cells([], [], reference_version=REFERENCE), group, noise)
    assert tight.design.clips.max() < off
    _, _, unprepared = learned_in_stages(group, plain=None, directed=(noise,))
    assert error(staged, truth, group) < 0.5
    assert error(unprepared, truth, group) > 0.9
    centers = [each.query.center[occupied(group)].mean() for each in query_responses]
    assert abs(centers[0] - off) < 1.0


def test_query_clips_follow_posterior_width_and_shrink_by_stage() -> None:
    _, group = world(2)
    learned = infer_cells([], [], reference_version=REFERENCE)
    first, second = (asked(learned, group, THIRD, index=index) for index in (1, 2))
    assert np.all(second.design.clips < first.design.clips)
    doubtful = replace(learned.correction, covariance=4 * learned.correction.covariance)
    wider = asked(replace(learned, correction=doubtful), group, THIRD)
    assert np.all(wider.design.clips > 1.5 * first.design.clips)


def test_infer_cells_with_unexpected_responses_widens_the_posterior() -> None:
    _, group = world(3, off=3.0)
    learned = learned_in_stages(group, plain=None, directed=(0.5,))[2]
    assert learned.correction.scale == 2.0


def test_infer_cells_counts_the_same_workloads_once() -> None:
    """Without noise, a second response to the same query adds no information."""
    _, group = world(4, count=1)
    reports, query_responses, once = learned_in_stages(group, plain=0.01, directed=(0.01,))
    question = replace(query_responses[0].query, slot=stage(2), version=2)
    again = QueryResponses(question, (group[0].answer(question, 0.01),))
    twice = infer_cells(
        reports, [*query_responses, again], reference_version=REFERENCE, scales=(1.0,)
    )
    before, after = (np.diag(each.correction.covariance) for each in (once, twice))
    assert np.all(after > 0.99 * before / once.correction.scale)


def test_declared_workload_count_yields_to_reported_counts_as_noise_falls() -> None:
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


def test_public_counts_are_taken_as_exact_and_reduce_error() -> None:
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


def test_infer_cells_without_responses_equals_correction_of_plain_reports() -> None:
    _, group = world(6)
    reports = [each.plain(EPSILON_1) for each in group]
    alone = correct(reports, reference_version=REFERENCE)
    unanswered = QueryResponses(make_cell_query(stage(1)), ())
    for query_responses in ([], [unanswered]):
        learned = infer_cells(reports, query_responses, reference_version=REFERENCE).correction
        np.testing.assert_array_equal(learned.mean, alone.mean)
        assert learned.organizations == alone.organizations == 4


def test_dishonest_participant_moves_cell_correction_within_influence_bound() -> None:
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
        query_responses = replace(honest, responses=(lie, *honest.responses[1:]))
        found = infer_cells(reports, [query_responses], reference_version=REFERENCE, scales=(1.0,))
        return found.correction.mean

    rng = np.random.default_rng(1)
    lies = [np.zeros(16, dtype=np.int64)]
    for size in (2**24, 2**40, 2**62):
        lies += [sign * np.full(16, size, dtype=np.int64) for sign in (1, -1)]
        lies += [size * rng.choice([-1, 1], 16).astype(np.int64) for _ in range(3)]
    means = np.array([mean_with(each) for each in lies])
    assert np.all(np.ptp(means, axis=0) <= bound * (1 + 1e-9))
    assert np.ptp(means, axis=0).max() > 0.2 * bound.max()  # the bound is not vacuous


def test_cell_correction_stays_within_widest_clip_around_query_center() -> None:
    _, group = world(8, off=30.0, count=1)
    _, query_responses, learned = learned_in_stages(group, plain=None, directed=(0.01,))
    question = query_responses[0].query
    limit = np.abs(question.center) + question.design.clips
    assert np.all(np.abs(learned.correction.mean) <= limit + 1e-12)


def test_infer_cells_with_mismatched_response_is_refused() -> None:
    _, group = world(9, count=1)
    _, (query_responses,), _ = learned_in_stages(group, plain=None, directed=(THIRD,))
    (answer,) = query_responses.responses
    for changes in (
        {"design_version": 9},
        {"slot": PLAIN},
        {"values": np.zeros(15, dtype=np.int64)},
    ):
        wrong = replace(answer, report=replace(answer.report, **changes))
        with pytest.raises(InvalidReleaseError, match="does not match query 1"):
            infer_cells(
                [], [replace(query_responses, responses=(wrong,))], reference_version=REFERENCE
            )
    with pytest.raises(InvalidReleaseError, match="model version 1, expected 2"):
        infer_cells([], [query_responses], reference_version=2)


def test_design_cell_query_without_participants_is_refused() -> None:
    nothing = correct([], reference_version=REFERENCE)
    with pytest.raises(ConfigurationError, match="at least one sender"):
        design_cell_query(nothing, [], slot=stage(1), version=1)


def test_directions_through_clips_match_simulated_clipping() -> None:
    """The test is two-sided, with the client's clipping at 3, 1.5 and 1 standard deviations."""
    rng = np.random.default_rng(5)
    around = rng.standard_normal(200_000)
    for index, kappa in enumerate((3.0, 1.5, 1.0)):
        question = make_cell_query(stage(index))
        passed = directions_through_clips(question)
        kept = np.mean(np.clip(around + 0.05, -kappa, kappa) - np.clip(around, -kappa, kappa))
        shown = np.linalg.norm(passed) / np.linalg.norm(question.design.directions)
        assert shown == pytest.approx(kept / 0.05, rel=0.02)


def test_cell_query_with_change_is_more_informative_about_whole_platforms() -> None:
    """The measured value is the signal of a changed platform relative to all variation."""
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


def in_window(query_responses: QueryResponses, window: int) -> QueryResponses:
    """Return the same query and responses, moved to another window."""
    slot = replace(query_responses.query.slot, window=window)
    answers = tuple(
        replace(each, report=replace(each.report, slot=slot)) for each in query_responses.responses
    )
    return QueryResponses(replace(query_responses.query, slot=slot), answers)


def test_infer_cells_gives_responses_of_an_earlier_window_less_weight() -> None:
    _, group = world(11, count=1)
    reports, query_responses, _ = learned_in_stages(group, plain=1.0, directed=(1.0, 1.0))
    spread = {}
    for window in (0, 1):
        own = infer_cells(
            reports,
            [query_responses[0], in_window(query_responses[1], window)],
            reference_version=REFERENCE,
        ).organizations[group[0].name]
        spread[window] = float(np.trace(own.covariance))
    assert 1.02 * spread[0] < spread[1] < 3 * spread[0]


def test_infer_cells_doubles_prior_scale_only_in_the_first_window() -> None:
    """Otherwise noise would double the posterior width in some window."""
    _, group = world(3, off=3.0)
    reports, query_responses, learned = learned_in_stages(group, plain=None, directed=(0.5,))
    assert learned.correction.scale == 2.0
    nothing = QueryResponses(
        make_cell_query(stage(1)),
        tuple(
            replace(each, report=replace(each.report, values=np.zeros(16, dtype=np.int64)))
            for each in query_responses[0].responses
        ),
    )
    nothing = in_window(replace(nothing, query=replace(query_responses[0].query, slot=stage(1))), 0)
    later = [nothing, in_window(query_responses[0], 1)]
    found = infer_cells(reports, later, reference_version=REFERENCE).correction
    first = infer_cells(reports, later[:1], reference_version=REFERENCE).correction
    assert found.scale == first.scale
