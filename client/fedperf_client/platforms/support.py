"""Which platform can run which operation, decided without importing an engine."""

from importlib.util import find_spec

from fedperf_client.platforms.engine import ENGINES
from fedperf_client.platforms.operations import Operation
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
}


def supports(operation: Operation | OperatorKind, platform: Platform) -> bool:
    """Whether the platform can run the operation, installed or not."""
    kind = operation if isinstance(operation, OperatorKind) else operation.kind
    return kind in _SUPPORTED.get(platform, frozenset())


def supporting(operation: Operation | OperatorKind) -> tuple[Platform, ...]:
    """All platforms that can run the operation, in the order of the vocabulary."""
    return tuple(platform for platform in ENGINES if supports(operation, platform))


def installed_platforms() -> tuple[Platform, ...]:
    """The platforms whose library can be imported here, in the order of the vocabulary."""
    return tuple(platform for platform, (name, *_) in ENGINES.items() if find_spec(name))
