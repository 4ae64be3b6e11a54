"""Apache Wayang's hand-tuned linear costs as a baseline: cycles per operator and platform.

Read from the two property files that Wayang ships (`FEDPERF_DATA/wayang`): every operator
of the Java and of the Spark platform has a load such as `700*in0 + 56789` cycles, and Spark
an initialization of its own. Whatever runs in one process here (DuckDB, Polars, pandas,
scikit-learn) counts as Java. Our operators are those of Wayang that do the same; what
Wayang has no operator for is written with several (`_AS`). Refused: a file without the
operators that are needed, an expression that is no sum of products.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Operator, Plan
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

_LOAD = re.compile(
    r"^wayang\.(?:java|spark)\.([\w.\-]+)\.load = \{(.*?)\n\}", re.DOTALL | re.MULTILINE
)
_CPU = re.compile(r'"cpu":"(?:\$\{)?(.*?)\}?"')
_SETTING = re.compile(r"^wayang\.(?:java|spark)\.([\w.\-]+) = ([\d.]+)$", re.MULTILINE)

_AS: Mapping[OperatorKind, tuple[str, ...]] = {
    OperatorKind.FILE_SOURCE: ("objectfilesource",),
    OperatorKind.TABLE_SOURCE: ("objectfilesource",),
    OperatorKind.MAP: ("map",),
    OperatorKind.FILTER: ("filter",),
    OperatorKind.FLATMAP: ("flatmap",),
    OperatorKind.AGGREGATE: ("reduceby",),
    OperatorKind.GLOBAL_AGGREGATE: ("globalreduce",),
    OperatorKind.DISTINCT: ("distinct",),
    OperatorKind.SORT: ("sort",),
    OperatorKind.TOPK: ("sort",),
    OperatorKind.JOIN: ("cogroup",),
    OperatorKind.UNION: ("union",),
    OperatorKind.GRAPH_ITERATE: ("cogroup", "reduceby"),
    OperatorKind.ML_TRAIN: ("map", "reduceby"),
    OperatorKind.ML_PREDICT: ("map",),
    OperatorKind.WINDOW: ("groupby", "sort"),
    OperatorKind.SINK: ("localcallbacksink",),
}

Cycles = Callable[[Mapping[str, float]], float]
"""Rows by name (`in0`, `in1`, `out0`) -> processor cycles."""


class InvalidWayangCostsError(InvalidInputError):
    """The property files are not those that Wayang ships."""


@dataclass(frozen=True, slots=True)
class PlatformCosts:
    """One platform's loads.

    Attributes:
        cycles: of one execution of each operator.
        cycles_per_second: of one core.
        start_seconds: before its first operator.
    """

    cycles: Mapping[str, Cycles]
    cycles_per_second: float
    start_seconds: float

    @classmethod
    def read(cls, path: Path) -> Self:
        """The loads of one property file; errors as `WayangCosts.read`."""
        try:
            text = path.read_text()
        except OSError as error:
            raise InvalidWayangCostsError(f"{path}: {error.strerror or error}") from error
        settings = dict(_SETTING.findall(text))
        found = {name: _CPU.search(body) for name, body in _LOAD.findall(text)}
        cycles = {name: _parsed(cpu[1], path) for name, cpu in found.items() if cpu is not None}
        missing = {name for names in _AS.values() for name in names} - cycles.keys()
        if missing or "cpu.mhz" not in settings:
            wanted = ", ".join(sorted(missing)) or "cpu.mhz"
            raise InvalidWayangCostsError(f"{path} does not say what is needed: {wanted}")
        milliseconds = float(settings.get("init.ms", 0.0))
        return cls(cycles, 1e6 * float(settings["cpu.mhz"]), milliseconds / 1000)

    def seconds(self, each: Operator, rows: Mapping[str, float], cores: int) -> float:
        """CPU time of one operator, spread over `cores`."""
        once = sum(self.cycles[name](rows) for name in _AS.get(each.kind, ()))
        return max(each.iterations, 1) * once / (self.cycles_per_second * cores)


@dataclass(frozen=True, slots=True)
class WayangCosts:
    """The cost of a plan as the sum of its operators' loads."""

    java: PlatformCosts
    spark: PlatformCosts

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read `wayang-java-defaults.properties` and `wayang-spark-defaults.properties`.

        Raises:
            InvalidWayangCostsError: see the module.
        """
        java, spark = (
            PlatformCosts.read(directory / f"wayang-{name}-defaults.properties")
            for name in ("java", "spark")
        )
        return cls(java, spark)

    def seconds(self, plan: Plan, cluster: ClusterConfig) -> float:
        """Estimated run time; a switch between Java and Spark collects and distributes rows."""
        operators = plan.workflow.operators
        total = self.spark.start_seconds if Platform.SPARK in plan.platforms else 0.0
        for each, platform in zip(operators, plan.platforms, strict=True):
            inputs = [operators[parent].output_rows for parent in each.inputs] or [0.0]
            rows = {"in0": inputs[0], "in1": inputs[-1], "out0": each.output_rows}
            total += self._of(platform).seconds(each, rows, cluster.cores)
        for parent, child in plan.workflow.edges:
            ends = [self._of(plan.platforms[position]) for position in (parent, child)]
            if ends[0] is not ends[1]:
                rows = {"in0": operators[parent].output_rows, "out0": operators[parent].output_rows}
                cycles = ends[0].cycles["collect"](rows) + ends[1].cycles["collectionsource"](rows)
                total += cycles / (self.java.cycles_per_second * cluster.cores)
        return total

    def _of(self, platform: Platform) -> PlatformCosts:
        return self.spark if platform is Platform.SPARK else self.java


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}


def _parsed(text: str, path: Path) -> Cycles:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise InvalidWayangCostsError(f"{path}: no sum of products: {text!r}") from error
    for node in ast.walk(tree):
        if not isinstance(
            node, ast.BinOp | ast.Add | ast.Mult | ast.Name | ast.Load | ast.Constant
        ):
            raise InvalidWayangCostsError(f"{path}: no sum of products: {text!r}")
    return lambda rows: _value(tree, rows)


def _value(node: ast.expr, rows: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return rows.get(name, 0.0)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, rows), _value(right, rows))
    raise InvalidWayangCostsError(f"no sum of products: {ast.unparse(node)!r}")
