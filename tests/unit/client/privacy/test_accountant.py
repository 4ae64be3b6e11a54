import math
import subprocess
import sys

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedperf_client.privacy.accountant import (
    MAX_EPSILON,
    PrivacyBudget,
    calibrate,
    epsilon,
    event_of,
    replace_one_epsilon,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.release import ReportParameters, TrainingParameters

DELTA = 1e-5


def report(noise_multiplier: float) -> ReportParameters:
    return ReportParameters(noise_multiplier, residual_clip=1.5)


def update(noise_multiplier: float, *, q: float = 0.05, steps: int = 20) -> TrainingParameters:
    return TrainingParameters(noise_multiplier, q, steps, clip_norm=0.5, nominal_workloads=2000)


def exact_gaussian_epsilon(stddev: float, sensitivity: float, delta: float) -> float:
    """Balle and Wang 2018: the Gaussian mechanism's exact curve."""
    ratio = sensitivity / stddev

    def gap(eps: float) -> float:
        first = norm.cdf(ratio / 2 - eps / ratio)
        second = math.exp(eps) * norm.cdf(-ratio / 2 - eps / ratio)
        return float(first - second - delta)

    return float(brentq(gap, 0, 200))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf, 2 * MAX_EPSILON])
def test_a_budget_that_promises_nothing_is_refused_in_one_line(bad: float) -> None:
    with pytest.raises(ConfigurationError, match=r"^epsilon must be above 0 .* got [^\n]*$"):
        PrivacyBudget(bad, DELTA)


@pytest.mark.parametrize("bad", [0.0, -1e-5, 1.0, math.nan, math.inf])
def test_a_delta_that_promises_nothing_is_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="delta must be above 0 and below 1"):
        PrivacyBudget(1.0, bad)
    with pytest.raises(ConfigurationError, match="delta must be above 0 and below 1"):
        epsilon([event_of(report(10))], bad)


@pytest.mark.parametrize(("sigma", "count"), [(3.73, 1), (14.0, 13), (0.8, 2)])
def test_reports_cost_what_the_exact_gaussian_curve_says_and_never_less(
    sigma: float, count: int
) -> None:
    events = [event_of(report(sigma))] * count
    exact = exact_gaussian_epsilon(sigma / math.sqrt(count), 1.0, DELTA)
    assert exact - 1e-6 <= epsilon(events, DELTA) <= exact + 1e-3 * max(1, exact)
    replaced = exact_gaussian_epsilon(sigma / math.sqrt(count), 2.0, DELTA)
    assert replaced - 1e-6 <= replace_one_epsilon(events, DELTA) <= replaced + 1e-3 * replaced


def test_nothing_released_costs_nothing() -> None:
    assert epsilon([], DELTA) == 0.0


def test_order_does_not_matter_and_every_slot_adds() -> None:
    a, b = event_of(report(8)), event_of(update(1.5))
    assert epsilon([a, b, a], DELTA) == epsilon([a, a, b], DELTA)
    assert epsilon([a], DELTA) < epsilon([a, a], DELTA) < epsilon([a, a, b], DELTA)


def test_replacing_a_workload_costs_more_than_adding_one() -> None:
    events = [event_of(update(2.0)), event_of(report(8))]
    assert replace_one_epsilon(events, DELTA) > 1.5 * epsilon(events, DELTA)


@pytest.mark.parametrize(("target", "beside_noise"), [(0.1, 400), (1.0, 40), (1000.0, 0.4)])
def test_calibrated_noise_meets_the_budget_and_hardly_any_less_noise_does(
    target: float, beside_noise: float
) -> None:
    budget = PrivacyBudget(target, DELTA)
    beside = [event_of(report(beside_noise))] * 3

    def events(noise_multiplier: float) -> list[object]:
        return [*beside, *[event_of(update(noise_multiplier))] * 4]

    noise_multiplier = calibrate(events, budget)
    assert epsilon(events(noise_multiplier), DELTA) <= target
    assert epsilon(events(noise_multiplier * 0.995), DELTA) > target


def test_a_budget_overspent_by_fixed_slots_cannot_be_met() -> None:
    fixed = event_of(report(1.0))
    with pytest.raises(ConfigurationError, match="overspends the budget"):
        calibrate(lambda noise: [fixed, event_of(report(noise))], PrivacyBudget(1.0, DELTA))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_epsilon_agrees_with_the_accountant_of_opacus() -> None:
    from opacus.accountants import PRVAccountant

    parameters = [update(1.2, q=0.05, steps=200), update(2.0, q=0.1, steps=300)]
    accountant = PRVAccountant()
    accountant.history = [
        (each.noise_multiplier, each.sampling_probability, each.steps) for each in parameters
    ]
    expected = accountant.get_epsilon(DELTA)
    assert epsilon([event_of(each) for each in parameters], DELTA) == pytest.approx(
        expected, abs=0.03
    )


def test_importing_the_accountant_and_the_release_rooms_starts_no_engine() -> None:
    script = (
        "import sys, fedperf_client.release.gate, fedperf_client.release.schedule,"
        " fedperf_client.release.preview, fedperf_client.release.receipts,"
        " fedperf_client.release.noise\n"
        "print([m for m in ('torch', 'flwr', 'opendp', 'dp_accounting', 'scipy', 'sdv')"
        " if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"
