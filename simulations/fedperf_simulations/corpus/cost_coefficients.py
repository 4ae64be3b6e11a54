"""Fit the prices that explain measured run times best, with priors.

For each platform by itself, on plans that run on it alone: the prices with the least sum of
smoothed absolute log errors (each workload counts once, however many executions it has) and of
squared distances of the log prices to `price_priors`. What is learned of one engine's work for a
row or byte moves what is expected of the others like it; startup prices are each engine's own. All
prices stay positive. The same measurements give the same prices.

Prior prices of a unit of work, before anything was measured, in seconds.

Those of Spark come from a first set of own runs on a machine of two cores (`local[1]` to
`local-cluster`). Those of the others are orders of magnitude of in-memory engines that work through
vectors: some nanoseconds for a row and step, about a gigabyte a second from a file of columns
(Kersten et al., VLDB 2018, "Everything you always wanted to know about compiled and vectorized
queries"). Measured runs move a price as far as they carry more information than this.

Fit the prices that ship with fedperf, and write them where the product reads them.

Prices are fitted on the public part of the measured set, like the limited model, on the sessions of
SQL and on large inputs, of which no workload is anybody's. What organizations hold is unread; of
the judged sessions only plans are, so that no price depends on a judged shape. Polars and pandas
are priced like DuckDB: simulations need unseen platforms, and the pretrained model was trained on
them. Prices are fitted again only when these measurements change. Then the pretrained models are
trained again too.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy.optimize import minimize

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, MeasuredPlan
from fedperf_shared.workflow.analytic_cost import (
    KINDS,
    PARALLEL,
    PRICES_PATH,
    SERIAL,
    UNITS,
    Floats,
    Ints,
    Placements,
    Work,
    WorkflowColumns,
)
from fedperf_shared.workflow.topology import fingerprint, topological_order
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.training_set import SESSION_FOLDERS, measured_plans
from fedperf_simulations.data.datasets import (
    HELD_OUT_SESSIONS,
    at_one_speed,
    is_measured,
    measured_executions,
)

PRIOR_SD = 1.0
"""Standard deviation of a log price: a factor of e either way."""

SPEEDUP_SD = 0.15
"""Prior standard deviation of the exponent of cores."""

_ROW = {
    OperatorKind.FILE_SOURCE: 5e-9,
    OperatorKind.TABLE_SOURCE: 2e-9,
    OperatorKind.MAP: 3e-9,
    OperatorKind.FILTER: 3e-9,
    OperatorKind.FLATMAP: 2e-8,
    OperatorKind.AGGREGATE: 1.5e-8,
    OperatorKind.GLOBAL_AGGREGATE: 3e-9,
    OperatorKind.DISTINCT: 2e-8,
    OperatorKind.SORT: 4e-9,
    OperatorKind.TOPK: 3e-9,
    OperatorKind.JOIN: 2e-8,
    OperatorKind.CROSS: 3e-9,
    OperatorKind.UNION: 2e-9,
    OperatorKind.SAMPLE: 2e-9,
    OperatorKind.GRAPH_ITERATE: 2e-8,
    OperatorKind.ML_TRAIN: 1e-7,
    OperatorKind.ML_PREDICT: 5e-8,
    OperatorKind.SINK: 5e-9,
    OperatorKind.EXCHANGE: 1e-8,
    OperatorKind.WINDOW: 6e-9,
    OperatorKind.COMMAND: 1e-9,
    OperatorKind.OTHER: 1e-8,
}
_OUT_ROW = {OperatorKind.AGGREGATE: 6e-8, OperatorKind.DISTINCT: 6e-8, OperatorKind.JOIN: 1e-8}
_LEAST_OUT_ROW = 1e-9

_VECTORS: Mapping[str, float] = MappingProxyType(
    {
        "speedup": 0.8,
        "start": 1e-3,
        "first_query": 1e-5,
        "switch": 1e-3,
        "switch_byte": 1e-9,
        "task_dispatch": 1e-6,
        "python": 1e-2,
        "cold_operator": 1e-6,
        "cold_python": 1e-6,
        "task": 1e-5,
        "cold_task": 1e-7,
        "scan_byte": 5e-10,
        "text_byte": 5e-9,
        "exchange_byte": 1e-9,
        "sink_byte": 1e-9,
        "work_byte": 1e-10,
        "python_row": 1e-6,
        "spilled_byte": 2e-9,
        **{f"one_{kind.name.lower()}": 3e-5 for kind in KINDS},
        **{f"row_{kind.name.lower()}": _ROW[kind] for kind in KINDS},
        **{f"out_row_{kind.name.lower()}": _OUT_ROW.get(kind, _LEAST_OUT_ROW) for kind in KINDS},
    }
)
_SPARK: Mapping[str, float] = MappingProxyType(
    {
        **_VECTORS,
        "speedup": 0.71,
        "start": 0.05,
        "first_query": 0.7,
        "task_dispatch": 1.2e-3,
        "python": 0.5,
        "cold_operator": 0.15,
        "cold_python": 0.7,
        "task": 5e-3,
        "cold_task": 1e-2,
        "scan_byte": 2e-9,
        "text_byte": 1.4e-8,
        "exchange_byte": 5e-9,
        "sink_byte": 5e-9,
        "spilled_byte": 1e-8,
        **{f"one_{kind.name.lower()}": 3e-3 for kind in KINDS},
        "one_exchange": 0.015,
        "one_sink": 0.2,
        "row_file_source": 3.6e-8,
        "row_table_source": 2e-8,
        "row_map": 1.1e-8,
        "row_filter": 1e-8,
        "row_aggregate": 1.7e-8,
        "out_row_aggregate": 5e-7,
        "row_join": 6.5e-8,
        "row_exchange": 1.7e-7,
        "row_sort": 4.4e-8,
        "row_window": 2e-8,
        "row_sink": 5e-7,
    }
)
_POLARS: Mapping[str, float] = MappingProxyType({**_VECTORS, "start": 2e-3})
_PANDAS: Mapping[str, float] = MappingProxyType(
    {
        **{
            name: price * (4.0 if name.startswith(("row_", "out_row_")) else 1.0)
            for name, price in _VECTORS.items()
        },
        **{f"one_{kind.name.lower()}": 3e-4 for kind in KINDS},
        "speedup": 0.02,
    }
)
"""Each operator is a call of some tenths of a millisecond and makes all of its result."""

PRIORS: Mapping[Platform, Mapping[str, float]] = MappingProxyType(
    {
        Platform.DUCKDB: _VECTORS,
        Platform.POLARS: _POLARS,
        Platform.PANDAS: _PANDAS,
        Platform.SKLEARN: _PANDAS,
        Platform.SPARK: _SPARK,
        Platform.FLINK: _SPARK,
        Platform.OTHER: _VECTORS,
        Platform.UNASSIGNED: _VECTORS,
    }
)
"""Seconds for each unit of `UNITS`, and the power `speedup`, by platform. Kin stand first."""

KIN: Mapping[Platform, Platform] = MappingProxyType(
    {
        Platform.POLARS: Platform.DUCKDB,
        Platform.PANDAS: Platform.DUCKDB,
        Platform.SKLEARN: Platform.DUCKDB,
        Platform.FLINK: Platform.SPARK,
        Platform.OTHER: Platform.DUCKDB,
        Platform.UNASSIGNED: Platform.DUCKDB,
    }
)
"""The engine that another is most like: its measured prices move what is expected."""


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
        """Return the form for the fit of `plans`, all on `platform` alone, with their workloads."""
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
    """Return the prices of all platforms by name, those of next of kin before their kin's."""
    coefficients: dict[Platform, CostCoefficients] = {}
    for platform, prior in PRIORS.items():
        center = prior
        if platform in KIN:
            kin = KIN[platform]
            scaled = {
                name: prior[name] * coefficients[kin][name] / PRIORS[kin][name] for name in PARALLEL
            }
            center = {**prior, **scaled}
        plans = measured.get(platform)
        coefficients[platform] = center if plans is None else fitted_prices(plans, center)
    return {
        platform.name.lower(): {name: _rounded(prices[name]) for name in ("speedup", *UNITS)}
        for platform, prices in coefficients.items()
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
    result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    if not (result.success and np.isfinite(result.x).all()):
        raise InvalidInputError(f"prices of {len(plans.weights)} plans: {result.message}")
    seconds = np.exp(result.x[:-1])
    return {"speedup": float(result.x[-1]), **dict(zip(UNITS, seconds.tolist(), strict=True))}


def _loss(
    values: Floats, plans: PricedPlans, center: Floats, speedup: float
) -> tuple[float, Floats]:
    """Return what is to be least, and its gradient in the log prices and the power."""
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


MEASURED_PLATFORMS = frozenset({Platform.DUCKDB, Platform.SPARK})
"""Whose executions are looked at."""


@dataclass(frozen=True, slots=True)
class PriceReport:
    """Numbers of executions that prices were fitted on, by the platform's name."""

    executions: Mapping[str, int]


def fit_shipped_prices(path: Path = PRICES_PATH) -> PriceReport:
    """Fit and write the prices. The same measurements give the same prices.

    Raises:
        MissingDataError: nothing was measured.
        InvalidInputError: a row of what was measured cannot be read.
    """
    by_platform: dict[Platform, list[Execution]] = defaultdict(list)
    for execution in at_one_speed(_priced()):
        platform, *others = set(execution.plan.platforms)
        if execution.is_ok and not others and platform in MEASURED_PLATFORMS:
            by_platform[platform].append(execution)
    measured = {
        platform: PricedPlans.of(
            measured_plans(executions), [each.workload for each in executions], platform
        )
        for platform in Platform
        if (executions := by_platform.get(platform))
    }
    path.write_text(json.dumps(prices_of(measured), indent=1) + "\n", encoding="utf-8")
    return PriceReport(
        {each.name.lower(): len(plans.log_seconds) for each, plans in measured.items()}
    )


def _priced() -> Iterator[Execution]:
    held_out = measured_executions(HELD_OUT_SESSIONS) if is_measured(HELD_OUT_SESSIONS) else ()
    shapes = {fingerprint(each.plan.workflow) for each in held_out}
    yield from split(measured_executions())[WorkloadPart.PUBLIC]
    for folder in SESSION_FOLDERS:
        if is_measured(folder):
            sessions = tuple(measured_executions(folder))
            held_out_workloads = {
                e.workload for e in sessions if fingerprint(e.plan.workflow) in shapes
            }
            yield from (each for each in sessions if each.workload not in held_out_workloads)
