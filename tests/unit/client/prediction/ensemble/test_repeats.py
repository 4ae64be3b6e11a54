"""Exact repeats are predicted from their own runs, with an interval by their variance."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History, encode
from fedperf_client.prediction.ensemble.repeats import (
    PUBLIC_PRIOR,
    Repeats,
    ResourceChange,
)
from fedperf_client.prediction.prediction import EvidenceSource, Prediction
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.prediction.ensemble.synthetic_repeats import (
    NO_MIX,
    NOISES,
    SPREADS,
    home,
    interval_score,
    runs,
)

NIGHTLY = Path(__file__).parents[5] / "tests" / "cases" / "nightly" / "executions.parquet"


def answer(
    found: Repeats, name: int = 0, *, of_mix: float = 0.0, variance: float = NO_MIX
) -> Prediction:
    told = found.predict(name, of_mix, variance)
    assert told is not None
    return told


def ratio(told: Prediction) -> float:
    """Return the ratio of upper to lower end of the 90 % interval."""
    return math.exp(told.distribution.quantile(0.95) - told.distribution.quantile(0.05))


def test_configuration_that_never_ran_has_no_repeat_prediction() -> None:
    assert home(np.array([1.0])).predict(1, 0.0, 1.0) is None
    assert home().predict(0, 0.0, 1.0) is None


def test_repeat_prediction_weights_runs_and_ensemble_by_precision() -> None:
    once, variance = home(np.array([1.0])), 0.25
    share = variance / (variance + PUBLIC_PRIOR.sd**2)
    told = answer(once, of_mix=1.2, variance=variance)
    assert told.log_seconds == pytest.approx(1.2 - 0.2 * share, abs=0.01)
    assert told.evidence.runs == 1
    often = answer(home(np.linspace(0.9, 1.1, 30)), of_mix=1.2, variance=variance)
    assert often.log_seconds == pytest.approx(1.0, abs=0.01)


def test_repeat_prediction_ignores_ensemble_far_beyond_its_variance() -> None:
    once = home(np.array([1.0]))
    near = answer(once, of_mix=1.05, variance=1e-4)
    far = answer(once, of_mix=4.0, variance=1e-4)
    assert near.log_seconds == pytest.approx(1.05, abs=0.01)
    assert far.log_seconds == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("of_mix", [-4.0, 0.4, 0.9, 1.2, 1.7, 9.0])
@pytest.mark.parametrize("variance", [1e-4, 0.3])
def test_ensemble_moves_repeat_prediction_by_less_than_ten_percent(
    of_mix: float, variance: float
) -> None:
    found = answer(home(np.array([1.0])), of_mix=of_mix, variance=variance)
    assert abs(found.log_seconds - 1.0) < np.log(1.1)


def test_repeat_interval_narrows_with_more_agreeing_runs() -> None:
    rng = np.random.default_rng(0)
    own = 3 + 0.02 * rng.standard_normal(10)
    ratios = [ratio(answer(home(own[:k]))) for k in (1, 2, 4, 10)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < 1.6


def test_repeat_variance_is_learned_from_other_configurations() -> None:
    rng = np.random.default_rng(1)
    ratios = {}
    for spread in ("quiet", "cloud"):
        others = [runs(rng, spread, "normal", 6) for _ in range(25)]
        ratios[spread] = ratio(answer(home(np.array([1.0]), *others)))
    assert ratios["quiet"] < 1.25
    assert 4 < ratios["cloud"] < 20


def test_repeat_variance_uses_configurations_on_the_same_platform_first() -> None:
    rng = np.random.default_rng(2)
    others = [runs(rng, spread, "normal", 6) for spread in ("quiet", "cloud") for _ in range(25)]
    kinds = (Platform.POLARS,) * 25 + (Platform.SPARK,) * 25
    of = {
        kind: ratio(answer(home(np.array([1.0]), *others, kinds=(kind, *kinds))))
        for kind in (Platform.POLARS, Platform.SPARK, Platform.PANDAS)
    }
    assert of[Platform.POLARS] < 1.5
    assert of[Platform.POLARS] < of[Platform.PANDAS] < 1.5 * of[Platform.SPARK]
    assert of[Platform.SPARK] > 4


def test_runs_on_other_resources_predict_a_configuration_without_runs() -> None:
    rng = np.random.default_rng(4)
    others = [runs(rng, "quiet", "normal", 6) for _ in range(25)]
    found = home(np.array([1.0]), *others)
    change = ResourceChange(configuration=0, log_seconds=-0.5, log_cores=math.log(2))
    far = change._replace(log_cores=math.log(8))
    moved, moved_far = (found.predict(99, 0.0, NO_MIX, change=each) for each in (change, far))
    assert moved is not None
    assert moved_far is not None
    assert moved.log_seconds == pytest.approx(0.5, abs=0.01)
    assert moved.evidence.runs == 1
    assert moved.evidence.source is EvidenceSource.OTHER_RESOURCES
    assert ratio(answer(found)) < ratio(moved) < ratio(moved_far)
    assert 0 < moved_far.evidence.error_correlation < moved.evidence.error_correlation < 0.5
    assert found.predict(0, 0.0, NO_MIX, change=far) == answer(found)
    assert found.predict(99, 0.0, NO_MIX, change=change._replace(configuration=98)) is None


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("off", [1.0, 2.5])
def test_resource_change_interval_covers_only_at_the_assumed_error(spread: str, off: float) -> None:
    rng, covered = np.random.default_rng(5), []
    change = ResourceChange(0, 0.0, math.log(4))
    for _ in range(400):
        here, there = runs(rng, spread, "normal", 2)
        others = [runs(rng, spread, "normal", 4) for _ in range(10)]
        told = home(np.array([here]), *others).predict(99, 0.0, NO_MIX, change=change)
        assert told is not None
        error = there + off * math.sqrt(change.variance) * rng.standard_normal() - told.log_seconds
        covered.append(abs(error) <= told.distribution.quantile(0.95))
    # Errors at two and a half times the assumed size must lose the stated coverage.
    assert bool(np.mean(covered) >= 0.87) is (off == 1.0)
    assert np.mean(covered) <= 0.97


def test_variance_posterior_excludes_runs_of_the_configuration_itself() -> None:
    alone, beside = home(np.array([1.0, 1.3])), home(np.array([1.0, 1.3]), np.array([5.0]))
    assert alone.posterior(0) == beside.posterior(0) == home(np.array([1.0])).posterior(0)


def test_identical_repeats_leave_a_small_minimum_interval() -> None:
    told = answer(home(*[np.full(5, 2.0)] * 30))
    assert 1.005 < ratio(told) < 1.05


@dataclass(frozen=True)
class Judged:
    """Coverage and interval scores, for own intervals and for the pooled variance of others."""

    covered: float
    score: float
    pooled: float


AT_ONCE = 8
"""Number of new configurations in each data set with others."""


def judged(spread: str, noise: str, *, others: int, known: int, factor: float = 1.0) -> Judged:
    rng = np.random.default_rng([others, known])
    at_once, homes = (AT_ONCE, 60) if others else (1, 800)
    covered, own, pooled = [], [], []
    for _ in range(homes):
        beside = [runs(rng, spread, noise, 12) for _ in range(others)]
        new = [runs(rng, spread, noise, known + 1) for _ in range(at_once)]
        found = home(*[each[:known] for each in new], *beside)
        off = [each[known:] - each[:known].mean() for each in beside] or [np.zeros(1)]
        low, high = np.quantile(np.concatenate(off), [0.05, 0.95])
        for number, each in enumerate(new):
            told = answer(found, number)
            width = factor * told.distribution.quantile(0.95)
            ends = told.log_seconds - width, told.log_seconds + width
            covered.append(ends[0] <= each[-1] <= ends[1])
            own.append(interval_score(*ends, each[-1]))
            mean = float(each[:known].mean())
            pooled.append(interval_score(mean + low, mean + high, each[-1]))
    return Judged(float(np.mean(covered)), float(np.mean(own)), float(np.mean(pooled)))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize("spread", list(SPREADS))
@pytest.mark.parametrize("known", [1, 2, 4, 10])
def test_repeat_intervals_cover_90_percent_and_score_like_pooled_ones(
    spread: str, noise: str, known: int
) -> None:
    found = judged(spread, noise, others=20, known=known)
    print(found)
    assert 0.84 < found.covered < 0.96
    assert found.score < 1.12 * found.pooled


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [2 / 3, 3 / 2])
def test_coverage_check_fails_for_wrong_interval_widths(factor: float) -> None:
    found = judged("cloud", "normal", others=20, known=4, factor=factor)
    assert not 0.84 < found.covered < 0.96


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize("spread", list(SPREADS))
@pytest.mark.parametrize("known", [1, 2, 4, 10])
def test_repeat_intervals_of_a_single_job_cover_its_next_run(
    spread: str, noise: str, known: int
) -> None:
    assert judged(spread, noise, others=0, known=known).covered > 0.83


def test_repeat_intervals_of_nightly_campaign_are_covering_and_narrow() -> None:
    history = History.from_executions(executions_of(NIGHTLY))
    samples = encode(history.queries, {})
    names, kinds = samples.configurations(), np.zeros(len(history), np.int64)
    covered, ratios = [], []
    for row, name in enumerate(names.tolist()):
        rest = [each for each in range(len(history)) if each != row]
        others = Repeats.from_runs(names[rest], kinds[1:], history.log_seconds[rest])
        told = others.predict(name, 0.0, NO_MIX)
        if told is None:
            continue
        off = history.log_seconds[row] - told.log_seconds
        covered.append(told.distribution.quantile(0.05) <= off <= told.distribution.quantile(0.95))
        ratios.append(ratio(told))
    print(len(covered), np.mean(covered), np.median(ratios))
    assert 0.85 <= np.mean(covered) <= 1.0
    assert np.median(ratios) < 1.25
