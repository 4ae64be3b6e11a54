"""SQL that `fedperf predict` and `fedperf advise` read: files, directories, dbt projects.

A directory without dbt is searched for files that end with `.sql`. A dbt project is named by its
directory, by its `target` or by the manifest there. Its models are queries, and dbt compiled their
texts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_client.commands.program import LocalPath
from fedperf_shared.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedperf_client.home.store import ExecutionStore
    from fedperf_client.prediction.serving.sql_query import SqlQuery
    from fedperf_client.sources.dbt import DbtModel

SQL = ".sql"

DatabaseOption = Annotated[
    Path | None,
    typer.Option(
        "--database",
        click_type=LocalPath(),
        help="DuckDB database that SQL reads. It is opened read-only, and no query is run.",
    ),
]


def require_sql_options(
    path: Path | None,
    database: Path | None,
    *,
    of_workflow: Mapping[str, object] = MappingProxyType({}),
    of_one: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Refuse options that do not go with the path.

    Args:
        path: of a query, of several, or of something else.
        database: that is named, if any.
        of_workflow: options that go with workflows and not with SQL.
        of_one: options that go with one query and not with several.

    Raises:
        BadParameter: one of them is given.
    """
    if path is None or not _is_sql(path):
        if database is not None:
            raise typer.BadParameter(f"--database goes with queries: files that end with {SQL}")
        return
    refused = {**of_workflow, **(of_one if is_several(path) else {})}
    if names := [name for name, value in refused.items() if value not in (None, [], False)]:
        what = "several queries" if is_several(path) else "SQL"
        raise typer.BadParameter(f"{', '.join(names)}: not for {what}, leave it out")


def _is_sql(path: Path) -> bool:
    return path.suffix.lower() == SQL or is_several(path)


def is_several(path: Path) -> bool:
    """Return whether a path is a directory of queries, or a dbt project."""
    from fedperf_client.sources.dbt import find_manifest

    return path.is_dir() or find_manifest(path) is not None


@contextmanager
def read_queries(
    store: "ExecutionStore", path: Path, database: Path | None
) -> "Iterator[Iterator[tuple[str, SqlQuery | str]]]":
    """Open the queries at a path.

    Yields an iterator of their names, each with the query or why it cannot be predicted.

    Raises:
        InvalidInputError: the path has no queries, or the database cannot be opened.
    """
    from fedperf_client.sources.dbt import find_manifest, models_of

    manifest = find_manifest(path)
    models = [] if manifest is None else models_of(manifest)
    files = [path] if path.suffix.lower() == SQL else sorted(path.rglob(f"*{SQL}"))
    if not models and not files:
        raise InvalidInputError(f"{path}: no files that end with {SQL}, and no models of dbt")
    with ExitStack() as stack:
        explain = _explainer(stack, store, database)
        if models:
            yield ((each.unique_id, _of_model(store, each, explain)) for each in models)
        else:
            names = [str(each.relative_to(path)) if path.is_dir() else str(each) for each in files]
            texts = zip(names, files, strict=True)
            yield ((name, _of_file(file, explain)) for name, file in texts)


def read_query(
    store: "ExecutionStore", path: Path | None, database: Path | None
) -> "SqlQuery | None":
    """Return the query in a file of SQL; None where the path is something else.

    Raises:
        InvalidInputError: the path is of several queries, or it cannot be predicted.
    """
    if path is None or not _is_sql(path):
        return None
    if is_several(path):
        raise InvalidInputError(f"{path}: several queries; name one file that ends with {SQL}")
    with read_queries(store, path, database) as queries:
        name, query = next(queries)
    if isinstance(query, str):
        raise InvalidInputError(f"{name}: {query}")
    return query


def _explainer(
    stack: ExitStack, store: "ExecutionStore", database: Path | None
) -> "Callable[[str], SqlQuery]":
    """Return a function that explains a text in the database, if one is named."""
    if database is None:

        def refuse(text: str) -> "SqlQuery":
            del text
            raise InvalidInputError(
                "SQL needs the database that it reads: name a DuckDB file with --database"
            )

        return refuse
    from fedperf_client.prediction.serving.sql_query import SqlQuery
    from fedperf_client.sources.duckdb.explain import QueryDatabase

    opened = stack.enter_context(QueryDatabase.open(database))
    return lambda text: SqlQuery.read(store, *opened.explain(text))


def _of_file(file: Path, explain: "Callable[[str], SqlQuery]") -> "SqlQuery | str":
    from fedperf_client.sources.duckdb.explain import read_sql

    try:
        return explain(read_sql(file))
    except InvalidInputError as error:
        return str(error).removeprefix(f"{file}: ")


def _of_model(
    store: "ExecutionStore", model: "DbtModel", explain: "Callable[[str], SqlQuery]"
) -> "SqlQuery | str":
    """Return the query of a model: from its runs in dbt, or from its text."""
    from fedperf_client.prediction.serving.sql_query import SqlQuery

    try:
        if query := SqlQuery.of_dbt_model(store, model.workload, model.statement):
            return query
        if model.compiled_code is None:
            return "not compiled yet; run: dbt compile"
        return explain(model.compiled_code)
    except InvalidInputError as error:
        return str(error)


def problems_of(failed: Sequence[tuple[str, str]]) -> InvalidInputError:
    """Return the error for queries that cannot be predicted; equal reasons are named once."""
    names: dict[str, list[str]] = {}
    for name, reason in failed:
        names.setdefault(reason, []).append(name)
    return InvalidInputError(
        "; ".join(
            f"{some[0]}{f' and {len(some) - 1} more' if some[1:] else ''}: {reason}"
            for reason, some in names.items()
        )
    )
