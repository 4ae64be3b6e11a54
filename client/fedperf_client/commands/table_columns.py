"""The tables of past runs that `fedperf ingest` is given: their columns by options or by a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedperf_client.formatting.facts import Fact
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import open_source
from fedperf_client.sources.tables.columns import Role, TableMapping, described
from fedperf_client.sources.tables.rows import has_table_name
from fedperf_client.sources.tables.source import TableSource, stored_otherwise
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.settings_file import load_model


def find_tables(
    paths: Sequence[Path], mapping_file: Path | None, options: Mapping[str, str | None]
) -> dict[Path, TableSource]:
    """Return the tables among the named paths, with what is known of their columns.

    Args:
        paths: as named by the user.
        mapping_file: a `TableMapping` in TOML, or None.
        options: texts of a `TableMapping` by key, which count more than the file. Commas separate
            `columns`.

    Raises:
        ConfigurationError: the mapping file is wrong.
        InvalidInputError: columns are named for a path that is not a file, or a column is wrong.
    """
    mapping = TableMapping() if mapping_file is None else load_model(mapping_file, TableMapping)
    values: dict[str, object] = {name: text for name, text in options.items() if text is not None}
    if isinstance(columns := values.get("columns"), str):
        values["columns"] = tuple(each.strip() for each in columns.split(",") if each.strip())
    if "" in values.values():
        raise InvalidInputError("the name of a column is empty")
    mapping = mapping.model_copy(update=values)
    is_named = mapping_file is not None or bool(values)
    tables: dict[Path, TableSource] = {}
    for path in paths:
        if is_named:
            if not path.is_file():
                problem = "is a directory" if path.is_dir() else "does not exist"
                raise InvalidInputError(
                    f"{path} {problem}; columns are named for files of tables, such as runs.csv"
                )
            tables[path] = TableSource(path, mapping, is_named=True)
            _ = tables[path].columns
        elif path.is_file() and has_table_name(path):
            source = _opened(path)
            if isinstance(source, TableSource):
                tables[path] = source
    return tables


def require_same(tables: Mapping[Path, TableSource], store: Path) -> None:
    """Refuse tables whose rows are stored already with other columns or units.

    Raises:
        InvalidInputError: one is.
    """
    if not tables:
        return
    with ExecutionStore.open_to_read(store) as opened:
        for source in tables.values():
            if problem := stored_otherwise(source, opened):
                raise InvalidInputError(problem)


def understood(tables: Mapping[Path, TableSource]) -> list[tuple[Path, str, list[list[Fact]]]]:
    """Return path, form, and a row for each column of every table: how it is understood."""
    tables_understood = []
    for path, source in tables.items():
        columns, preset = source.columns, source.preset
        form = "a table" if preset is None else preset.name
        if Role.JOB not in columns.by_role:
            form += f" of job {columns.job_name}"
        rows = [
            [
                Fact("column", use.name, "column"),
                Fact("role", use.role.value.replace(" ", "_")),
                Fact("unit", use.unit or None),
                Fact("unit_assumed", use.is_assumed),
                Fact("understood", words, "understood as"),
                Fact("example", use.example, "example"),
            ]
            for use, words in described(columns)
        ]
        tables_understood.append((path, form, rows))
    return tables_understood


def _opened(path: Path) -> object:
    try:
        return open_source(path)
    except InvalidInputError:
        return None  # reading it reports the error
