"""Prior prices of a unit of work, before anything was measured, in seconds.

Those of Spark come from a first set of own runs on a machine of two cores (`local[1]` to
`local-cluster`). Those of the others are orders of magnitude of in-memory engines that work through
vectors: some nanoseconds for a row and step, about a gigabyte a second from a file of columns
(Kersten et al., VLDB 2018, "Everything you always wanted to know about compiled and vectorized
queries"). A measured run moves a price as far as it tells more than this.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fedperf_shared.workflow.analytic_cost import KINDS
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

PRIOR_SD = 1.0
"""Standard deviation of a log price: a factor of e either way."""

SPEEDUP_SD = 0.15
"""Of the power by which more cores help."""

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
"""Seconds for each unit of `UNITS`, and the power `speedup`, by platform; kin stand first."""

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
