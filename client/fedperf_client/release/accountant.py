"""The privacy cost of releases, by privacy loss distributions over the slots of a schedule.

A slot is described as a `DpEvent` of dp_accounting and accounted by its PLD accountant, whose
estimates are pessimistic. Adjacency is add or remove one workload. The figure for replacing one
workload is only printed next to it.

Refused: budgets and deltas that are 0, negative, NaN, infinite or missing. They are never read as
"no noise". dp_accounting is imported on first use, torch never.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases import kinds
from fedperf_shared.releases.release import Parameters, Slot

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Discretization of privacy losses up to epsilon 1; beyond, it grows with epsilon.
FINEST_INTERVAL = 1e-4

CALIBRATION_TOLERANCE = 1e-4  # relative; the calibrated noise is rounded up, never down
MAX_EPSILON = 1e5  # above this a budget promises nothing and its losses cannot be computed
# The default lifetime budget is this many times a period's epsilon, at the same delta.
PERIODS_OF_A_LIFETIME = 10

_WIDEST_INTERVAL = 10.0
_ROUGH_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class PrivacyBudget:
    """The (epsilon, delta) that an organization promises its workloads for a period."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (_is_number(self.epsilon) and 0 < self.epsilon <= MAX_EPSILON):
            raise ConfigurationError(
                f"epsilon must be above 0 and at most {MAX_EPSILON:g}, got {self.epsilon!r}"
            )
        _require_delta(self.delta)

    @property
    def default_lifetime(self) -> Self:
        """Return the budget of all periods together where none is declared."""
        epsilon = min(PERIODS_OF_A_LIFETIME * self.epsilon, MAX_EPSILON)
        return replace(self, epsilon=epsilon)


def to_event(parameters: Parameters) -> "DpEvent":
    """Return the privacy event of one slot, for add or remove one workload.

    A report of either kind, or a linearized update, is one Gaussian of sensitivity 1. An update by
    DP-SGD, in schedules of older versions, composes its Poisson-sampled Gaussian steps.
    """
    return EVENTS[kinds.kind_of(parameters)](parameters)


def to_events(slots: Iterable[Slot]) -> list["DpEvent"]:
    """Return one event per slot."""
    return [to_event(slot.parameters) for slot in slots]


def epsilon(events: Iterable["DpEvent"], delta: float) -> float:
    """Return epsilon of all `events` together at `delta`, for add or remove one workload.

    Order does not matter; 0 for no events.

    Raises:
        ConfigurationError: delta is not in (0, 1).
    """
    _require_delta(delta)
    return _cached_epsilon(frozenset(Counter(events).items()), delta, "ADD_OR_REMOVE_ONE")


def replace_one_epsilon(events: Iterable["DpEvent"], delta: float) -> float:
    """Return epsilon of all `events` at `delta` when one workload is replaced by another.

    The pair of distributions is dp_accounting's for replace-one. For reports it is the Gaussian
    shifted by 2 sensitivities, which is exact; for Poisson-sampled steps it is the mixtures that
    shift to opposite sides. The figure is about twice `epsilon`.
    """
    _require_delta(delta)
    return _cached_epsilon(frozenset(Counter(events).items()), delta, "REPLACE_ONE")


def calibrate(make_events: Callable[[float], Iterable["DpEvent"]], budget: PrivacyBudget) -> float:
    """Return the smallest noise multiplier, within 0.01 % and rounded up, that meets `budget`.

    Args:
        make_events: the events of the whole plan for a noise multiplier; more noise, less epsilon.
        budget: what all events together may cost.

    Raises:
        ConfigurationError: no noise multiplier meets the budget, as fixed events overspend it.
    """
    from dp_accounting import mechanism_calibration as calibration
    from dp_accounting.pld import PLDAccountant

    def gap(noise_multiplier: float) -> float:
        return epsilon(make_events(noise_multiplier), budget.delta) - budget.epsilon

    low, high = _bracket(gap, budget)
    tolerance = CALIBRATION_TOLERANCE * low
    interval = _interval(budget.epsilon)
    calibrated = calibration.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=interval),
        lambda noise_multiplier: _composed(make_events(noise_multiplier)),
        budget.epsilon,
        budget.delta,
        calibration.ExplicitBracketInterval(low, high),
        tol=tolerance,
    )
    noise_multiplier = float(calibrated)
    while not gap(noise_multiplier) <= 0:
        noise_multiplier += tolerance
    return noise_multiplier


def _gaussian(parameters: Parameters) -> "DpEvent":
    import dp_accounting

    return dp_accounting.GaussianDpEvent(parameters.noise_multiplier)


def _sampled_gaussians(parameters: Parameters) -> "DpEvent":
    import dp_accounting

    training = kinds.MODEL_UPDATE.as_parameters(parameters)
    step = dp_accounting.PoissonSampledDpEvent(training.sampling_probability, _gaussian(training))
    return dp_accounting.SelfComposedDpEvent(step, training.steps)


EVENTS: Mapping[kinds.AnyKind, Callable[[Parameters], "DpEvent"]] = {
    kinds.RESIDUAL_REPORT: _gaussian,
    kinds.DIRECTED_REPORT: _gaussian,
    kinds.MODEL_UPDATE: _sampled_gaussians,
    kinds.TANGENT_UPDATE: _gaussian,
}


def _bracket(gap: Callable[[float], float], budget: PrivacyBudget) -> tuple[float, float]:
    """Return two noise multipliers, a factor 2 apart: too little and enough noise."""
    high = math.sqrt(2 * math.log(1.25 / budget.delta)) / min(budget.epsilon, 50.0)
    for _ in range(30):
        if gap(high) <= 0:
            break
        high *= 2
    else:
        raise ConfigurationError(
            f"no noise meets epsilon {budget.epsilon:g} at delta {budget.delta:g}: "
            "the other planned releases overspend the budget"
        )
    while gap(high / 2) <= 0:
        high /= 2
    return high / 2, high


@lru_cache(maxsize=1024)
def _cached_epsilon(counts: frozenset[tuple["DpEvent", int]], delta: float, relation: str) -> float:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    if not counts:
        return 0.0
    rough = RdpAccountant(_ROUGH_ORDERS)  # its figure only chooses the discretization
    for event, count in counts:
        rough.compose(event, count)
    accountant = PLDAccountant(
        NeighboringRelation[relation],
        value_discretization_interval=_interval(float(rough.get_epsilon(delta))),
    )
    for event, count in sorted(counts, key=repr):
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _interval(rough_epsilon: float) -> float:
    """Return the discretization: pessimistic at any width, it keeps arrays at some 10^5 values."""
    return min(FINEST_INTERVAL * max(1.0, rough_epsilon), _WIDEST_INTERVAL)


def _composed(events: Iterable["DpEvent"]) -> "DpEvent":
    import dp_accounting

    return dp_accounting.ComposedDpEvent(
        [dp_accounting.SelfComposedDpEvent(event, n) for event, n in Counter(events).items()]
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_delta(delta: float) -> None:
    if not (_is_number(delta) and 0 < delta < 1):
        raise ConfigurationError(f"delta must be above 0 and below 1, got {delta!r}")
