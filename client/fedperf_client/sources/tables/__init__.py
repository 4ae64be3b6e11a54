"""Tables of past runs as a source of executions."""

from typing import TYPE_CHECKING

from fedperf_client.sources.opener import SourcePlace
from fedperf_client.sources.tables.rows import has_table_name

if TYPE_CHECKING:
    from fedperf_client.sources.tables.source import TableSource


def open_table(path: SourcePlace) -> "TableSource | None":
    """Recognize a table by its name and its columns; see `OpenSource`."""
    if not path.is_file() or not has_table_name(path):
        return None
    # Logs are read without the libraries that read tables.
    from fedperf_client.sources.tables.source import TableSource

    source = TableSource(path)
    _ = source.columns
    return source
