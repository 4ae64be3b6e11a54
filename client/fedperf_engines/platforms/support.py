"""The operations that each platform can run, decided without importing an engine."""

import os
import shutil
from collections.abc import Collection
from importlib.util import find_spec

from fedperf_engines.platforms.engine import ENGINES
from fedperf_engines.platforms.operations import Operation
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

TABULAR_KINDS = frozenset(
    {
        OperatorKind.FILE_SOURCE,
        OperatorKind.MAP,
        OperatorKind.FILTER,
        OperatorKind.FLATMAP,
        OperatorKind.AGGREGATE,
        OperatorKind.GLOBAL_AGGREGATE,
        OperatorKind.DISTINCT,
        OperatorKind.SORT,
        OperatorKind.TOPK,
        OperatorKind.JOIN,
        OperatorKind.UNION,
        OperatorKind.WINDOW,
    }
)
ANALYTIC_KINDS = frozenset(
    {
        OperatorKind.GRAPH_ITERATE,
        OperatorKind.ML_TRAIN,
        OperatorKind.ML_PREDICT,
        OperatorKind.SINK,
    }
)

_SUPPORTED = {
    Platform.DUCKDB: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.POLARS: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.PANDAS: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.SKLEARN: ANALYTIC_KINDS,
    Platform.SPARK: TABULAR_KINDS | ANALYTIC_KINDS,
}

EMBEDDED_PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN)
"""Platforms that run inside the process of a trial and come with fedperf itself.

Code that draws or compares platforms by itself keeps to these. So what it draws is a function
of the seed, the same on every machine: an extra that happens to be installed does not change
it and makes nobody wait for a JVM. Other platforms run where they are named.
"""

_ALIKE = {
    OperatorKind.TABLE_SOURCE: OperatorKind.FILE_SOURCE,
    OperatorKind.CROSS: OperatorKind.JOIN,
    OperatorKind.SAMPLE: OperatorKind.FILTER,
    OperatorKind.EXCHANGE: OperatorKind.MAP,
}
"""Operator kinds of foreign jobs that no operation here has, each with a kind that runs alike."""

_NEED_JAVA = frozenset({Platform.SPARK})


def supports(operation: Operation | OperatorKind, platform: Platform) -> bool:
    """Whether the platform can run the operation, installed or not."""
    kind = operation if isinstance(operation, OperatorKind) else operation.kind
    return kind in _SUPPORTED.get(platform, frozenset())


def could_run(kind: OperatorKind, platform: Platform) -> bool:
    """Whether an operator of a job that was written for another platform could run there."""
    return supports(_ALIKE.get(kind, kind), platform)


def supporting(
    operation: Operation | OperatorKind, among: Collection[Platform] = EMBEDDED_PLATFORMS
) -> tuple[Platform, ...]:
    """The platforms that can run the operation, in the order of the vocabulary."""
    return tuple(each for each in ENGINES if each in among and supports(operation, each))


def installed_platforms(among: Collection[Platform] = tuple(ENGINES)) -> tuple[Platform, ...]:
    """The platforms whose library is here, and Java where they need it.

    In the order of the vocabulary. Which Java it is shows only when it starts.
    """
    return tuple(
        platform
        for platform, (name, *_) in ENGINES.items()
        if platform in among and find_spec(name) and (platform not in _NEED_JAVA or _java())
    )


def _java() -> str | None:
    """The program `java` as Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
