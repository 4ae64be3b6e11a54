"""Prices that explain measured run times best, as far as these tell more than the priors.

For each platform by itself, on plans that run on it alone: the prices with the least sum of
smoothed absolute log errors (each workload counts once, however many executions it has) and of
squared distances of the log prices to `price_priors`. What is learned of
one engine's work for a row or byte moves what is expected of the others like it; starts are each
engine's own. All prices stay positive. The same measurements give the same prices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.workflow.analytic_cost import (
    PARALLEL,
    SERIAL,
    UNITS,
    Floats,
    Ints,
    Placements,
    Work,
    WorkflowColumns,
)
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.prices.price_priors import (
    KIN,
    PRIOR_SD,
    PRIORS,
    SPEEDUP_SD,
)

ERROR_SCALE = 0.3
"""Log errors below this count squared, above by their size."""

CostCoefficients = Mapping[str, float]
"""Seconds by unit, and `speedup`."""

_DIGITS = 4
_START, _FIRST = SERIAL.index("start"), SERIAL.index("first_query")


@dataclass(frozen=True, slots=True, eq=False)
class PricedPlans:
    """Plans on one platform as the fit reads them.

    Attributes:
        serial: units that do not divide, float64 [plans, len(SERIAL)].
        parallel: units that tasks share, of each operator, [operators of all plans, len(PARALLEL)].
        log_sharers: log of min(cores, tasks) of each of these operators.
        first: row of each plan's first operator.
        log_seconds: measured, times the machine's speed, [plans].
        weights: of the plans, summing to the number of workloads.
    """

    serial: Floats
    parallel: Floats
    log_sharers: Floats
    first: Ints
    log_seconds: Floats
    weights: Floats

    @classmethod
    def of(
        cls, plans: Sequence[MeasuredPlan], workloads: Sequence[str], platform: Platform
    ) -> "PricedPlans":
        """The form for the fit of `plans`, all on `platform` alone, with their workloads."""
        works = [_work(plan) for plan in plans]
        counts = Counter(workloads)
        serial = np.stack([each.units[:, : len(SERIAL)].sum(axis=0) for each in works])
        serial[:, _START] = 1.0
        serial[:, _FIRST] = [each.starts[0, len(Platform) + platform] for each in works]
        lengths = np.array([len(each.tasks) for each in works])
        return cls(
            serial,
            np.concatenate([each.units[:, len(SERIAL) :] for each in works]),
            np.concatenate([np.log(np.minimum(each.cores, each.tasks)) for each in works]),
            np.cumsum(lengths) - lengths,
            np.array([plan.log_seconds + np.log(plan.cluster.machine_speed) for plan in plans]),
            np.array([1.0 / counts[each] for each in workloads]),
        )


def prices_of(measured: Mapping[Platform, PricedPlans]) -> dict[str, CostCoefficients]:
    """The prices of all platforms by name, those of next of kin before their kin's."""
    found: dict[Platform, CostCoefficients] = {}
    for platform, prior in PRIORS.items():
        center = prior
        if platform in KIN:
            kin = KIN[platform]
            moved = {name: prior[name] * found[kin][name] / PRIORS[kin][name] for name in PARALLEL}
            center = {**prior, **moved}
        plans = measured.get(platform)
        found[platform] = center if plans is None else fitted_prices(plans, center)
    return {
        platform.name.lower(): {name: _rounded(prices[name]) for name in ("speedup", *UNITS)}
        for platform, prices in found.items()
    }


def fitted_prices(plans: PricedPlans, prior: CostCoefficients) -> dict[str, float]:
    """Seconds for each unit, and `speedup`, of the platform of `plans`.

    Raises:
        InvalidInputError: no prices were found that explain them best.
    """
    center = np.array([np.log(prior[name]) for name in UNITS])

    def loss(values: Floats) -> tuple[float, Floats]:
        return _loss(values, plans, center, prior["speedup"])

    start = np.append(center, prior["speedup"])
    bounds = [*[(None, None)] * len(UNITS), (0.0, 1.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    if not (found.success and np.isfinite(found.x).all()):
        raise InvalidInputError(f"prices of {len(plans.weights)} plans: {found.message}")
    seconds = np.exp(found.x[:-1])
    return {"speedup": float(found.x[-1]), **dict(zip(UNITS, seconds.tolist(), strict=True))}


def _loss(
    values: Floats, plans: PricedPlans, center: Floats, speedup: float
) -> tuple[float, Floats]:
    """What is to be least, and its gradient in the log prices and the power."""
    prices, power = np.exp(values[:-1]), values[-1]
    of_serial, of_parallel = prices[: len(SERIAL)], prices[len(SERIAL) :]
    share = np.exp(-power * plans.log_sharers)
    shared = np.add.reduceat(plans.parallel * share[:, None], plans.first, axis=0)
    seconds = plans.serial @ of_serial + shared @ of_parallel
    errors = np.log(seconds) - plans.log_seconds
    rooted = np.sqrt(1 + (errors / ERROR_SCALE) ** 2)
    slope = plans.weights * errors / rooted / ERROR_SCALE**2 / seconds
    by_power = np.add.reduceat(
        -plans.log_sharers * share * (plans.parallel @ of_parallel), plans.first
    )
    apart, of_power = (values[:-1] - center) / PRIOR_SD, (power - speedup) / SPEEDUP_SD
    total = plans.weights @ (rooted - 1)
    gradient = np.concatenate(
        [
            plans.serial.T @ slope * of_serial + apart[: len(SERIAL)] / PRIOR_SD,
            shared.T @ slope * of_parallel + apart[len(SERIAL) :] / PRIOR_SD,
            [by_power @ slope + of_power / SPEEDUP_SD],
        ]
    )
    return float(total + 0.5 * (apart @ apart + of_power**2)), gradient


def _work(plan: MeasuredPlan) -> Work:
    workflow = plan.plan.workflow
    order = topological_order(workflow, plan.plan.platforms)
    columns = WorkflowColumns.of((workflow, order))
    platforms = np.array([plan.plan.platforms], dtype=np.int64)[:, order]
    return Work.of(columns, Placements.of(columns, platforms), plan.cluster)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
