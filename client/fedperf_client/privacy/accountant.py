"""The privacy cost of releases: privacy loss distributions over the slots of a schedule.

A slot is described as a `DpEvent` of dp_accounting and accounted by its PLD accountant, whose
estimates are pessimistic. Adjacency is add or remove one workload; the figure for replace-one is
there to be printed beside it.

Refused: budgets and deltas that are 0, negative, NaN, infinite or missing. They are never read as
"no noise". dp_accounting is imported on first use, torch never.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases import kinds
from fedperf_shared.releases.release import Parameters, Slot

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation

FINEST_INTERVAL = 1e-4
"""Discretization of privacy losses up to epsilon 1; beyond, it grows with epsilon."""

CALIBRATION_TOLERANCE = 1e-4
"""Relative; the calibrated noise is rounded up, never down."""

MAX_EPSILON = 1e5
"""Above this a budget promises nothing and its losses cannot be computed."""

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


def event_of(parameters: Parameters) -> "DpEvent":
    """The privacy event of one slot with these parameters, for add or remove one workload.

    A report of either kind, or a step at a tangent, is one Gaussian of sensitivity 1. An
    update by DP-SGD, of a schedule of before, composes its Poisson-sampled Gaussian steps.
    """
    return EVENTS[kinds.kind_of(parameters)](parameters)


def events_of(slots: Iterable[Slot]) -> list["DpEvent"]:
    """One event per slot."""
    return [event_of(slot.parameters) for slot in slots]


def epsilon(events: Iterable["DpEvent"], delta: float) -> float:
    """Epsilon of all `events` together at `delta`, for add or remove one workload.

    Order does not matter; 0 for no events.

    Raises:
        ConfigurationError: delta is not in (0, 1).
    """
    from dp_accounting import NeighboringRelation

    return _epsilon(events, delta, NeighboringRelation.ADD_OR_REMOVE_ONE)


def replace_one_epsilon(events: Iterable["DpEvent"], delta: float) -> float:
    """Epsilon when one workload is replaced by another, of all `events` at `delta`.

    dp_accounting's replace-one pair: the Gaussian shifted by 2 sensitivities, which is exact
    for reports; for Poisson-sampled steps the mixtures that shift to opposite sides. It is
    larger than `epsilon`, about twice.
    """
    from dp_accounting import NeighboringRelation

    return _epsilon(events, delta, NeighboringRelation.REPLACE_ONE)


def calibrate(make_events: Callable[[float], Iterable["DpEvent"]], budget: PrivacyBudget) -> float:
    """The smallest noise multiplier, within 0.01 % and rounded up, that meets `budget`.

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
    found = calibration.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=interval),
        lambda noise_multiplier: _composed(make_events(noise_multiplier)),
        budget.epsilon,
        budget.delta,
        calibration.ExplicitBracketInterval(low, high),
        tol=tolerance,
    )
    noise_multiplier = float(found)
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
    """Two noise multipliers, a factor 2 apart, too little and enough."""
    high = math.sqrt(2 * math.log(1.25 / budget.delta)) / min(budget.epsilon, 50.0)
    for _ in range(30):
        if gap(high) <= 0:
            break
        high *= 2
    else:
        raise ConfigurationError(
            f"no noise meets epsilon {budget.epsilon:g} at delta {budget.delta:g}: "
            "what is planned beside it overspends the budget"
        )
    while gap(high / 2) <= 0:
        high /= 2
    return high / 2, high


def _epsilon(events: Iterable["DpEvent"], delta: float, relation: "NeighboringRelation") -> float:
    _require_delta(delta)
    counts = Counter(events)
    return _cached_epsilon(frozenset(counts.items()), delta, relation)


@lru_cache(maxsize=1024)
def _cached_epsilon(
    counts: frozenset[tuple["DpEvent", int]], delta: float, relation: "NeighboringRelation"
) -> float:
    from dp_accounting.pld import PLDAccountant

    if not counts:
        return 0.0
    interval = _interval(_rough_epsilon(counts, delta))
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    for event, count in sorted(counts, key=repr):
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _rough_epsilon(counts: frozenset[tuple["DpEvent", int]], delta: float) -> float:
    """The add-or-remove figure by Renyi DP, only to choose the discretization."""
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_ROUGH_ORDERS)
    for event, count in counts:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _interval(rough_epsilon: float) -> float:
    """Pessimistic at any width; this one keeps the arrays at some 10^5 values."""
    return min(FINEST_INTERVAL * max(1.0, rough_epsilon), _WIDEST_INTERVAL)


def _composed(events: Iterable["DpEvent"]) -> "DpEvent":
    import dp_accounting

    return dp_accounting.ComposedDpEvent(
        [dp_accounting.SelfComposedDpEvent(event, n) for event, n in Counter(events).items()]
    )


def _is_number(value: object) -> bool:
    """Whether it is one: a missing budget is refused like a wrong one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_delta(delta: float) -> None:
    if not (_is_number(delta) and 0 < delta < 1):
        raise ConfigurationError(f"delta must be above 0 and below 1, got {delta!r}")
