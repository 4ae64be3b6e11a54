"""The SQL sessions that are measured, each drawn as a function of kind, number and seed.

Sizes are drawn by a guess of what a query costs, so that times spread evenly in their logarithm.
Families come from one pool, so that a text is met at several sizes and settings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.generated_queries import (
    SCHEMA,
    GeneratedQuery,
    drawn_query,
    pick,
)
from fedperf_simulations.corpus.sql.sessions import (
    FILE_OF_ENTRIES,
    Outcome,
    SessionKind,
    SqlSession,
    SqlStep,
)
from fedperf_simulations.corpus.sql.tables import MOST_ROWS, Storage, TableSet, held_out_queries

COUNTS = {SessionKind.SPARK: 90, SessionKind.DUCKDB: 60, SessionKind.HELD_OUT: 5}
"""Sessions of each kind."""

FAMILIES = 800
"""Texts that sessions draw from."""

ROWS = (10_000, 50_000, 250_000, 1_000_000, 5_000_000, 30_000_000)
HELD_OUT_ROWS = (1_000_000, 30_000_000)

_STEPS = {Platform.DUCKDB: (22, 29), Platform.SPARK: (14, 19)}
_BUDGETS = {Platform.DUCKDB: (0.03, 60.0), Platform.SPARK: (0.2, 80.0)}
"""Seconds that a query may take by the guess, drawn evenly in their logarithm."""

_FIRST_SECONDS = {Platform.DUCKDB: 0.005, Platform.SPARK: 0.5}
_TIMES_DUCKDB = {Platform.DUCKDB: 1.0, Platform.SPARK: 6.0}
_TEXT_SECONDS = {Storage.CSV: 0.4, Storage.JSON: 1.2}
"""For each million rows that DuckDB reads."""

_STORAGES = {
    Platform.DUCKDB: ((Storage.PARQUET, 8), (Storage.NATIVE, 9), (Storage.PARTS, 1),
                      (Storage.CSV, 1), (Storage.JSON, 1)),
    Platform.SPARK: ((Storage.PARQUET, 13), (Storage.PARTS, 2), (Storage.CSV, 3),
                     (Storage.JSON, 2)),
}  # fmt: skip
_SINKS = {
    Platform.DUCKDB: (Outcome.TABLE, Outcome.TABLE, Outcome.PARQUET, Outcome.CSV),
    Platform.SPARK: (Outcome.DISCARD, Outcome.DISCARD, Outcome.PARQUET, Outcome.CSV, Outcome.JSON),
}
_GIB = 1 << 30
_DUCKDB_MEMORY = (_GIB // 2, _GIB, 2 * _GIB, 8 * _GIB)
_SPARK_MEMORY = (_GIB, 2 * _GIB, 4 * _GIB)
_PARTITIONS = ("2", "4", "8", "16", "64", "200")

_PYTHON = {
    "python_rows": "SELECT label_of(pieces) AS g, COUNT(*) AS n FROM entries GROUP BY 1",
    "python_filter": "SELECT COUNT(*) AS n FROM buyers WHERE label_of(birth_year) = 'odd'",
    "pandas_rows": "SELECT SUM(net_of(price, rebate)) AS net FROM entries WHERE pieces > 3",
    "pandas_words": "SELECT MAX(net_of(total, store_id)) AS most, COUNT(*) AS n FROM purchases",
}  # fmt: skip
_GROUPS = "SELECT store_id AS g, total AS v FROM purchases WHERE channel = 'web'"
_EXPLODED = (
    "SELECT word, COUNT(*) AS n FROM (SELECT EXPLODE(SPLIT(note, ' ')) AS word FROM entries) AS w "
    "GROUP BY word ORDER BY n DESC"
)
_LINES = (
    f"SELECT LENGTH(value) AS letters, COUNT(*) AS n FROM text.`{FILE_OF_ENTRIES}` "
    "WHERE value LIKE '%gift%' GROUP BY LENGTH(value)"
)
_COMMANDS = (
    "ANALYZE TABLE entries COMPUTE STATISTICS",
    "ANALYZE TABLE purchases COMPUTE STATISTICS FOR COLUMNS total, channel",
    "SHOW TABLES",
    "DESCRIBE TABLE EXTENDED entries",
    "CREATE OR REPLACE TEMPORARY VIEW late AS SELECT * FROM entries WHERE sent_on IS NULL",
)


@dataclass(frozen=True, slots=True)
class SessionDesign:
    """Which sessions are measured.

    Attributes:
        kind: of all of them.
        seed: of everything that is drawn.
        count: how many, from number 0 on.
        is_quick: tiny tables only.
    """

    kind: SessionKind
    seed: int
    count: int
    is_quick: bool = False

    def session(self, number: int) -> SqlSession:
        """Return the session of that number."""
        draw = {
            SessionKind.SPARK: _spark,
            SessionKind.DUCKDB: _duckdb,
            SessionKind.HELD_OUT: _held_out,
        }[self.kind]
        session = draw(number, self.seed)
        if not self.is_quick:
            return session
        steps = tuple(
            replace(step, tables=replace(step.tables, rows=ROWS[0])) for step in session.steps
        )
        return replace(session, steps=steps)

    def sessions(self) -> Iterator[SqlSession]:
        """Yield all of them."""
        return map(self.session, range(self.count))


def _held_out(number: int, seed: int) -> SqlSession:
    """Each size in Parquet and natively. The last session is Spark's, on the smaller size."""
    del seed  # what is judged is fixed
    is_spark = number == len(HELD_OUT_ROWS) * 2
    rows = HELD_OUT_ROWS[0 if is_spark else number // 2]
    storage = Storage.NATIVE if number % 2 else Storage.PARQUET
    steps = tuple(
        SqlStep(each.family, each.text, TableSet(each.schema, rows, storage), runs=3)
        for each in held_out_queries()
    )
    if not is_spark:
        return SqlSession(SessionKind.HELD_OUT, number, Platform.DUCKDB, 2, 8 * _GIB, steps)
    once = tuple(replace(step, runs=1) for step in steps)
    return SqlSession(SessionKind.HELD_OUT, number, Platform.SPARK, 2, 4 * _GIB, once)


def _duckdb(number: int, seed: int) -> SqlSession:
    rng = np.random.default_rng([seed, 12, number])
    threads = int(rng.integers(1, 3))
    memory = _DUCKDB_MEMORY[int(rng.integers(len(_DUCKDB_MEMORY)))]
    steps = tuple(_drawn_steps(rng, seed, Platform.DUCKDB))
    return SqlSession(SessionKind.DUCKDB, number, Platform.DUCKDB, threads, memory, steps)


def _spark(number: int, seed: int) -> SqlSession:
    rng = np.random.default_rng([seed, 13, number])
    settings = {"spark.sql.shuffle.partitions": pick(rng, _PARTITIONS)}
    if rng.random() < 0.4:  # noqa: PLR2004 (chances, here and below)
        settings["spark.sql.adaptive.enabled"] = "false"
    if rng.random() < 0.4:  # noqa: PLR2004
        settings["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    threads = int(rng.integers(1, 3))
    memory = _SPARK_MEMORY[int(rng.integers(len(_SPARK_MEMORY)))]
    blocks = [[step] for step in _drawn_steps(rng, seed, Platform.SPARK)]
    extras = (_cached, _small, _python, _lines, _commands)
    for chance, extra in zip((0.4, 0.5, 0.35, 0.3, 0.5), extras, strict=True):
        if rng.random() < chance:
            blocks.insert(int(rng.integers(len(blocks) + 1)), extra(rng, seed))
    steps = tuple(step for block in blocks for step in block)
    return SqlSession(SessionKind.SPARK, number, Platform.SPARK, threads, memory, steps, settings)


def _drawn_steps(rng: np.random.Generator, seed: int, engine: Platform) -> Iterator[SqlStep]:
    for number in rng.choice(FAMILIES, int(rng.integers(*_STEPS[engine])), replace=False).tolist():
        query = drawn_query(number, seed)
        step = _step(query, _tables(rng, query, engine), rng, engine)
        yield step
        if rng.random() < 0.15:  # noqa: PLR2004
            yield step  # once more, warm


def _tables(rng: np.random.Generator, query: GeneratedQuery, engine: Platform) -> TableSet:
    """Return the largest at which the query keeps a drawn budget."""
    storages, weights = zip(*_STORAGES[engine], strict=True)
    chances = np.array(weights) / sum(weights)
    storage = storages[int(rng.choice(len(storages), p=chances))]
    low, high = np.log(_BUDGETS[engine])
    budget = float(np.exp(rng.uniform(low, high))) - _FIRST_SECONDS[engine]
    each = query.cost + query.share * _TEXT_SECONDS.get(storage, 0.0)
    fitting = [
        rows
        for rows in ROWS
        if rows <= MOST_ROWS.get(storage, rows)
        and each * _TIMES_DUCKDB[engine] * rows / 1e6 <= budget
    ]
    return TableSet(SCHEMA, fitting[-1] if fitting else ROWS[0], storage)


def _step(
    query: GeneratedQuery, tables: TableSet, rng: np.random.Generator, engine: Platform
) -> SqlStep:
    sinks = _SINKS[engine]
    sink = sinks[int(rng.integers(len(sinks)))] if query.has_many_rows else Outcome.COLLECT
    return SqlStep(query.family, query.text, tables, sink)


def _small(rng: np.random.Generator, seed: int) -> list[SqlStep]:
    """Queries whose cost is mostly startup, one after the other."""
    tables = TableSet(SCHEMA, ROWS[0], Storage.PARQUET)
    numbers = rng.choice(FAMILIES, 6, replace=False).tolist()
    return [_step(drawn_query(each, seed), tables, rng, Platform.SPARK) for each in numbers]


def _cached(rng: np.random.Generator, seed: int) -> list[SqlStep]:
    """Return a table in memory and its queries."""
    tables = TableSet(SCHEMA, ROWS[int(rng.integers(2, 5))], Storage.PARQUET)
    table = pick(rng, ("entries", "purchases"))
    asking = (drawn_query(each, seed) for each in rng.permutation(FAMILIES).tolist())
    texts = (each for each in asking if f"FROM {table}" in each.text)
    cache, uncache = (
        SqlStep(f"spark/{word.lower()}/{table}", f"{word} TABLE {table}", tables, Outcome.COMMAND)
        for word in ("CACHE", "UNCACHE")
    )
    count = SqlStep(f"spark/count/{table}", f"SELECT COUNT(*) AS n FROM {table}", tables)
    statements = [
        _step(each, tables, rng, Platform.SPARK) for each, _ in zip(texts, range(3), strict=False)
    ]
    return [cache, count, *statements, uncache]


def _python(rng: np.random.Generator, seed: int) -> list[SqlStep]:
    """Functions of Python, row by row and by batches of rows."""
    del seed
    names = rng.choice(list(_PYTHON), 2, replace=False).tolist()
    tables = _spark_only(rng)
    steps = [SqlStep(f"spark/{each}", _PYTHON[each], tables) for each in names]
    return [*steps, SqlStep("spark/pandas_groups", _GROUPS, tables, Outcome.PANDAS)]


def _lines(rng: np.random.Generator, seed: int) -> list[SqlStep]:
    """Words of a column, and lines of a file."""
    del seed
    lines = TableSet(SCHEMA, ROWS[int(rng.integers(0, 5))], Storage.CSV)
    return [
        SqlStep("spark/words", _EXPLODED, _spark_only(rng)),
        SqlStep("spark/lines", _LINES, lines),
    ]


def _commands(rng: np.random.Generator, seed: int) -> list[SqlStep]:
    """Statements that change or show the catalogue."""
    del seed
    tables = _spark_only(rng)
    places = rng.choice(len(_COMMANDS), 3, replace=False).tolist()
    return [
        SqlStep(f"spark/command/{each}", _COMMANDS[each], tables, Outcome.COMMAND)
        for each in places
    ]


def _spark_only(rng: np.random.Generator) -> TableSet:
    return TableSet(SCHEMA, ROWS[int(rng.integers(0, 5))], Storage.PARQUET)
