"""DuckDB profiles of every schema, small ones by hand after real ones."""

Json = dict[str, object]


def node_1(kind: str, rows: int, *children: Json, size: int = 8, notes: Json | None = None) -> Json:
    """An operator as DuckDB 1.5 prints it; `size` is of one row."""
    return {
        "system_peak_temp_dir_size": 0,
        "system_peak_buffer_memory": 0,
        "result_set_size": size * rows,
        "operator_timing": 0.001,
        "operator_type": kind,
        "cpu_time": 0.002,
        "extra_info": notes or {},
        "cumulative_cardinality": rows,
        "cumulative_rows_scanned": 0,
        "operator_cardinality": rows,
        "operator_name": kind,
        "operator_rows_scanned": 0,
        "children": list(children),
    }


def profile_1(*tops: Json, **changes: object) -> Json:
    """A profile of DuckDB 1.5."""
    return {
        "total_bytes_written": 5,
        "total_bytes_read": 4096,
        "system_peak_buffer_memory": 30_000,
        "rows_returned": 1,
        "result_set_size": 8,
        "query_name": "select secret from customers",
        "blocked_thread_time": 0.0,
        "cpu_time": 0.03,
        "extra_info": {},
        "latency": 0.02,
        "children": list(tops),
        **changes,
    }


def node_2(kind: str, rows: int, *children: Json, size: int = 8, notes: Json | None = None) -> Json:
    """An operator as DuckDB 2.0 prints it; `size` is of one row."""
    return {
        "extra_info": notes or {},
        "intermediate_rows": rows,
        "intermediate_size_bytes": size * rows,
        "timing": 0.001,
        "type": kind,
        **({"children": list(children)} if children else {}),
    }


def profile_2(*tops: Json, **changes: object) -> Json:
    """A profile of DuckDB 2.0."""
    return {
        "io": {"total_bytes_read": 4096, "total_bytes_written": 5},
        "operator": list(tops),
        "optimizer": {"filter_pushdown": 0.00003, "total_time": 0.0008},
        "planner": {"binding_time": 0.0003, "total_time": 0.0004},
        "query": {"cpu_time": 0.03, "sql": "select secret from customers", "total_time": 0.02},
        "system": {"peak_buffer_memory": 30_000, "peak_temp_dir_size": 0},
        **changes,
    }


def node_0(name: str, rows: int, *children: Json) -> Json:
    """An operator as DuckDB 0.10 and 1.0 print it."""
    return {
        "name": name,
        "timing": 0.01,
        "cardinality": rows,
        "extra_info": "secret\n[INFOSEPARATOR]\nEC: 5",
        "children": list(children),
    }


def profile_0(*tops: Json) -> Json:
    """A profile of DuckDB 0.10 and 1.0."""
    return {
        "name": "Query",
        "result": 0.02,
        "timing": 0.02,
        "cardinality": 0,
        "extra-info": "select secret from customers",
        "timings": [],
        "children": list(tops),
    }


def grouped(version: int, *, rows: int = 100) -> Json:
    """A scan that filters, an aggregation and a sort, as the version prints them."""
    if version == 0:
        scan = node_0("SEQ_SCAN ", rows)
        return profile_0(
            node_0("RESULT_COLLECTOR", 0, node_0("ORDER_BY", 5, node_0("HASH_GROUP_BY", 5, scan)))
        )
    notes: Json = {"Filters": "(q < 50)", "Projections": ["q", "s"]}
    if version == 1:
        scan = node_1("TABLE_SCAN", rows, notes=notes) | {"operator_rows_scanned": 4 * rows}
        return profile_1(node_1("ORDER_BY", 5, node_1("HASH_GROUP_BY", 5, scan, size=12)))
    scan = node_2("TABLE_SCAN", rows, notes=notes) | {"rows_scanned": 2 * rows}
    end = node_2("ORDER_BY", 5, node_2("HASH_GROUP_BY", 5, scan, size=12))
    return profile_2(node_2("RESULT_COLLECTOR", 0, end))
