import math
import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from fedperf_client.release.accountant import (
    MAX_EPSILON,
    PrivacyBudget,
    calibrate,
    epsilon,
    replace_one_epsilon,
    to_event,
)
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import ReportParameters, SizeClass, TrainingParameters
from tests.unit.client.release.periods import calendar

DELTA = 1e-5


def report(noise_multiplier: float) -> ReportParameters:
    return ReportParameters(noise_multiplier, residual_clip=1.5)


def update(noise_multiplier: float, *, q: float = 0.05, steps: int = 20) -> TrainingParameters:
    return TrainingParameters(noise_multiplier, q, steps, clip_norm=0.5, nominal_workloads=2000)


def exact_gaussian_epsilon(stddev: float, sensitivity: float, delta: float) -> float:
    """Return the exact epsilon of the Gaussian mechanism (Balle and Wang, 2018)."""
    ratio = sensitivity / stddev

    def gap(eps: float) -> float:
        first = norm.cdf(ratio / 2 - eps / ratio)
        second = math.exp(eps) * norm.cdf(-ratio / 2 - eps / ratio)
        return float(first - second - delta)

    return float(brentq(gap, 0, 200))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf, 2 * MAX_EPSILON])
def test_privacy_budget_with_invalid_epsilon_is_refused_in_one_line(bad: float) -> None:
    with pytest.raises(ConfigurationError, match=r"^epsilon must be above 0 .* got [^\n]*$"):
        PrivacyBudget(bad, DELTA)


@pytest.mark.parametrize("bad", [0.0, -1e-5, 1.0, math.nan, math.inf])
def test_privacy_budget_and_epsilon_with_invalid_delta_are_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="delta must be above 0 and below 1"):
        PrivacyBudget(1.0, bad)
    with pytest.raises(ConfigurationError, match="delta must be above 0 and below 1"):
        epsilon([to_event(report(10))], bad)


@pytest.mark.parametrize(("sigma", "count"), [(3.73, 1), (14.0, 13), (0.8, 2)])
def test_epsilon_of_reports_matches_exact_gaussian_curve_from_above(
    sigma: float, count: int
) -> None:
    events = [to_event(report(sigma))] * count
    exact = exact_gaussian_epsilon(sigma / math.sqrt(count), 1.0, DELTA)
    assert exact - 1e-6 <= epsilon(events, DELTA) <= exact + 1e-3 * max(1, exact)
    replaced = exact_gaussian_epsilon(sigma / math.sqrt(count), 2.0, DELTA)
    assert replaced - 1e-6 <= replace_one_epsilon(events, DELTA) <= replaced + 1e-3 * replaced


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_epsilon_of_update_steps_matches_exact_gaussian_curve(steps: int) -> None:
    event = to_event(update(10.0, q=1.0, steps=steps))  # every record is used: no subsampling
    exact = exact_gaussian_epsilon(10.0 / math.sqrt(steps), 1.0, DELTA)
    assert exact - 1e-6 <= epsilon([event], DELTA) <= exact + 1e-3 * max(1, exact)


def test_epsilon_of_no_events_is_zero() -> None:
    assert epsilon([], DELTA) == 0.0


def test_epsilon_is_independent_of_order_and_grows_with_each_event() -> None:
    a, b = to_event(report(8)), to_event(update(1.5))
    assert epsilon([a, b, a], DELTA) == epsilon([a, a, b], DELTA)
    assert epsilon([a], DELTA) < epsilon([a, a], DELTA) < epsilon([a, a, b], DELTA)


def test_replace_one_epsilon_exceeds_add_remove_epsilon() -> None:
    events = [to_event(update(2.0)), to_event(report(8))]
    assert replace_one_epsilon(events, DELTA) > 1.5 * epsilon(events, DELTA)


@pytest.mark.parametrize(
    ("target", "beside_noise"),
    [(0.1, 400), pytest.param(1.0, 40, marks=pytest.mark.slow), (1000.0, 0.4)],
)
def test_calibrate_finds_smallest_noise_multiplier_that_meets_budget(
    target: float, beside_noise: float
) -> None:
    budget = PrivacyBudget(target, DELTA)
    beside = [to_event(report(beside_noise))] * 3

    def events(noise_multiplier: float) -> list[object]:
        return [*beside, *[to_event(update(noise_multiplier))] * 4]

    noise_multiplier = calibrate(events, budget)
    assert epsilon(events(noise_multiplier), DELTA) <= target
    assert epsilon(events(noise_multiplier * 0.995), DELTA) > target


@pytest.mark.slow
def test_calibrate_with_budget_overspent_by_fixed_slots_is_refused() -> None:
    fixed = to_event(report(1.0))
    with pytest.raises(ConfigurationError, match="overspends the budget"):
        calibrate(lambda noise: [fixed, to_event(report(noise))], PrivacyBudget(1.0, DELTA))


SCHEDULES = {
    # noise multiplier, sampling probability, steps of each part; delta
    "few samples": ([(1.0, 0.01, 1000)], DELTA),
    "an epoch": ([(1.0, 0.064, 157)], DELTA),
    "many samples": ([(2.0, 0.128, 400)], DELTA),
    "half of all": ([(6.0, 0.512, 400)], 1e-4),
    "every workload": ([(20.0, 1.0, 300)], DELTA),
    "little noise": ([(0.5, 0.01, 1000)], DELTA),
    "long": ([(0.8, 0.0256, 4000)], 1e-6),
    "short": ([(0.6, 0.001, 10)], DELTA),
    "one quiet report": ([(200.0, 1.0, 1)], DELTA),
    "two kinds": ([(1.2, 0.05, 200), (2.0, 0.1, 300)], DELTA),
    "four kinds": ([(1.2, 0.05, 200), (2.0, 0.1, 300), (10.0, 1.0, 5), (40.0, 1.0, 20)], DELTA),
    "a year of reports": ([(13.5, 1.0, 13)], DELTA),
    "a year of updates": ([(1.8, 0.0625, 130)], DELTA),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEDULES)
def test_epsilon_is_within_0_03_of_opacus_prv_accountant(name: str) -> None:
    from opacus.accountants import PRVAccountant

    parts, delta = SCHEDULES[name]
    accountant = PRVAccountant()
    accountant.history = list(parts)
    expected = accountant.get_epsilon(delta)
    events = [to_event(update(noise, q=q, steps=steps)) for noise, q, steps in parts]
    found = epsilon(events, delta)
    print(f"{name}: PLD {found:.4f}, PRV {expected:.4f}")
    assert found == pytest.approx(expected, abs=0.03)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_planned_schedule_epsilon_is_within_0_03_of_opacus_prv_accountant() -> None:
    from opacus.accountants import PRVAccountant

    policy = Policy(size_class=SizeClass.LARGE, nominal_workloads=4000)
    planned = plan_schedule(policy, calendar(13, models=2))
    accountant = PRVAccountant()
    accountant.history = [
        (slot.parameters.noise_multiplier, 1.0, 1) for slot in planned.schedule.slots
    ]
    counted = Counter((noise, q) for noise, q, steps in accountant.history for _ in range(steps))
    accountant.history = [(noise, q, steps) for (noise, q), steps in counted.items()]
    assert len(accountant.history) == 2
    assert planned.epsilon == pytest.approx(accountant.get_epsilon(policy.delta), abs=0.03)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([8.0, 12.0, 40.0]), max_size=12), st.randoms())
def test_epsilon_of_any_part_of_a_schedule_is_at_most_that_of_the_whole(
    noises: list[float], order: random.Random
) -> None:
    """The ledger can therefore check the whole schedule against the budget once."""
    events = [to_event(report(noise)) for noise in noises]
    part = [event for event in events if order.random() < 0.5]
    order.shuffle(part)
    assert epsilon(part, DELTA) <= epsilon(events, DELTA)


def test_import_of_release_modules_loads_no_heavy_library() -> None:
    script = (
        "import sys, fedperf_client.release.gate, fedperf_client.release.schedule,"
        " fedperf_client.release.preview, fedperf_client.release.history,"
        " fedperf_client.release.noise\n"
        "print([m for m in ('torch', 'flwr', 'opendp', 'dp_accounting', 'scipy', 'sdv')"
        " if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"
