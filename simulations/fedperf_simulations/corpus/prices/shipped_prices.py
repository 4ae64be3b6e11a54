"""Fit the prices that ship with fedperf, and write them where the product reads them.

On the public part of the measured set, as the limited start of simulations, on the sessions of
SQL and on large inputs, of which no workload is anybody's. What organizations hold is unread; of
the judged sessions only plans are, so that no price knows a judged shape. Polars and pandas are
priced as DuckDB's kin: simulations need platforms that nothing has seen, and the start that ships
has learnt them. Made anew only when these measurements change; then the starts too.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedperf_shared.execution import Execution
from fedperf_shared.workflow.analytic_cost import PRICES_PATH
from fedperf_shared.workflow.topology import fingerprint
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.organizations import WorkloadPart, split
from fedperf_simulations.corpus.prices.price_fit import PricedPlans, prices_of
from fedperf_simulations.corpus.training_set import SESSION_FOLDERS, measured_plans
from fedperf_simulations.data.datasets import (
    JUDGED_SESSIONS,
    at_one_speed,
    is_measured,
    measured_executions,
)

MEASURED_PLATFORMS = frozenset({Platform.DUCKDB, Platform.SPARK})
"""Whose executions are looked at."""


@dataclass(frozen=True, slots=True)
class PriceReport:
    """Numbers of executions that prices were fitted on, by the platform's name."""

    executions: Mapping[str, int]


def fit_shipped_prices(path: Path = PRICES_PATH) -> PriceReport:
    """Fit and write the prices; the same for the same measurements.

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
    judged = measured_executions(JUDGED_SESSIONS) if is_measured(JUDGED_SESSIONS) else ()
    shapes = {fingerprint(each.plan.workflow) for each in judged}
    yield from split(measured_executions())[WorkloadPart.PUBLIC]
    for folder in SESSION_FOLDERS:
        if is_measured(folder):
            sessions = tuple(measured_executions(folder))
            told = {e.workload for e in sessions if fingerprint(e.plan.workflow) in shapes}
            yield from (each for each in sessions if each.workload not in told)
