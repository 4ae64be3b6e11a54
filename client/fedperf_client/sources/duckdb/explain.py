"""Plans of SQL text, which DuckDB explains and never runs.

The output of EXPLAIN becomes a profile without measurements, and `OperatorTree` reads it as it
reads the profile of a run, so the workload is that of the measured query. The rows of whole tables
are those of the catalogue. All other rows are DuckDB's estimates: a fifth for most filters.

The database is opened read-only, with extensions neither installed nor loaded, so that nothing is
written or fetched. Only a single SELECT is explained: of several statements after EXPLAIN, DuckDB
would run all but the first. DuckDB is imported here alone, when it is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from fedperf_client.sources.duckdb.operators import schema_of
from fedperf_client.sources.duckdb.profile_file import OperatorTree
from fedperf_client.sources.duckdb.query_keys import MAX_TEXT, files_in, names_in
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ExecutionMetadata
from fedperf_shared.runtime.process import Closing
from fedperf_shared.workflow.graph import Workflow

if TYPE_CHECKING:
    import duckdb

IN_MEMORY = Path(":memory:")  # a database for queries that read files alone

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_LOCKED, _NEWER = "lock on file", "version number"
_TEXT_BYTES, _OTHER_BYTES = 16, 8  # of a value in DuckDB's vectors
_WIDTHS = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "UTINYINT"), 1),
    **dict.fromkeys(("SMALLINT", "USMALLINT"), 2),
    **dict.fromkeys(("INTEGER", "UINTEGER", "DATE", "FLOAT"), 4),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UUID", "INTERVAL", "VARCHAR", "BLOB"), _TEXT_BYTES),
}
_FIRST_ALONE = ("SEMI", "ANTI")  # joins with the columns of one input
_TIMING = 1e-6  # of an operator; 0 would stand for one that did not run

_Columns = list[tuple[str, float]]  # name and bytes of each column


def read_sql(path: Path) -> str:
    """Return the text of a file with SQL.

    Raises:
        InvalidInputError: it cannot be read, or is no text, or too long.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEXT + 1)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_TEXT:
        raise InvalidInputError(f"{path}: longer than {MAX_TEXT} bytes; expected one SELECT")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: no text in UTF-8; expected one SELECT") from error


@dataclass(slots=True)
class QueryDatabase(Closing):
    """A DuckDB database that explains queries."""

    _connection: "duckdb.DuckDBPyConnection"
    _rows: Mapping[str, int]  # of each table, by its whole name in lower case
    _widths: Mapping[str, Mapping[str, float]]  # bytes of each column, by table
    _views: Mapping[str, str]  # definition of each view, by name in lower case

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database in a file, read-only.

        Raises:
            InvalidInputError: there is no such file, another process writes it, or this DuckDB
                does not read it.
            ModuleNotFoundError: DuckDB is not installed.
        """
        import duckdb

        is_file = path != IN_MEMORY
        if is_file and not path.is_file():
            raise InvalidInputError(
                f"{path} is not a file: --database takes a DuckDB database, or :memory: for "
                "queries that read files alone"
            )
        try:
            connection = duckdb.connect(str(path), read_only=is_file, config=_SETTINGS)
            tables = connection.execute(
                "SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables()"
            ).fetchall()
            columns = connection.execute(
                "SELECT database_name, schema_name, table_name, column_name, data_type "
                "FROM duckdb_columns() WHERE NOT internal"
            ).fetchall()
            views = connection.execute(
                "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"
            ).fetchall()
        except duckdb.Error as error:
            raise InvalidInputError(f"{path}: no database to read: {_reason(error)}") from error
        widths: dict[str, dict[str, float]] = {}
        for *table, column, kind in columns:
            bytes_of = _WIDTHS.get(kind, _OTHER_BYTES)
            widths.setdefault(".".join(table).lower(), {})[column.lower()] = bytes_of
        rows = {".".join(table).lower(): int(size) for *table, size in tables}
        return cls(connection, rows, widths, {name.lower(): sql or "" for name, sql in views})

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._connection.close()

    def explain(self, text: str) -> tuple[Workflow, ExecutionMetadata]:
        """Explain one SELECT without running it; return it with estimated rows, and its keys.

        Raises:
            InvalidInputError: it is not one SELECT, DuckDB refuses it, or it has no plan.
        """
        import duckdb

        try:
            statements = self._connection.extract_statements(text)
            kinds = [each.type for each in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                names = ", ".join(each.name for each in kinds) or "nothing"
                raise InvalidInputError(f"expected one SELECT, got {names}")
            explained = f"EXPLAIN (FORMAT JSON) {statements[0].query}"
            ((_, plan),) = self._connection.execute(explained).fetchall()
        except duckdb.Error as error:
            raise InvalidInputError(_reason(error)) from error
        profile = _Unmeasured(self._rows, self._widths)
        content = {"operator": [profile.node(each)[0] for each in orjson.loads(plan)]}
        tree = OperatorTree(schema_of(content), lambda _: (), files=self._files(text))
        tree.read(content["operator"])
        origin = ExecutionMetadata(
            source=f"duckdb {duckdb.__version__}",
            rows_known=0.0,
            statement=tree.statement(text),
            operator_keys=tree.stored_keys(),
        )
        return tree.workflow(), origin

    def _files(self, text: str) -> set[str]:
        """Return the files that a query reads, also through views."""
        texts, expanded, files = [text], set[str](), set[str]()
        while texts:
            part = texts.pop()
            files |= files_in(part)
            views = names_in(part) & self._views.keys() - expanded
            expanded |= views
            texts += [self._views[each] for each in views]
        return files


def _reason(error: "duckdb.Error") -> str:
    """Return an error of DuckDB in one line, with what to do."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    reason = lines[0] if lines else type(error).__name__
    if _LOCKED in reason:
        return "another process has the database open; end that one, or copy the file"
    if _NEWER in reason:
        import duckdb

        return f"not read by DuckDB {duckdb.__version__}, which is installed: {reason}"
    return reason


@dataclass(frozen=True, slots=True)
class _Unmeasured:
    """Makes nodes of a profile from nodes of an explained plan."""

    rows: Mapping[str, int]
    widths: Mapping[str, Mapping[str, float]]
    shared: dict[str, _Columns] = field(default_factory=dict)  # columns of each CTE, by its number

    def node(self, explained: Mapping[str, Any]) -> tuple[dict[str, object], _Columns]:
        """Return a node with its inputs, and its columns."""
        notes = explained.get("extra_info") or {}
        name = str(explained["name"]).strip().upper()
        children, inputs = list[object](), list[_Columns]()
        for each in explained.get("children", []):
            child, columns = self.node(each)
            children.append(child)
            inputs.append(columns)
            if name == "CTE" and len(children) == 1:
                self.shared[str(notes.get("Table Index"))] = columns
        columns = self._columns(name, notes, inputs)
        estimate = str(notes.get("Estimated Cardinality", ""))
        rows = int(estimate) if estimate.isdecimal() else 0
        table = str(notes.get("Table", "")).lower()
        scanned = self.rows.get(table, rows)
        is_whole = table in self.rows and "Filters" not in notes
        rows = scanned if is_whole else rows
        return {
            "type": name,
            "extra_info": notes,
            "intermediate_rows": rows,
            "intermediate_size_bytes": rows * sum(width for _, width in columns),
            "timing": _TIMING,
            "rows_scanned": max(scanned, rows),
            "children": children,
        }, columns

    def _columns(
        self, name: str, notes: Mapping[str, object], inputs: Sequence[_Columns]
    ) -> _Columns:
        """Return the columns of an operator, of 8 bytes where their type is unknown."""
        table = self.widths.get(str(notes.get("Table", "")).lower(), {})
        if not inputs:
            columns = self.shared.get(str(notes.get("CTE Index")))
            scanned = _listed(notes.get("Projections"))
            return columns or [(each, table.get(each, _OTHER_BYTES)) for each in scanned]
        if "Projections" in notes:
            return [_column(each, inputs[0]) for each in _listed(notes["Projections"])]
        if "Aggregates" in notes or "Groups" in notes:
            groups = [_column(each, inputs[0]) for each in _listed(notes.get("Groups"))]
            return groups + [(each, _OTHER_BYTES) for each in _listed(notes.get("Aggregates"))]
        if "Join Type" in notes or name == "CROSS_PRODUCT":
            kind = str(notes.get("Join Type", ""))
            if any(each in kind for each in _FIRST_ALONE):
                return inputs[-1 if kind.startswith("RIGHT") else 0]
            return [column for each in inputs for column in each]
        return inputs[-1]


def _listed(note: object) -> list[str]:
    values = note if isinstance(note, list) else [note]
    return [str(each).lower() for each in values if each]


def _column(text: str, columns: _Columns) -> tuple[str, float]:
    """Return the column that a text selects from those of the input."""
    position = text.removeprefix("#")
    if text.startswith("#") and position.isdecimal() and int(position) < len(columns):
        return columns[int(position)]
    return text, dict(columns).get(text, _OTHER_BYTES)
