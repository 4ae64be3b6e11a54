"""The analytic cost model predicts a plan's run time from counted work, without training.

The cost of a plan is its counted work times a cost coefficient per unit. Classic query optimizers
and T3 ("time per tuple", Rieger and Neumann, SIGMOD 2025) have models of this form:

    seconds = (start-up and other work that does not divide
               + sum over operators of their work / min(cores, tasks) ** speedup) / machine speed

Units are rows and bytes in and out of an operator, tasks, row groups, sorted rows times their
logarithm, bytes beyond the memory. So twice the rows take about twice as long, and more cores help
up to the number of tasks. The first queries of a session find a cold engine and pay a share that
falls with the number of queries before.

The coefficients are constants of the code (`cost_coefficients.json`, seconds per unit, by
platform). They are fitted on runs that the project measured (`fedperf-sim fit-coefficients`).
Coefficients that these runs do not determine are published or plausible figures. A prediction
depends on its plan only. Every valid plan has one.

The model and the features read a workflow as arrays. `WorkflowColumns` has one row per operator in
a topological order and holds what does not depend on platforms. `Placements` holds the platforms of
many plans of one workflow. Edges name rows, not positions in the workflow.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.topology import depths, heights
from fedperf_shared.workflow.vocabulary import (
    MAX_ROWS,
    MAX_RUNTIME_SECONDS,
    MIN_RUNTIME_SECONDS,
    PARSES_TEXT,
    RESERVED_KINDS,
    RUNS_PYTHON,
    OperatorKind,
    Platform,
)

PRICES_PATH = Path(__file__).with_name("cost_coefficients.json")

KINDS = tuple(kind for kind in OperatorKind if kind not in RESERVED_KINDS)

# Units of work that more cores do not divide: start-up, and work of one driver.
SERIAL = (
    "start",
    "first_query",
    "switch",
    "switch_byte",
    "task_dispatch",
    *(f"one_{kind.name.lower()}" for kind in KINDS),
    "python",
    "cold_operator",
    "cold_python",
)

# Units of work that tasks share.
PARALLEL = (
    "task",
    "cold_task",
    *(f"row_{kind.name.lower()}" for kind in KINDS),
    *(f"out_row_{kind.name.lower()}" for kind in KINDS),
    "scan_byte",
    "text_byte",
    "exchange_byte",
    "sink_byte",
    "work_byte",
    "python_row",
    "spilled_byte",
)

UNITS = (*SERIAL, *PARALLEL)

TASK_ROWS = 122_880.0  # rows of a task if the plan names no partitions: a row group
SPILLS_FROM = 0.3  # share of the memory above which the input of an operator spills to disk
WARM_POWER = 1.1  # the share of a cold engine's cost is (1 + queries before) ** -WARM_POWER
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowColumns:
    """The columns of a workflow as arrays, one row per operator in a topological order.

    Several workflows form one graph that is not connected.
    """

    edges: Ints
    kind: Ints
    operator_class: Ints
    complexity: Ints
    depth: Ints
    height: Ints
    rows: Floats
    row_bytes: Floats
    code_steps: Floats
    iterations: Floats
    key_distinct_ratio: Floats
    partitions: Floats
    parents: Ints
    children: Ints

    @classmethod
    def of(cls, *parts: tuple[Workflow, Sequence[int]]) -> "WorkflowColumns":
        """Return the columns of workflows in sequence, the operators of each in its order."""
        discrete: list[tuple[int, ...]] = []
        measured: list[tuple[float, ...]] = []
        edges: list[tuple[int, int]] = []
        for workflow, order in parts:
            depth, height = depths(workflow), heights(workflow)
            begin = len(discrete)
            row = {position: begin + index for index, position in enumerate(order)}
            for position in order:
                o = workflow.operators[position]
                discrete.append(
                    (o.kind, o.operator_class, o.complexity, depth[position], height[position])
                )
                measured.append(
                    (
                        o.output_rows,
                        o.row_bytes,
                        o.code_steps,
                        o.iterations,
                        o.key_distinct_ratio,
                        o.partitions,
                    )
                )
                edges += [(row[parent], row[position]) for parent in o.inputs]
        counted = np.array(discrete, dtype=np.int64).T
        sized = np.array(measured, dtype=np.float64).T
        joined = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return cls(
            edges=joined,
            kind=counted[0],
            operator_class=counted[1],
            complexity=counted[2],
            depth=counted[3],
            height=counted[4],
            rows=sized[0],
            row_bytes=sized[1],
            code_steps=sized[2],
            iterations=sized[3],
            key_distinct_ratio=sized[4],
            partitions=sized[5],
            parents=np.bincount(joined[1], minlength=len(discrete)),
            children=np.bincount(joined[0], minlength=len(discrete)),
        )

    @property
    def output_bytes(self) -> Floats:
        """Output bytes of each operator."""
        return self.rows * self.row_bytes

    def of_inputs(self, values: Floats) -> Floats:
        """Return for each operator the sum of its inputs' values, for a source its own value."""
        return np.where(
            self.parents == 0,
            values,
            sum_by_row(self.edges[1], values[self.edges[0]], len(self.rows)),
        )

    @property
    def largest_input_rows(self) -> Floats:
        """Return the rows of each operator's largest input, for a source its own rows."""
        largest = np.where(self.parents == 0, self.rows, 0.0)
        np.maximum.at(largest, self.edges[1], self.rows[self.edges[0]])
        return largest


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """The platforms of plans [plans, operators], and the edges that switch [plans, edges]."""

    platforms: Ints
    switch: NDArray[np.bool_]

    @classmethod
    def of(cls, columns: WorkflowColumns, platforms: Ints) -> "Placements":
        """Return the placements by `platforms` [plans, operators], in the columns' order."""
        parent, child = platforms[:, columns.edges[0]], platforms[:, columns.edges[1]]
        both = (parent != Platform.UNASSIGNED) & (child != Platform.UNASSIGNED)
        return cls(platforms, (parent != child) & both)


def sum_by_row(rows: Ints, values: Floats, count: int) -> Floats:
    """Return for each row from 0 to `count` - 1 the sum of the values that name it."""
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)


def _one_of(*kinds: OperatorKind) -> Mask:
    """Return by kind number whether the kind is one of `kinds`."""
    return np.isin(np.arange(len(OperatorKind)), [int(kind) for kind in kinds])


_HOLDS_INPUT = _one_of(
    OperatorKind.AGGREGATE,
    OperatorKind.DISTINCT,
    OperatorKind.SORT,
    OperatorKind.JOIN,
    OperatorKind.WINDOW,
    OperatorKind.EXCHANGE,
)
_ITERATES = _one_of(OperatorKind.GRAPH_ITERATE, OperatorKind.ML_TRAIN)
_SORTS = _one_of(OperatorKind.SORT, OperatorKind.WINDOW)
_BEGINS_STAGE = _one_of(OperatorKind.FILE_SOURCE, OperatorKind.TABLE_SOURCE, OperatorKind.EXCHANGE)
_PLACE = {name: number for number, name in enumerate(UNITS)}
_LEAST_SECONDS = MIN_RUNTIME_SECONDS / 10
_MOST_CORES = 10**9


class Resources(Protocol):
    """The facts of an `execution.ClusterConfig` for features and costs, positive and finite.

    It is a protocol, because `execution` imports this package.
    """

    @property
    def nodes(self) -> int: ...  # noqa: D102
    @property
    def cores(self) -> int: ...  # noqa: D102
    @property
    def memory_bytes(self) -> int: ...  # noqa: D102
    @property
    def machine_speed(self) -> float: ...  # noqa: D102
    @property
    def queries_before(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class CostCoefficients:
    """Seconds per unit of work."""

    seconds: Floats  # float64 [platforms, units], core seconds for the parallel ones, at least 0
    speedup: Floats  # float64 [platforms], in [0, 1]: n cores do the work of n ** speedup

    @classmethod
    def of(cls, content: Mapping[str, Mapping[str, float]]) -> Self:
        """Return the coefficients of each platform by name; 0 for a unit without one."""
        seconds = np.zeros((len(Platform), len(UNITS)))
        speedup = np.zeros(len(Platform))
        for platform in Platform:
            by_unit = content.get(platform.name.lower(), content["other"])
            speedup[platform] = by_unit["speedup"]
            for name, place in _PLACE.items():
                seconds[platform, place] = by_unit.get(name, 0.0)
        return cls(seconds, speedup)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The units of work of plans of one workflow, without their cost."""

    units: Floats  # units of each operator on any platform, float64 [operators, units]
    tasks: Floats  # tasks that share the work of each operator, float64 [operators]
    # Float64 [plans, platforms], units of `start` and, in the second half of the columns, of
    # `first_query`.
    starts: Floats
    # Edges in from other platforms and bytes over them, float64 [plans, operators, 2].
    switches: Floats
    platforms: Ints  # int64 [plans, operators]
    cores: int  # cores of the machine
    speed: float  # speed of one core

    @classmethod
    def of(cls, columns: WorkflowColumns, placed: Placements, machine: Resources) -> Self:
        """Return the work of plans with `placed` platforms on `machine`."""
        warmth = _cold(machine.queries_before)
        tasks = _tasks(columns)
        used = np.zeros((len(placed.platforms), len(Platform)))
        used[np.arange(len(used))[:, None], placed.platforms] = 1.0
        is_first = float(machine.queries_before == 0)
        return cls(
            _units(columns, tasks, warmth, machine.memory_bytes),
            tasks,
            np.concatenate([used, used * is_first], axis=1),
            _switches(columns, placed),
            placed.platforms,
            min(machine.cores, _MOST_CORES),
            machine.machine_speed,
        )

    def log_seconds(self, prices: CostCoefficients) -> Floats:
        """Return the natural log of the seconds, [plans], within the public bounds."""
        serial_units = self.units[:, : len(SERIAL)]
        parallel_units = self.units[:, len(SERIAL) :]
        # Sums have the same bits under every BLAS, matrix products do not.
        serial = _priced(serial_units, prices.seconds[:, : len(SERIAL)])
        parallel = _priced(parallel_units, prices.seconds[:, len(SERIAL) :])
        shared = np.minimum(self.cores, self.tasks)[:, None] ** prices.speedup[None, :]
        by_platform = serial + parallel / shared
        operators = np.arange(len(self.tasks))
        seconds = by_platform[operators, self.platforms].sum(axis=1)
        edge = prices.seconds[:, [_PLACE["switch"], _PLACE["switch_byte"]]]
        seconds += (self.switches * edge[self.platforms]).sum(axis=(1, 2))
        once = prices.seconds[:, [_PLACE["start"], _PLACE["first_query"]]].T.ravel()
        seconds += (self.starts * once).sum(axis=1)
        log_seconds = np.log(np.maximum(seconds, _LEAST_SECONDS)) - math.log(self.speed)
        lowest, highest = math.log(_LEAST_SECONDS), math.log(MAX_RUNTIME_SECONDS)
        return np.asarray(np.clip(log_seconds, lowest, highest), dtype=np.float64)


def analytic_log_seconds(
    columns: WorkflowColumns, placed: Placements, machine: Resources
) -> Floats:
    """Return the natural log of the seconds of each plan with shipped coefficients, [plans]."""
    return Work.of(columns, placed, machine).log_seconds(shipped_prices())


def analytic_log_seconds_of_many(
    columns: WorkflowColumns, placed: Placements, machines: Sequence[Resources], sizes: Ints
) -> Floats:
    """Return the natural log of the seconds of several workflows, each with one plan.

    Args:
        columns: columns of all workflows.
        placed: placements of one plan of all workflows together.
        machines: the machine of each workflow.
        sizes: the number of operators of each workflow.

    Returns:
        [workflows], within the public bounds.
    """

    def by_operator(values: Sequence[float]) -> Floats:
        return np.repeat(np.array(values, np.float64), sizes)

    prices, [platforms] = shipped_prices(), placed.platforms
    tasks = _tasks(columns, sizes)
    cold = by_operator([_cold(each.queries_before) for each in machines])
    memory = by_operator([each.memory_bytes for each in machines])
    priced = _units(columns, tasks, cold, memory) * prices.seconds[platforms]
    cores = by_operator([min(each.cores, _MOST_CORES) for each in machines])
    seconds = priced[:, len(SERIAL) :].sum(axis=1)
    seconds /= np.minimum(cores, tasks) ** prices.speedup[platforms]
    seconds += priced[:, : len(SERIAL)].sum(axis=1)
    edge = prices.seconds[:, [_PLACE["switch"], _PLACE["switch_byte"]]]
    seconds += (_switches(columns, placed)[0] * edge[platforms]).sum(axis=1)
    used = np.zeros((len(machines), len(Platform)))
    used[np.repeat(np.arange(len(machines)), sizes), platforms] = 1.0
    first = np.array([each.queries_before == 0 for each in machines])[:, None]
    once = prices.seconds[:, _PLACE["start"]] + first * prices.seconds[:, _PLACE["first_query"]]
    total = np.add.reduceat(seconds, np.cumsum(sizes) - sizes) + (used * once).sum(axis=1)
    speeds = np.array([each.machine_speed for each in machines])
    log_seconds = np.log(np.maximum(total, _LEAST_SECONDS)) - np.log(speeds)
    limits = math.log(_LEAST_SECONDS), math.log(MAX_RUNTIME_SECONDS)
    return np.asarray(np.clip(log_seconds, *limits), dtype=np.float64)


@lru_cache(maxsize=1)
def shipped_prices() -> CostCoefficients:
    """Return the coefficients that ship with fedperf."""
    return CostCoefficients.of(json.loads(PRICES_PATH.read_bytes()))


def _priced(units: Floats, prices: Floats) -> Floats:
    """Return the cost of each operator on each platform, [operators, platforms]."""
    return np.asarray((units[:, None, :] * prices[None]).sum(axis=2))


def _cold(queries_before: int) -> float:
    """Return the share of a cold engine's cost. Steps at powers of two make repeats equal."""
    stepped = 2.0 ** math.floor(math.log2(1 + queries_before))
    return float(stepped**-WARM_POWER)


def _tasks(columns: WorkflowColumns, sizes: Ints | None = None) -> Floats:
    """Return the tasks of each operator: its partitions, its inputs', or row groups.

    A broadcast table has one partition, and the other input of its join keeps its own. In a
    workflow without partitions every operator has its row groups.

    Args:
        columns: columns of one or several workflows.
        sizes: the number of operators of each workflow, if there are several.
    """
    parent, child = columns.edges
    by_rows = np.maximum(1.0, np.ceil(columns.largest_input_rows / TASK_ROWS))
    if not columns.partitions.any():
        return by_rows
    is_told = (columns.parents > 0) | (columns.partitions > 0)
    partitions = np.where(is_told, columns.partitions, by_rows)
    for edge in np.argsort(child, kind="stable"):  # children come after their parents
        below = child[edge]
        if columns.partitions[below] == 0:
            partitions[below] = max(partitions[below], partitions[parent[edge]])
    if sizes is None:
        return partitions
    has_partitions = np.maximum.reduceat(columns.partitions > 0, np.cumsum(sizes) - sizes)
    return np.where(np.repeat(has_partitions, sizes), partitions, by_rows)


def _units(
    columns: WorkflowColumns, tasks: Floats, cold: float | Floats, memory_bytes: float | Floats
) -> Floats:
    """Return [operators, UNITS] without start-up and switches, which depend on platforms."""
    count = len(columns.rows)
    every, kind = np.arange(count), columns.kind
    is_source = columns.parents == 0
    rows_in, bytes_in = columns.of_inputs(columns.rows), columns.of_inputs(columns.output_bytes)
    work = _weighted_rows(columns, rows_in)
    has_text = is_source & (columns.code_steps == PARSES_TEXT)
    has_python = columns.code_steps >= RUNS_PYTHON
    stage = _BEGINS_STAGE[kind]
    units = np.zeros((count, len(UNITS)))
    units[every, _PLACE["one_file_source"] + kind] = 1.0
    units[every, _PLACE["row_file_source"] + kind] = work
    units[every, _PLACE["out_row_file_source"] + kind] = columns.rows
    named = {
        "task_dispatch": np.where(stage, tasks, 0.0),
        "python": has_python,
        "cold_operator": np.full(count, cold),
        "cold_python": cold * has_python,
        "task": np.where(stage, tasks, 0.0),
        "cold_task": np.where(stage, cold * tasks, 0.0),
        "scan_byte": np.where(is_source & ~has_text, columns.output_bytes, 0.0),
        "text_byte": np.where(has_text, columns.output_bytes, 0.0),
        "exchange_byte": np.where(kind == OperatorKind.EXCHANGE, bytes_in, 0.0),
        "sink_byte": np.where(kind == OperatorKind.SINK, bytes_in, 0.0),
        "work_byte": np.where(is_source, 0.0, bytes_in),
        "python_row": np.where(has_python, rows_in, 0.0),
        "spilled_byte": np.where(
            _HOLDS_INPUT[kind], np.maximum(bytes_in - SPILLS_FROM * memory_bytes, 0.0), 0.0
        ),
    }
    for name, values in named.items():
        units[:, _PLACE[name]] = values
    return units


def _weighted_rows(columns: WorkflowColumns, rows_in: Floats) -> Floats:
    """Return the rows of each operator, times the number of its passes over them."""
    parent, child = columns.edges
    work = rows_in.copy()
    work *= 1 + np.where(_ITERATES[columns.kind], columns.iterations, 0.0)
    work *= np.where(_SORTS[columns.kind], np.log2(2 + rows_in), 1.0)
    crossed = columns.kind == OperatorKind.CROSS
    if crossed.any():
        product = np.ones(len(work))
        np.multiply.at(product, child, np.maximum(columns.rows[parent], 1.0))
        work = np.where(crossed, np.minimum(product, MAX_ROWS), work)
    is_code = ~_BEGINS_STAGE[columns.kind] & (columns.code_steps < RUNS_PYTHON)
    return np.asarray(work * (1 + np.where(is_code, columns.code_steps, 0.0) / 8))


def _switches(columns: WorkflowColumns, placed: Placements) -> Floats:
    """Return edges in from other platforms and bytes over them, [plans, operators, 2]."""
    plans, count = placed.platforms.shape
    plan, edge = np.nonzero(placed.switch)
    parent, child = columns.edges[:, edge]
    place = plan * count + child
    edges = np.bincount(place, minlength=plans * count)
    crossing = sum_by_row(place, columns.output_bytes[parent], plans * count)
    return np.stack([edges, crossing], axis=1).reshape(plans, count, 2)
