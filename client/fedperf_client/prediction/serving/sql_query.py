"""Queries given as SQL text: the rows of their operators, and their own runs.

An engine explains the text (`sources.duckdb.explain`), but its estimates of rows are off by up to a
thousand times. Rows are therefore taken from stored runs where there are any, in this order:

1. Runs of the same text on the same tables. The plan of such a run is predicted, from these runs.
2. Runs of the same text with other constants. The plan of the middle one is predicted. The interval
   is wider, by how much times differ between constants.
3. Operators with the same conditions on the same tables in any run, such as a scan or a join that
   queries share: the median of their rows. The engine's estimated selectivities continue from them.
4. The engine's estimates.

Every prediction says which of these it rests on. Queries of one shape on different tables share
nothing, because keys stand for tables (`sources.duckdb.query_keys`).

A table may have grown since. DuckDB scans vectors of 2,048 rows and may leave some out, so a scan
read a part of the present table if its rows are whole vectors, perhaps with the present last one.
Otherwise the table has changed, and the plan is predicted at the input size of the present tables.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Self

from fedperf_client.formatting.facts import Fact
from fedperf_client.home.store import ExecutionStore, Selection
from fedperf_client.prediction.ensemble.ensemble import LEVEL_STEP
from fedperf_client.prediction.serving.reconfiguration import ROWS, InputSize
from fedperf_client.prediction.serving.what_if import MAX_RUNS, PlanQuery
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    KnownJob,
)
from fedperf_shared.runtime.quantities import counted
from fedperf_shared.workflow.cardinality import UNSURE_KINDS
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.topology import fingerprint, topological_order
from fedperf_shared.workflow.vocabulary import MAX_OPERATORS, MAX_ROWS, OperatorKind, Platform

MAX_SHARING = 20  # newest runs that a selectivity is taken from
VECTOR_ROWS = 2048  # rows that DuckDB scans at a time

# Standard deviation of log seconds between constants of one text, before any were seen.
CONSTANTS_SD = 0.3
_TO_ENDS = 1.645  # standard deviations to either end of a normal 90 % interval

_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.DISTINCT})


@unique
class RowsFrom(StrEnum):
    """The source of the rows of a query."""

    SAME_QUERY = "same query"
    OTHER_CONSTANTS = "other constants"
    SHARED_OPERATORS = "shared operators"
    ESTIMATES = "estimates"
    DBT_RUNS = "dbt runs"


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query given as SQL text, with rows."""

    query: PlanQuery  # the plan to predict, and its runs
    rows_from: RowsFrom  # the source of its rows
    runs: int = 0  # runs of the same text, with these or other constants
    operators: int = 0  # operators whose rows are neither those of a table nor of an input
    measured: int = 0  # such operators whose rows are from runs
    growth: float = 1.0  # source rows of the present tables over those of the plan
    half_width: float = 0.0  # that other constants add to the 90 % interval, log seconds

    @classmethod
    def read(cls, store: ExecutionStore, workflow: Workflow, origin: ExecutionMetadata) -> Self:
        """Return the query of an explained text.

        Args:
            store: of executions.
            workflow: operators with the engine's estimates; sources have the rows of their tables.
            origin: keys of the query and of its operators.
        """
        same, runs = (
            store.newest(MAX_RUNS, Selection(statement=key, status=ExecutionStatus.OK))
            if key
            else ()
            for key in (origin.statement, origin.statement.partition("/")[0])
        )
        if same:
            usual = Counter(each.cluster for each in same).most_common(1)[0][0]
            own = next(each for each in same if each.cluster == usual)
            return cls._of_runs(RowsFrom.SAME_QUERY, own, same, workflow, origin)
        if runs:
            own, half_width = _middle(runs)
            query = cls._of_runs(RowsFrom.OTHER_CONSTANTS, own, runs, workflow, origin)
            return replace(query, half_width=half_width)
        return cls._of_operators(store, workflow, origin)

    @classmethod
    def of_dbt_model(cls, store: ExecutionStore, workload: str, statement: str) -> Self | None:
        """Return the query of a dbt model from its runs in dbt with this text; None without any."""
        template = statement.partition("/")[0] or None
        selection = Selection(workload, statement=template, status=ExecutionStatus.OK)
        runs = [each for each in store.newest(MAX_RUNS, selection) if each.workload == workload]
        if not runs:
            return None
        return cls(_query_of(runs[0], runs), RowsFrom.DBT_RUNS, len(runs))

    @classmethod
    def _of_runs(
        cls,
        rows_from: RowsFrom,
        own: Execution,
        runs: Sequence[Execution],
        workflow: Workflow,
        origin: ExecutionMetadata,
    ) -> Self:
        growth = _growth(workflow, origin, own)
        return cls(_query_of(own, runs), rows_from, len(runs), growth=growth)

    @classmethod
    def _of_operators(
        cls, store: ExecutionStore, workflow: Workflow, origin: ExecutionMetadata
    ) -> Self:
        estimated, keys = workflow.operators, origin.operator_keys or ("",) * MAX_OPERATORS
        operators, unsure, measured = list(estimated), 0, 0
        for place in topological_order(workflow):
            operator = estimated[place]
            if not operator.inputs:
                continue
            before = max(estimated[each].output_rows for each in operator.inputs)
            read = max(operators[each].output_rows for each in operator.inputs)
            measured_rows = _measured_rows(store, keys[place], workflow, origin)
            unsure += operator.kind in UNSURE_KINDS
            measured += operator.kind in UNSURE_KINDS and measured_rows is not None
            rows = operator.output_rows if before == 0 else operator.output_rows / before * read
            if operator.kind in _GROUPS:  # as many groups in a larger input
                rows = min(operator.output_rows, read)
            rows = min(rows if measured_rows is None else measured_rows, MAX_ROWS)
            operators[place] = replace(operator, output_rows=rows)
        filled = replace(workflow, operators=tuple(operators), rows_are_estimates=measured < unsure)
        plan = Plan.on_one_platform(filled, Platform.DUCKDB)
        query = PlanQuery(plan, lambda usual: usual, None, None, (), is_as_it_ran=False)
        rows_from = RowsFrom.SHARED_OPERATORS if measured else RowsFrom.ESTIMATES
        return cls(query, rows_from, operators=unsure, measured=measured)

    def sizes(self, inputs: Sequence[InputSize]) -> list[InputSize]:
        """Return the input sizes to predict at; multiples are those of the present tables."""
        if not inputs and abs(math.log(self.growth)) > LEVEL_STEP:
            return [InputSize(ROWS, self.growth, is_factor=True)]
        return [replace(e, value=e.value * self.growth) if e.is_factor else e for e in inputs]

    @property
    def sentence(self) -> str:
        """Say what the rows are taken from."""
        runs, some = counted(self.runs, "run"), f"{self.measured} of {self.operators} operators"
        sentence = {
            RowsFrom.SAME_QUERY: f"rows are from {runs} of this query on these tables",
            RowsFrom.OTHER_CONSTANTS: (
                f"rows are from {runs} of this text with other constants on these tables; the "
                "interval is wider for it"
            ),
            RowsFrom.SHARED_OPERATORS: (
                f"rows of {some} are from runs that share a scan or a join, of others estimates"
            ),
            RowsFrom.ESTIMATES: "rows are DuckDB's estimates: no run shares a scan or a join",
            RowsFrom.DBT_RUNS: f"the time is from {runs} of this model in dbt",
        }[self.rows_from]
        if abs(math.log(self.growth)) > LEVEL_STEP:
            sentence += f"; the tables have {self.growth:.3g} times the rows of that run"
        return sentence

    @property
    def facts(self) -> list[Fact]:
        """Return what the rows are taken from, as a part of a row."""
        return [
            Fact("rows_from", self.rows_from.value, "rows from"),
            Fact("rows_from_runs", self.runs),
            Fact("unsure_operators", self.operators),
            Fact("measured_operators", self.measured),
            Fact("table_growth", self.growth),
        ]


def _query_of(own: Execution, runs: Sequence[Execution]) -> PlanQuery:
    """Return the query of a stored run, with those of `runs` that have its plan's shape."""
    shape = fingerprint(own.plan.workflow)
    alike = [each for each in runs if fingerprint(each.plan.workflow) == shape]

    def cluster_or(usual: ClusterConfig) -> ClusterConfig:
        del usual
        return own.cluster

    return PlanQuery(own.plan, cluster_or, KnownJob.of(own), own, alike, is_as_it_ran=True)


def _middle(runs: Sequence[Execution]) -> tuple[Execution, float]:
    """Return the newest run with the middle constants, and the half width between constants."""
    by_constants: dict[str, list[Execution]] = {}
    for each in runs:
        by_constants.setdefault(each.origin.statement, []).append(each)
    levels = {
        key: statistics.fmean(math.log(each.runtime_seconds) for each in some)
        for key, some in by_constants.items()
    }
    middle = statistics.median_low(levels.values())
    own = next(each for each in runs if levels[each.origin.statement] == middle)
    mean, count = statistics.fmean(levels.values()), len(levels)
    squares = sum((each - mean) ** 2 for each in levels.values())
    variance = (CONSTANTS_SD**2 + squares) / count
    return own, _TO_ENDS * math.sqrt(variance * (1 + 1 / count))


def _growth(workflow: Workflow, origin: ExecutionMetadata, own: Execution) -> float:
    """Return the rows of the present tables over those that a run read of them; 1 if unknown."""
    read = _sources(own.plan.workflow.operators, own.origin.operator_keys)
    present = _sources(workflow.operators, origin.operator_keys)
    before = now = 0.0
    for key in read.keys() & present.keys():
        rows = present[key]
        is_part = read[key] <= rows and read[key] % VECTOR_ROWS in (0, rows % VECTOR_ROWS)
        before += rows if is_part else read[key]
        now += rows
    return now / before if before > 0 and now > 0 else 1.0


def _sources(operators: Sequence[Operator], keys: Sequence[str]) -> dict[str, float]:
    """Return the most rows of each table by its key; files and other sources are left out."""
    rows: dict[str, float] = {}
    for operator, key in zip(operators, keys, strict=False):
        if key and operator.kind is OperatorKind.TABLE_SOURCE and not operator.inputs:
            rows[key] = max(rows.get(key, 0.0), operator.output_rows)
    return rows


def _measured_rows(
    store: ExecutionStore, key: str, workflow: Workflow, origin: ExecutionMetadata
) -> float | None:
    """Return the median rows of the operators of that key in runs; None if there are none."""
    if not key:
        return None
    values = list[float]()
    selection = Selection(operator_keys=key, status=ExecutionStatus.OK)
    for run in store.newest(MAX_SHARING, selection):
        operator = run.plan.workflow.operators[run.origin.operator_keys.index(key)]
        grows = operator.kind not in _GROUPS
        growth = _growth(workflow, origin, run) if grows else 1.0
        values.append(operator.output_rows * growth)
    return statistics.median(values) if values else None
