"""Arrow tables: what engines hand to each other and what a sink holds.

Engines have types of their own (text views, unsigned counts, huge integers);
`conform` brings their tables to the three column types of programs.
"""

from typing import TypeAlias

import pyarrow as pa

from fedperf_engines.platforms.operations import ColumnType, Schema, names_of

Table: TypeAlias = pa.Table

_TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.FLOAT: pa.float64(),
    ColumnType.TEXT: pa.large_string(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a program's columns."""
    return pa.schema([(column.name, _TYPES[column.type]) for column in schema])


def conform(table: Table, schema: Schema) -> Table:
    """The table with exactly these columns and types; pyarrow.ArrowInvalid if a value is lost."""
    return table.select(list(names_of(schema))).cast(arrow_schema(schema))
