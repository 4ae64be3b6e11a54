"""The text of DuckDB queries: what an operation on one or two inputs is in SQL.

A `DuckDbQuery` is a text and the columns of its result. Everything here only nests texts, in
DuckDB's FROM-first order; nothing is run, and no database is known. Every name and every
literal is quoted by the functions here.

Refused: operations that take rounds, which are no single text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedperf_client.platforms import operations as ops
from fedperf_client.platforms.algebra import NO_CENTER, Vector
from fedperf_client.platforms.engine import UnsupportedOperationError
from fedperf_shared.workflow.vocabulary import Platform


@dataclass(frozen=True, slots=True)
class DuckDbQuery:
    """The text of a query and the columns of its result."""

    text: str
    columns: tuple[str, ...]

    def select(
        self, parts: Iterable[str], columns: Iterable[str], behind: str = ""
    ) -> "DuckDbQuery":
        """Select expressions from this query, with clauses such as WHERE behind them."""
        return DuckDbQuery(f"FROM ({self.text}) SELECT {', '.join(parts)} {behind}", tuple(columns))

    def all(self, behind: str) -> "DuckDbQuery":
        """All columns, with clauses behind them."""
        return DuckDbQuery(f"FROM ({self.text}) {behind}", self.columns)

    def join(self, other: "DuckDbQuery", condition: str, *, kind: str = "JOIN") -> "DuckDbQuery":
        """All columns of both, which must not share a name."""
        text = f"FROM ({self.text}) {kind} ({other.text}) ON {condition}"
        return DuckDbQuery(text, (*self.columns, *other.columns))


def one_input_query(  # noqa: PLR0911 - a dispatch
    operation: ops.AnyOperation, frame: DuckDbQuery
) -> DuckDbQuery:
    """The query of an operation on one input, or UnsupportedOperationError."""
    match operation:
        case ops.Project(keep=keep, computed=computed):
            parts = [*(sql_name(name) for name in keep), *(_computed(each) for each in computed)]
            return frame.select(parts, (*keep, *(each.name for each in computed)))
        case ops.Filter(column=column, comparison=comparison, literal=literal):
            return frame.all(f"WHERE {sql_name(column)} {comparison.value} {sql_literal(literal)}")
        case ops.Aggregate(keys=keys, aggregations=aggregations):
            parts = [sql_names(keys), *(_aggregation(each) for each in aggregations)]
            names = (*keys, *(each.name for each in aggregations))
            return frame.select(parts, names, f"GROUP BY {sql_names(keys)}")
        case ops.GlobalAggregate(aggregations=aggregations):
            parts = [_aggregation(each) for each in aggregations]
            names = tuple(each.name for each in aggregations)
            return frame.select(parts, names, "HAVING count(*) > 0")
        case ops.Distinct(columns=columns):
            return frame.select([f"DISTINCT {sql_names(columns)}"], columns)
        case ops.Sort(by=by):
            return frame.all(f"ORDER BY {_order(by, ())}")
        case ops.TopK(by=by, count=count):
            return frame.all(f"ORDER BY {_order(by, frame.columns)} LIMIT {count}")
        case ops.Window(name=name):
            window = _window(operation, frame.columns)
            return frame.select(["*", window], (*frame.columns, name))
        case ops.Tokenize(column=column, name=name):
            words = f"unnest(string_split({sql_name(column)}, ' '))"
            return frame.select([sql_named(words, name)], (name,)).all(
                f"WHERE {sql_name(name)} <> ''"
            )
    raise UnsupportedOperationError(operation.type, Platform.DUCKDB)


def join_query(operation: ops.Join, left: DuckDbQuery, right: DuckDbQuery) -> DuckDbQuery:
    """The query of a join: left columns, then right columns without the key."""
    names = {
        name: name + operation.right_suffix for name in right.columns if name != operation.right_key
    }
    keyed = renamed(right, {operation.right_key: "right_key__", **names})
    columns = (*left.columns, *names.values())
    joined = left.join(keyed, f"{sql_name(operation.left_key)} = right_key__")
    return joined.select([sql_names(columns)], columns)


def renamed(query: DuckDbQuery, names: dict[str, str]) -> DuckDbQuery:
    """Some of the columns, under new names."""
    parts = [sql_named(sql_name(old), new) for old, new in names.items()]
    return query.select(parts, names.values())


def as_doubles(query: DuckDbQuery, columns: tuple[str, ...], names: tuple[str, ...]) -> DuckDbQuery:
    """Some of the columns as DOUBLE, under new names."""
    pairs = zip(columns, names, strict=True)
    return query.select([sql_named(f"{sql_name(old)}::DOUBLE", new) for old, new in pairs], names)


def nearest_center(
    query: DuckDbQuery, columns: tuple[str, ...], centers: Vector, *, name: str
) -> DuckDbQuery:
    """The query's columns and, as `name`, the number of the nearest center."""
    names = (*query.columns, name)
    if not len(centers):
        return query.select(["*", sql_named(f"{NO_CENTER}::BIGINT", name)], names)
    distances = [f"distance_{number}__" for number in range(len(centers))]
    terms = [
        " + ".join(
            f"({sql_name(column)} - {sql_literal(coordinate)}) ** 2"
            for column, coordinate in zip(columns, center, strict=True)
        )
        for center in centers.tolist()
    ]
    measured = query.select(["*", *map(sql_named, terms, distances)], (*query.columns, *distances))
    whens = " ".join(f"WHEN {each} THEN {number}" for number, each in enumerate(distances))
    nearest = f"(CASE least({', '.join(distances)}) {whens} END)::BIGINT"
    return measured.select([sql_names(query.columns), sql_named(nearest, name)], names)


def model_query(
    names: tuple[str, ...], rows: list[tuple[float, ...]], *, whole: tuple[str, ...] = ()
) -> DuckDbQuery:
    """A query of literals: a trained model, with the columns in `whole` as whole numbers."""
    nothing = (0.0,) * len(names)
    lists = [
        f"({', '.join(sql_literal(float(value)) for value in row)})" for row in rows or [nothing]
    ]
    text = f"FROM (VALUES {', '.join(lists)}) AS model({sql_names(names)})"
    parts = [sql_named(f"{sql_name(n)}::{'BIGINT' if n in whole else 'DOUBLE'}", n) for n in names]
    return DuckDbQuery(text, names).select(parts, names, "" if rows else "WHERE false")


def sql_literal(value: str | float) -> str:
    """A text or number as a literal; a float is a DOUBLE."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}::DOUBLE" if isinstance(value, float) else repr(value)


def sql_name(name: str) -> str:
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def sql_named(expression: str, name: str) -> str:
    """An expression under a name."""
    return f"{expression} AS {sql_name(name)}"


def sql_names(names: Iterable[str]) -> str:
    """Quoted names in a list."""
    return ", ".join(sql_name(name) for name in names)


def _computed(computed: ops.ComputedColumn) -> str:
    expression = f"{sql_name(computed.column)}::DOUBLE"
    for step in computed.steps:
        operand = (
            f"{sql_name(step.operand)}::DOUBLE"
            if isinstance(step.operand, str)
            else sql_literal(float(step.operand))
        )
        expression = f"({expression} {step.operator.value} {operand})"
    return f"{expression} AS {sql_name(computed.name)}"


def _aggregation(aggregation: ops.Aggregation) -> str:
    column = sql_name(aggregation.column)
    expression = {
        ops.AggregateFunction.COUNT: "count(*)",
        ops.AggregateFunction.SUM: f"sum({column})",
        ops.AggregateFunction.MEAN: f"avg({column})",
        ops.AggregateFunction.MIN: f"min({column})",
        ops.AggregateFunction.MAX: f"max({column})",
    }[aggregation.function]
    return f"{expression} AS {sql_name(aggregation.name)}"


def _window(window: ops.Window, columns: Sequence[str]) -> str:
    function = (
        "row_number()"
        if window.function is ops.WindowFunction.ROW_NUMBER
        else f"sum({sql_name(window.column)})"
    )
    return (
        f"{function} OVER (PARTITION BY {sql_names(window.partition)} "
        f"ORDER BY {_order(window.by, columns)} "
        f"ROWS UNBOUNDED PRECEDING) AS {sql_name(window.name)}"
    )


def _order(by: tuple[ops.Order, ...], ties: Sequence[str]) -> str:
    keys = [f"{sql_name(order.column)} {'DESC' if order.descending else 'ASC'}" for order in by]
    named = {order.column for order in by}
    return ", ".join([*keys, *(f"{sql_name(tie)} ASC" for tie in ties if tie not in named)])
