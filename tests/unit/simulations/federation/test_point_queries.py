import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_server.inference.cell_directions import GRID, STAGES, Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import (
    DirectedReport,
    InvalidReleaseError,
    ReleaseKind,
    SlotKey,
)
from fedperf_simulations.federation.point_queries import (
    QueryDesign,
    design_query,
    infer,
    stage_noise,
)

Floats = NDArray[np.float64]

RECORD = 0.003
WORKLOADS = np.arange(24)
TARGETS = np.arange(24, 40)
SENDERS = [WORKLOADS[:10], WORKLOADS[10:]]


def smooth_belief(seed: int = 0) -> GaussianPosterior:
    """Return a smooth prior over points on a line."""
    place = np.random.default_rng(seed).uniform(-1, 1, 40)
    near = np.exp(-((place[:, None] - place) ** 2) / 0.5)
    return GaussianPosterior(np.zeros(40), 0.2 + 0.5 * near + 1e-9 * np.eye(40))


def a_question(
    belief: GaussianPosterior, *, noise_multiplier: float = 2.0, directions: int = 6
) -> QueryDesign:
    return design_query(
        belief,
        SENDERS,
        TARGETS,
        kappa=1.5,
        noise_multiplier=noise_multiplier,
        record_variance=RECORD,
        directions=directions,
    )


def removed(belief: GaussianPosterior, matrices: list[Floats], noise: float) -> float:
    """Return the mean variance at the targets that responses are expected to remove."""
    here = np.concatenate(SENDERS)
    whole = np.zeros((sum(len(each) for each in matrices), len(here)))
    row = column = 0
    for each in matrices:
        whole[row : row + len(each), column : column + each.shape[1]] = each
        row, column = row + len(each), column + each.shape[1]
    signal = belief.covariance[np.ix_(here, here)] + RECORD * np.eye(len(here))
    crossed = whole @ belief.covariance[np.ix_(here, TARGETS)]
    system = whole @ signal @ whole.T + noise**2 * np.eye(len(whole))
    return float(np.trace(crossed.T @ np.linalg.solve(system, crossed))) / len(TARGETS)


def a_report(values: Floats) -> DirectedReport:
    steps = np.round(np.ldexp(values, 20)).astype(np.int64)
    return DirectedReport(SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0), 1, -20, steps)


def test_point_query_columns_have_norm_one_and_never_more() -> None:
    for design in a_question(smooth_belief()).designs:
        assert np.all(design.norms() <= 1.0)
        assert np.all(design.norms() >= 1 - 1e-6)


def test_point_query_clips_are_kappa_record_deviations_on_the_grid() -> None:
    belief = smooth_belief()
    first = a_question(belief).designs[0]
    expected = 1.5 * np.sqrt(np.diag(belief.covariance)[:10] + RECORD)
    np.testing.assert_allclose(first.clips, expected, rtol=0, atol=GRID / 2)
    assert np.all(first.clips % GRID == 0)


def test_point_query_design_removes_more_variance_than_random_directions() -> None:
    belief = smooth_belief()
    question = a_question(belief)
    best = removed(belief, [each.directions for each in question.designs], 2.0)
    rng = np.random.default_rng(1)
    for _ in range(300):
        others = []
        for design in question.designs:
            free = design.directions * design.clips + rng.choice([0.02, 0.3, 3.0]) * (
                rng.standard_normal(design.directions.shape)
            )
            others.append(free / np.linalg.norm(free, axis=0) / design.clips)
        assert removed(belief, others, 2.0) <= best + 1e-6


def test_point_query_with_more_directions_removes_no_less_variance() -> None:
    belief = smooth_belief()
    few, many = (
        removed(belief, [each.directions for each in a_question(belief, directions=d).designs], 2.0)
        for d in (4, 16)
    )
    assert many >= few - 1e-6


def test_point_query_is_deterministic_for_a_posterior() -> None:
    first, again = (a_question(smooth_belief()) for _ in range(2))
    for one, other in zip(first.designs, again.designs, strict=True):
        np.testing.assert_array_equal(one.directions, other.directions)


def test_point_query_with_little_noise_recovers_the_truth_at_targets() -> None:
    belief = smooth_belief()
    rng = np.random.default_rng(2)
    truth = np.linalg.cholesky(belief.covariance) @ rng.standard_normal(40)
    question = a_question(belief, noise_multiplier=0.01)
    reports = [
        a_report(design.directions @ truth[points] + 0.01 * rng.standard_normal(design.values))
        for points, design in zip(question.points, question.designs, strict=True)
    ]
    after = infer(
        belief, question, reports, noise_multiplier=0.01, record_variance=RECORD
    ).posterior
    assert np.abs(after.mean - truth)[TARGETS].mean() < 0.1
    assert np.abs(belief.mean - truth)[TARGETS].mean() > 0.2
    assert after.variances()[TARGETS].mean() < 0.05 * belief.variances()[TARGETS].mean()


def test_point_query_posterior_matches_the_closed_form_for_one_point() -> None:
    """With one organization and one point, the posterior has a closed form."""
    belief = GaussianPosterior(np.array([0.2, 1.0]), np.array([[0.5, 0.3], [0.3, 0.8]]))
    clip = 2 * np.sqrt(0.5 + RECORD)
    question = design_query(
        belief,
        [np.array([0])],
        np.array([1]),
        kappa=2.0,
        noise_multiplier=1.3,
        record_variance=RECORD,
        directions=1,
    )
    way = question.designs[0].directions[0, 0]
    assert question.designs[0].clips == pytest.approx(clip, abs=GRID / 2)
    assert abs(way) == pytest.approx(1 / question.designs[0].clips[0])
    after = infer(
        belief,
        question,
        [a_report(np.array([0.7]))],
        noise_multiplier=1.3,
        record_variance=RECORD,
    )
    variance = way**2 * (after.scale * 0.5 + RECORD) + 1.3**2
    gain = after.scale * np.array([0.5, 0.3]) * way / variance
    np.testing.assert_allclose(after.posterior.mean, belief.mean + 0.7 * gain, rtol=1e-5)
    expected = after.scale * belief.covariance - np.outer(gain, gain) * variance
    np.testing.assert_allclose(after.posterior.covariance, expected, rtol=1e-6)


def test_point_query_missing_response_changes_no_mean_and_others_still_count() -> None:
    belief = smooth_belief()
    question = a_question(belief)
    report = a_report(np.full(6, 0.5))
    known = {"noise_multiplier": 2.0, "record_variance": RECORD}
    nobody = infer(belief, question, [None, None], **known)
    np.testing.assert_array_equal(nobody.posterior.mean, belief.mean)
    one = infer(belief, question, [None, report], **known)
    assert np.abs(one.posterior.mean).max() > 0.01


def test_point_query_responses_of_wrong_count_or_length_are_refused() -> None:
    belief = smooth_belief()
    question = a_question(belief)
    known = {"noise_multiplier": 2.0, "record_variance": RECORD}
    with pytest.raises(InvalidReleaseError, match="2 senders"):
        infer(belief, question, [None], **known)
    with pytest.raises(InvalidReleaseError, match="6 values"):
        infer(belief, question, [a_report(np.zeros(5)), None], **known)


def test_channel_stages_cost_one_gaussian_mechanism_with_decreasing_kappa() -> None:
    whole = 3.73
    precision = sum(1 / stage_noise(stage, whole) ** 2 for stage in STAGES)
    assert precision == pytest.approx(1 / whole**2)
    assert [stage.kappa for stage in STAGES] == sorted((s.kappa for s in STAGES), reverse=True)


@pytest.mark.parametrize(("share", "kappa"), [(0.0, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, np.nan)])
def test_stage_without_budget_or_clip_is_refused(share: float, kappa: float) -> None:
    with pytest.raises(ConfigurationError):
        Stage(share, kappa)


def test_point_query_gives_workloads_at_one_point_equal_directions() -> None:
    belief = smooth_belief()
    often = np.repeat(WORKLOADS[:10], 50)
    question = design_query(
        belief,
        [often, WORKLOADS[10:]],
        TARGETS,
        kappa=1.5,
        noise_multiplier=100.0,
        record_variance=RECORD,
        directions=6,
    )
    design = question.designs[0]
    assert design.points == len(often)
    assert np.all(design.norms() <= 1.0)
    assert np.all(design.norms() >= 1 - 1e-6)
    np.testing.assert_array_equal(design.directions[:, :50], design.directions[:, :1].repeat(50, 1))
    many = expected_error(belief, question, noise_multiplier=100.0)
    once = expected_error(
        belief, a_question(belief, noise_multiplier=100.0), noise_multiplier=100.0
    )
    assert many < 0.7 * once


def expected_error(
    belief: GaussianPosterior, question: QueryDesign, *, noise_multiplier: float
) -> float:
    """Return the remaining variance at the targets after responses of the expected size."""
    reports = [a_report(np.zeros(each.values)) for each in question.designs]
    after = infer(
        belief, question, reports, noise_multiplier=noise_multiplier, record_variance=RECORD
    )
    return float(np.diag(after.posterior.covariance / after.scale)[TARGETS].mean())
