"""Small DuckDB profiles of every schema version, written by hand after real profiles."""

import re
from dataclasses import dataclass, field
from typing import Literal

Json = dict[str, object]


def node_1(kind: str, rows: int, *children: Json, size: int = 8, notes: Json | None = None) -> Json:
    """Return an operator in the format of DuckDB 1.5. `size` is in bytes per row."""
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
    """Return a profile in the format of DuckDB 1.5."""
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
    """Return an operator in the format of DuckDB 2.0. `size` is in bytes per row."""
    return {
        "extra_info": notes or {},
        "intermediate_rows": rows,
        "intermediate_size_bytes": size * rows,
        "timing": 0.001,
        "type": kind,
        **({"children": list(children)} if children else {}),
    }


def profile_2(*tops: Json, **changes: object) -> Json:
    """Return a profile in the format of DuckDB 2.0."""
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
    """Return an operator in the format of DuckDB 0.10 and 1.0."""
    return {
        "name": name,
        "timing": 0.01,
        "cardinality": rows,
        "extra_info": "secret\n[INFOSEPARATOR]\nEC: 5",
        "children": list(children),
    }


def profile_0(*tops: Json) -> Json:
    """Return a profile in the format of DuckDB 0.10 and 1.0."""
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
    """Return a filtered scan, an aggregation and a sort in the format of the version."""
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


ROW_GROUP = 122_880
Version = Literal["1.1", "1.2", "1.3", "1.4", "1.5", "2.0"]
VERSIONS: tuple[Version, ...] = ("1.1", "1.2", "1.3", "1.4", "1.5", "2.0")


@dataclass(frozen=True)
class Scanned:
    """An executed scan, as each version records it. Modelled on profiles of all versions.

    An equality filter keeps one of `values` values if there are statistics. Any other filter
    keeps a fifth. `first` is the number of rows of the first of `files` files.
    """

    rows: int
    returned: int
    version: Version = "1.4"
    is_table: bool = False
    threads: int = 1
    filters: tuple[str, ...] = ("q<50",)
    values: int = 10
    files: int = 1
    first: int = 0
    name: str = "lineitem"
    notes: Json = field(default_factory=dict)

    @property
    def announced(self) -> int:
        """Rows of the table or the files, as the optimizer estimates them."""
        return (
            self.rows if self.files == 1 else (self.first or self.rows // self.files) * self.files
        )

    @property
    def row_groups(self) -> int:
        """Number of row groups in which the table is stored."""
        return -(-self.rows // ROW_GROUP)

    @property
    def scans(self) -> int:
        """Number of scanning threads, limited by the row groups of a single file or table."""
        most = self.rows // ROW_GROUP + 1 if self.is_table else max(self.row_groups, 1)
        return self.threads if self.files > 1 else min(self.threads, most)

    def estimate(self) -> int:
        """Return the optimizer's estimate of the output rows."""
        has_statistics = self.is_table or self.version == "2.0"
        binding = [each for each in self.filters if not each.startswith("optional:")]
        equal = any(re.search("[^<>!]=", each) for each in binding)
        if equal and has_statistics and self.values > 1:
            return -(-self.announced // self.values)
        return max(self.announced // 5, 1) if binding else self.announced

    def node(self) -> Json:
        """Return the scan in the format of the version."""
        notes = {"Estimated Cardinality": str(self.estimate()), **self.notes}
        if self.filters:
            notes["Filters"] = self.filters[0] if len(self.filters) == 1 else list(self.filters)
        if self.is_table and self.version == "1.1":
            notes["Text"] = self.name
        elif self.is_table:
            full = self.version in ("1.5", "2.0")
            notes |= {
                "Type": "Sequential Scan",
                "Table": f"db.main.{self.name}" if full else self.name,
            }
        else:
            notes["Function"] = "READ_PARQUET"
            if self.version not in ("1.1", "1.2"):
                notes["Total Files Read"] = str(self.files)
            if self.version in ("1.5", "2.0"):
                notes["Filename(s)"] = f"{self.name}.parquet"
        if self.version == "2.0":
            groups = {
                "row_groups_scanned": self.row_groups,
                "total_row_groups_to_scan": self.row_groups,
            }
            scanned = self.rows if self.is_table else self.returned
            return (
                node_2("TABLE_SCAN", self.returned, notes=notes)
                | groups
                | {"rows_scanned": scanned}
            )
        label = "SEQ_SCAN" if self.is_table else "READ_PARQUET"
        scanned = (
            self.rows if self.is_table and self.version == "1.5" else self.announced * self.scans
        )
        return node_1("TABLE_SCAN", self.returned, notes=notes) | {
            "operator_rows_scanned": scanned,
            "operator_name": label if self.version == "1.5" else f"{label} ",
        }

    def profile(self, *above: str) -> Json:
        """Return a profile: an aggregate, the operators `above`, and the scan at the bottom.

        The last operator of `above` is the direct parent of the scan.
        """
        make = node_2 if self.version == "2.0" else node_1
        node = self.node()
        for kind in reversed(above):
            node = make(kind, self.returned, node)
        end = make("UNGROUPED_AGGREGATE", 1, node)
        return profile_2(end) if self.version == "2.0" else profile_1(end)
