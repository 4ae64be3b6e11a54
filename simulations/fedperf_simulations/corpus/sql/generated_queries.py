"""Random but sensible SQL over the shop's tables: a query is a function of its number.

No query reads the tables of a held-out query. Some simple queries still have a plan of the same
shape as a held-out one. An evaluation leaves their executions out, by the plan's fingerprint.
Joins go along keys; what could grow faster than its input is left to small tables. The cost
that a query carries is a guess: sizes are chosen by it, nothing is learned from it.

Every join goes from a table to one with unique keys, so that no join makes more rows than its left
side has. DuckDB and Spark read all texts alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ShopTable:
    """A table.

    Attributes:
        share: its rows for each row of `entries`.
        few: columns with up to some hundred values.
        many: columns with values by the thousand.
        numbers: columns to compute with, and the range of their values.
        days: columns that are dates or moments, and their first day.
        words: columns of text, and what may occur in them.
        parents: tables that a column points to with a unique key of the same name.
    """

    share: float
    few: tuple[str, ...]
    many: tuple[str, ...]
    numbers: Mapping[str, tuple[float, float]]
    days: Mapping[str, str]
    words: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, str]


TABLES: Mapping[str, ShopTable] = {
    "entries": ShopTable(
        1.0,
        ("pieces", "rebate"),
        ("product_id", "purchase_id"),
        {"price": (0, 900), "pieces": (1, 12), "rebate": (0, 0.25)},
        {"sent_on": "2019-01-01"},
        {"note": ("gift", "fragile", "call", "blue door", "quick")},
        {"purchases": "purchase_id", "products": "product_id"},
    ),
    "purchases": ShopTable(
        1 / 3,
        ("channel", "state", "store_id"),
        ("buyer_id", "coupon"),
        {"total": (0, 20_000)},
        {"bought_at": "2019-01-01"},
        {"coupon": ("C1", "C39", "7")},
        {"buyers": "buyer_id", "stores": "store_id"},
    ),
    "buyers": ShopTable(
        1 / 30,
        ("tier", "town", "birth_year"),
        ("name", "buyer_id"),
        {"credit": (-500, 8500), "birth_year": (1940, 2007)},
        {"joined": "2012-01-01"},
        {"email": ("@mail.", "@post.", "b77"), "name": ("42", "buyer 1")},
        {},
    ),
    "products": ShopTable(
        1 / 100,
        ("category", "vendor"),
        ("product_id",),
        {"list_price": (0, 500), "grams": (1, 9000)},
        {"launched": "2015-01-01"},
        {"title": ("oak", "lamp", "mini", "steel cable")},
        {},
    ),
    "reviews": ShopTable(
        1 / 5,
        ("stars",),
        ("product_id", "buyer_id"),
        {"stars": (1, 5)},
        {"written_on": "2019-01-01"},
        {"body": ("broken", "never", "good", "slow box", "but late")},
        {"products": "product_id", "buyers": "buyer_id"},
    ),
    "clicks": ShopTable(
        1.0,
        ("device",),
        ("buyer_id", "product_id"),
        {"millis": (0, 60_000)},
        {"clicked_at": "2023-01-01"},
        {"path": ("/cart", "/zoom", "/p/1", "share")},
        {"products": "product_id", "buyers": "buyer_id"},
    ),
    "stores": ShopTable(
        0.0,
        ("area",),
        ("label",),
        {"square_metres": (40, 2040)},
        {},
        {"label": ("Store 1", "9")},
        {},
    ),
}

FACTS = ("entries", "purchases", "reviews", "clicks")
"""First tables of queries. The one with the most joins comes first."""

_VALUES = {
    "channel": ("web", "app", "phone", "desk"),
    "state": ("paid", "open", "sent", "back"),
    "tier": ("basic", "silver", "gold", "black"),
    "device": ("phone", "tablet", "laptop"),
    "area": ("north", "south", "east", "west", "abroad"),
}
_DAYS = 1_500
"""Of these days after its first every column of days has some."""


@dataclass(frozen=True, slots=True)
class JoinedTables:
    """Tables joined along keys: the FROM clause and the tables. Columns are `table.column`."""

    text: str
    tables: tuple[str, ...]

    def few(self) -> list[str]:
        """Columns with few values."""
        return [f"{each}.{column}" for each in self.tables for column in TABLES[each].few]

    def many(self) -> list[str]:
        """Columns of the first table with many values."""
        return [f"{self.tables[0]}.{column}" for column in TABLES[self.tables[0]].many]

    def numbers(self) -> list[str]:
        """Columns to compute with."""
        return [f"{each}.{column}" for each in self.tables for column in TABLES[each].numbers]

    def days(self) -> list[str]:
        """Columns of days."""
        return [f"{each}.{column}" for each in self.tables for column in TABLES[each].days]

    def words(self) -> list[str]:
        """Columns of text."""
        return [f"{each}.{column}" for each in self.tables for column in TABLES[each].words]

    @property
    def share(self) -> float:
        """Rows of all tables for each row of `entries`."""
        return sum(TABLES[each].share for each in self.tables)


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    """Return one of them."""
    return choices[int(rng.integers(len(choices)))]


def some(rng: np.random.Generator, choices: Sequence[str], least: int, most: int) -> list[str]:
    """Between `least` and `most` of them without repetition, as far as there are."""
    count = min(int(rng.integers(least, most + 1)), len(choices))
    places = rng.choice(len(choices), count, replace=False)
    return [choices[place] for place in places.tolist()]


def joined(
    rng: np.random.Generator, fact: str, joins: int, *, kinds: Sequence[str] = ("JOIN",)
) -> JoinedTables:
    """Return a table and up to so many that it points to, also through others."""
    text, tables = fact, [fact]
    for _ in range(joins):
        open_ends = [
            (table, parent, key)
            for table in tables
            for parent, key in TABLES[table].parents.items()
            if parent not in tables
        ]
        if not open_ends:
            break
        table, parent, key = open_ends[int(rng.integers(len(open_ends)))]
        text += f" {pick(rng, kinds)} {parent} ON {parent}.{key} = {table}.{key}"
        tables.append(parent)
    return JoinedTables(text, tuple(tables))


def condition(rng: np.random.Generator, table: str, *, keeps: float | None = None) -> str:
    """A condition on one table that keeps about a share of its rows, drawn where not given."""
    columns = TABLES[table]
    share = float(keeps if keeps is not None else 10 ** rng.uniform(-1.5, 0))
    kinds = ["number"] + ["day"] * bool(columns.days) + ["word"] * (keeps is None)
    kind = pick(rng, [*kinds, "value"] if keeps is None else kinds)
    if kind == "day":
        column = pick(rng, list(columns.days))
        first = int((1 - share) * _DAYS * rng.random())
        start = np.datetime64(columns.days[column]) + first
        end = start + max(int(share * _DAYS), 1)
        name = f"{table}.{column}"
        return f"{name} >= DATE '{start}' AND {name} < DATE '{end}'"
    if kind == "word":
        column = pick(rng, list(columns.words))
        word = pick(rng, columns.words[column])
        return f"{table}.{column} {pick(rng, ('LIKE', 'LIKE', 'NOT LIKE'))} '%{word}%'"
    if kind == "value":
        column = pick(rng, columns.few)
        if column in _VALUES:
            values = sorted(some(rng, _VALUES[column], 1, 3))
            return f"{table}.{column} IN ({', '.join(repr(each) for each in values)})"
        return f"{table}.{column} IS NOT NULL"
    column = pick(rng, list(columns.numbers))
    low, high = columns.numbers[column]
    start_at = low + (high - low) * (1 - share) * rng.random()
    return f"{table}.{column} BETWEEN {start_at:.2f} AND {start_at + (high - low) * share:.2f}"


def conditions(rng: np.random.Generator, source: JoinedTables, least: int, most: int) -> str:
    """Return a WHERE of some conditions. Empty for none."""
    count = int(rng.integers(least, most + 1))
    parts = [condition(rng, pick(rng, source.tables)) for _ in range(count)]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def figure(rng: np.random.Generator, source: JoinedTables, *, distinct: bool = True) -> str:
    """Return an aggregate."""
    number = pick(rng, source.numbers())
    other = pick(rng, [each for each in source.numbers() if each != number] or [number])
    choices = [
        "COUNT(*)",
        f"SUM({number})",
        f"AVG({number})",
        f"MIN({number})",
        f"MAX({number})",
        f"STDDEV_SAMP({number})",
        f"SUM(CAST({number} AS DOUBLE) * (1 + {other}))",
        f"SUM(CASE WHEN {number} > {other} THEN {number} ELSE 0 END)",
        f"MAX(LENGTH({pick(rng, source.words())}))",
    ]
    if distinct:
        choices.append(f"COUNT(DISTINCT {pick(rng, source.few())})")
        choices.append(f"COUNT(DISTINCT {pick(rng, source.many())})")
    return pick(rng, choices)


def figures(rng: np.random.Generator, source: JoinedTables, *, distinct: bool = True) -> str:
    """Return one to five aggregates with names."""
    count = int(rng.integers(1, 6))
    texts = (figure(rng, source, distinct=distinct and place == 0) for place in range(count))
    return ", ".join(f"{each} AS f{place}" for place, each in enumerate(texts))


def expression(rng: np.random.Generator, source: JoinedTables) -> str:
    """Something computed row by row."""
    number, day = pick(rng, source.numbers()), source.days()
    choices = [
        f"{number} * 1.19",
        f"ROUND({number} / 7, 1)",
        f"CASE WHEN {number} > 5 THEN 'more' ELSE 'less' END",
        f"UPPER({pick(rng, source.words())})",
        f"COALESCE({pick(rng, source.words())}, '-')",
        f"CONCAT({pick(rng, source.words())}, ':', {pick(rng, source.words())})",
    ]
    if day:
        choices.append(f"EXTRACT(YEAR FROM {pick(rng, day)})")
        choices.append(f"DATE_TRUNC('month', {pick(rng, day)})")
    return pick(rng, choices)


SCHEMA = "shop"


@dataclass(frozen=True, slots=True)
class GeneratedQuery:
    """One query.

    Attributes:
        family: the name that its executions carry as their workload: kind and number.
        text: SQL that DuckDB and Spark run alike.
        share: rows that it reads for each row of `entries`.
        cost: guess of DuckDB's core seconds for each million rows of `entries`.
        has_many_rows: whether its result grows with its input.
    """

    family: str
    text: str
    share: float
    cost: float
    has_many_rows: bool = False


@dataclass(frozen=True, slots=True)
class _Draft:
    text: str
    share: float
    has_many_rows: bool = False


def drawn_query(number: int, seed: int) -> GeneratedQuery:
    """Return the query of that number."""
    rng = np.random.default_rng([seed, 11, number])
    kind = pick(rng, list(_KINDS))
    draw, seconds = _KINDS[kind]
    draft = draw(rng)
    family, cost = f"{SCHEMA}/{kind}/{number:04d}", seconds * draft.share
    return GeneratedQuery(family, draft.text, draft.share, cost, draft.has_many_rows)


def _fact(rng: np.random.Generator) -> str:
    return pick(rng, (*FACTS, "entries", "purchases"))


def _star(rng: np.random.Generator, most: int = 4) -> JoinedTables:
    return joined(rng, _fact(rng), int(rng.integers(0, most + 1)))


def _columns(rng: np.random.Generator, source: JoinedTables) -> str:
    there = [*source.few(), *source.numbers(), *source.words(), *source.days(), *source.many()]
    columns = sorted(set(some(rng, list(dict.fromkeys(there)), 2, 6)))
    named = [f"{each} AS c{place}" for place, each in enumerate(columns)]
    return ", ".join([*named, f"{expression(rng, source)} AS e"])


def _groups(rng: np.random.Generator, source: JoinedTables, most: int = 3) -> list[str]:
    keys = [*source.few(), *(f"EXTRACT(YEAR FROM {day})" for day in source.days())]
    return some(rng, keys, 1, most)


def _grouped(keys: list[str], values: str, rest: str) -> str:
    named = ", ".join(f"{key} AS g{place}" for place, key in enumerate(keys))
    return f"SELECT {named}, {values} FROM {rest} GROUP BY {', '.join(keys)}"


def _rows(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 2)
    text = f"SELECT {_columns(rng, source)} FROM {source.text}{conditions(rng, source, 0, 2)}"
    return _Draft(text, source.share, has_many_rows=True)


def _sample(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 1)
    where = conditions(rng, source, 2, 4)
    text = f"SELECT {_columns(rng, source)} FROM {source.text}{where} LIMIT {rng.integers(5, 500)}"
    return _Draft(text, source.share)


def _totals(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 2)
    text = f"SELECT {figures(rng, source)} FROM {source.text}{conditions(rng, source, 0, 3)}"
    return _Draft(text, source.share)


def _few_groups(rng: np.random.Generator) -> _Draft:
    source = _star(rng)
    where = source.text + conditions(rng, source, 0, 3)
    text = _grouped(_groups(rng, source), figures(rng, source), where)
    return _Draft(text + pick(rng, ("", " ORDER BY f0 DESC", " ORDER BY g0")), source.share)


def _many_groups(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 2)
    keys = [pick(rng, source.many()), *some(rng, source.few(), 0, 1)]
    text = _grouped(
        keys,
        figures(rng, source, distinct=False),
        source.text + conditions(rng, source, 0, 2),
    )
    ending = pick(
        rng,
        ("", f" HAVING COUNT(*) > {rng.integers(1, 6)}", " ORDER BY f0 DESC, g0 LIMIT 100"),
    )
    return _Draft(text + ending, source.share, has_many_rows="LIMIT" not in ending)


def _groups_of_groups(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 1)
    inner = _grouped(
        [pick(rng, source.many()), pick(rng, source.few())],
        f"{figure(rng, source, distinct=False)} AS f0, COUNT(*) AS n",
        source.text + conditions(rng, source, 0, 2),
    )
    text = f"SELECT g1, COUNT(*) AS groups_of, AVG(f0) AS mean, MAX(n) AS most FROM ({inner}) AS s"
    return _Draft(f"{text} GROUP BY g1 ORDER BY mean", source.share)


def _top(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 2)
    order = f"{pick(rng, source.numbers())} DESC, {pick(rng, source.many())}"
    text = f"SELECT {_columns(rng, source)} FROM {source.text}{conditions(rng, source, 0, 2)}"
    return _Draft(f"{text} ORDER BY {order} LIMIT {10 ** rng.integers(1, 5)}", source.share)


def _sorted(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 1)
    order = ", ".join(some(rng, [*source.numbers(), *source.days(), *source.words()], 1, 3))
    text = f"SELECT {_columns(rng, source)} FROM {source.text}{conditions(rng, source, 0, 1)}"
    return _Draft(f"{text} ORDER BY {order}", source.share, has_many_rows=True)


def _places(rng: np.random.Generator) -> _Draft:
    """Rows by their place in a group."""
    source = _star(rng, 1)
    rank = pick(rng, ("ROW_NUMBER", "RANK", "DENSE_RANK"))
    group = pick(rng, [*source.few(), *source.many()])
    ranked = (
        f"SELECT {group} AS g, {pick(rng, source.numbers())} AS v, {rank}() OVER ("
        f"PARTITION BY {group} ORDER BY {pick(rng, source.numbers())} DESC) AS place "
        f"FROM {source.text}{conditions(rng, source, 0, 2)}"
    )
    top = int(rng.integers(1, 20))
    if rng.random() < 0.5:  # noqa: PLR2004 (a coin)
        return _Draft(
            f"SELECT place, COUNT(*) AS n, AVG(v) AS mean FROM ({ranked}) AS r "
            f"WHERE place <= {top} GROUP BY place ORDER BY place",
            source.share,
        )
    text = f"SELECT g, v, place FROM ({ranked}) AS r WHERE place <= {top}"
    return _Draft(text, source.share, has_many_rows=True)


def _running(rng: np.random.Generator) -> _Draft:
    """Figures over what came before in a group."""
    source = joined(rng, _fact(rng), 0)
    over = (
        f"OVER (PARTITION BY {pick(rng, [*source.many(), *source.few()])} "
        f"ORDER BY {pick(rng, source.days())}"
    )
    number = pick(rng, source.numbers())
    value = pick(
        rng,
        (
            f"SUM({number}) {over} ROWS BETWEEN {rng.integers(1, 30)} PRECEDING AND CURRENT ROW)",
            f"{number} - LAG({number}) {over})",
            f"LEAD({number}, 2) {over})",
            f"AVG({number}) {over})",
        ),
    )
    inner = f"SELECT {pick(rng, source.few())} AS g, {value} AS v FROM {source.text}"
    inner += conditions(rng, source, 0, 2)
    return _Draft(
        f"SELECT g, AVG(v) AS mean, COUNT(v) AS n FROM ({inner}) AS w GROUP BY g", source.share
    )


def _distinct(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 2)
    columns = some(rng, [*source.few(), *source.many()], 1, 3)
    named = ", ".join(f"{each} AS d{place}" for place, each in enumerate(columns))
    text = f"SELECT DISTINCT {named} FROM {source.text}{conditions(rng, source, 0, 2)}"
    return _Draft(text, source.share, has_many_rows=True)


def _present(rng: np.random.Generator) -> _Draft:
    """Rows that have a row elsewhere, or have none."""
    child, parent, key = _link(rng)
    inner = f"{condition(rng, child)} AND {child}.{key} IS NOT NULL"
    test = pick(
        rng,
        (
            f"EXISTS (SELECT 1 FROM {child} WHERE {child}.{key} = {parent}.{key} AND {inner})",
            f"NOT EXISTS (SELECT 1 FROM {child} WHERE {child}.{key} = {parent}.{key} AND {inner})",
            f"{parent}.{key} IN (SELECT {child}.{key} FROM {child} WHERE {inner})",
        ),
    )
    source = joined(rng, parent, int(rng.integers(0, 2)))
    text = _grouped(_groups(rng, source, 2), figures(rng, source), f"{source.text} WHERE {test}")
    return _Draft(text, source.share + TABLES[child].share)


def _link(rng: np.random.Generator) -> tuple[str, str, str]:
    """Return a table, one that it points to, and the key."""
    child = pick(rng, FACTS)
    parent = pick(rng, [each for each in TABLES[child].parents if each != "stores"])
    return child, parent, TABLES[child].parents[parent]


def _together(rng: np.random.Generator) -> _Draft:
    """Parts of several tables one after the other."""
    parts, share = [], 0.0
    for place in range(int(rng.integers(2, 5))):
        source = _star(rng, 1)
        number = pick(rng, source.numbers())
        parts.append(
            f"SELECT 'piece {place}' AS piece, CAST({number} AS DOUBLE) AS v FROM {source.text}"
            + conditions(rng, source, 0, 2)
        )
        share += source.share
    text = "SELECT piece, COUNT(*) AS n, SUM(v) AS total FROM "
    return _Draft(f"{text}({' UNION ALL '.join(parts)}) AS u GROUP BY piece", share)


def _shared(rng: np.random.Generator) -> _Draft:
    """A part that is used twice."""
    source = _star(rng, 2)
    key, group = pick(rng, source.many()), pick(rng, source.few())
    sums = f"{key} AS k, {group} AS g, SUM({pick(rng, source.numbers())}) AS v FROM {source.text}"
    text = f"WITH s AS (SELECT {sums}{conditions(rng, source, 0, 2)} GROUP BY {key}, {group}), "
    text += "m AS (SELECT g, AVG(v) AS mean FROM s GROUP BY g) "
    text += "SELECT s.g, COUNT(*) AS above, SUM(s.v) AS total FROM s JOIN m ON m.g = s.g "
    return _Draft(f"{text}WHERE s.v > m.mean GROUP BY s.g", source.share)


def _subtotals(rng: np.random.Generator) -> _Draft:
    source = _star(rng, 3)
    keys = some(rng, source.few(), 2, 3)
    named = ", ".join(f"{key} AS g{place}" for place, key in enumerate(keys))
    how = f"{pick(rng, ('ROLLUP', 'CUBE'))} ({', '.join(keys)})"
    text = f"SELECT {named}, {figures(rng, source, distinct=False)} FROM {source.text}"
    return _Draft(f"{text}{conditions(rng, source, 0, 2)} GROUP BY {how}", source.share)


def _words(rng: np.random.Generator) -> _Draft:
    """Groups by a piece of a text."""
    source = _star(rng, 1)
    word = pick(rng, source.words())
    key = pick(
        rng,
        (
            f"UPPER(SUBSTRING({word}, 1, {rng.integers(2, 7)}))",
            f"REPLACE({word}, 'a', '')",
            f"LENGTH(TRIM({word}))",
            f"LOWER(CONCAT(SUBSTRING({word}, 2, 3), '-', {pick(rng, source.few())}))",
        ),
    )
    where = source.text + conditions(rng, source, 0, 1)
    text = _grouped([key], f"COUNT(*) AS f0, MAX({word}) AS last_one", where)
    return _Draft(f"{text} ORDER BY f0 DESC, g0 LIMIT 200", source.share)


def _pairs(rng: np.random.Generator) -> _Draft:
    """Entries of one purchase with each other: three at most."""
    where = " AND ".join(
        condition(rng, "entries").replace("entries.", "a.") for _ in range(rng.integers(1, 3))
    )
    column = pick(rng, ("product_id", "pieces", "note"))
    text = (
        f"SELECT a.{column} AS one, COUNT(*) AS n, SUM(b.price - a.price) AS more FROM entries a "
        f"JOIN entries b ON b.purchase_id = a.purchase_id AND b.{column} > a.{column} "
        f"WHERE {where} GROUP BY a.{column} HAVING COUNT(*) > {rng.integers(1, 40)}"
    )
    return _Draft(text, 2.0, has_many_rows=True)


def _compared(rng: np.random.Generator) -> _Draft:
    """Rows above a figure of all, or of their own group."""
    source = joined(rng, _fact(rng), 0)
    fact, number = source.tables[0], pick(rng, source.numbers())
    key = pick(rng, TABLES[fact].many)
    same = pick(rng, ("", f" WHERE i.{key} = {fact}.{key}"))
    inner = f"(SELECT AVG(i.{number.partition('.')[2]}) * {rng.uniform(0.5, 1.8):.2f} FROM {fact} i"
    rest = f"{source.text} WHERE {number} > {inner}{same}) AND {condition(rng, fact)}"
    return _Draft(_grouped(_groups(rng, source, 2), figures(rng, source), rest), 2 * source.share)


def _outer(rng: np.random.Generator) -> _Draft:
    """Return all rows of a table with sums of another, where there are any."""
    child, parent, key = _link(rng)
    number = f"{child}.{pick(rng, list(TABLES[child].numbers))}"
    sums = f"SELECT {child}.{key} AS k, SUM({number}) AS v, COUNT(*) AS n FROM {child}"
    sums += f" WHERE {condition(rng, child)} GROUP BY {child}.{key}"
    how = pick(rng, ("LEFT JOIN", "LEFT JOIN", "FULL OUTER JOIN"))
    group = f"{parent}.{pick(rng, TABLES[parent].few)}"
    text = (
        f"SELECT {group} AS g, COUNT(*) AS n, COUNT(s.n) AS found, AVG(COALESCE(s.v, 0)) AS mean "
        f"FROM {parent} {how} ({sums}) AS s ON s.k = {parent}.{key} GROUP BY {group}"
    )
    return _Draft(text, TABLES[parent].share + TABLES[child].share)


def _uneven(rng: np.random.Generator) -> _Draft:
    """Return a join by a range, with two hundred stores."""
    text = (
        f"SELECT stores.area AS g, COUNT(*) AS n, AVG(purchases.total) AS mean FROM purchases "
        f"JOIN stores ON purchases.total < stores.square_metres * {rng.uniform(0.5, 15):.1f} "
        f"WHERE {condition(rng, 'purchases', keeps=float(rng.uniform(0.01, 0.2)))} "
        "GROUP BY stores.area"
    )
    return _Draft(text, 1 / 3)


def _turned(rng: np.random.Generator) -> _Draft:
    """Groups as columns."""
    source = _star(rng, 2)
    number = pick(rng, source.numbers())
    table, _, column = number.partition(".")
    low, high = TABLES[table].numbers[column]
    edges = np.linspace(low, high, int(rng.integers(3, 9))).round(2).tolist()
    columns = ", ".join(
        f"SUM(CASE WHEN {number} >= {edge} THEN 1 ELSE 0 END) AS over_{place}"
        for place, edge in enumerate(edges)
    )
    where = source.text + conditions(rng, source, 0, 2)
    return _Draft(_grouped(_groups(rng, source, 2), columns, where), source.share)


_KINDS: Mapping[str, tuple[Callable[[np.random.Generator], _Draft], float]] = {
    "rows": (_rows, 0.12),
    "sample": (_sample, 0.01),
    "totals": (_totals, 0.025),
    "few_groups": (_few_groups, 0.05),
    "many_groups": (_many_groups, 0.1),
    "groups_of_groups": (_groups_of_groups, 0.08),
    "top": (_top, 0.05),
    "sorted": (_sorted, 0.4),
    "places": (_places, 0.2),
    "running": (_running, 0.3),
    "distinct": (_distinct, 0.08),
    "present": (_present, 0.05),
    "together": (_together, 0.02),
    "shared": (_shared, 0.08),
    "subtotals": (_subtotals, 0.1),
    "words": (_words, 0.08),
    "pairs": (_pairs, 0.06),
    "compared": (_compared, 0.04),
    "outer": (_outer, 0.07),
    "uneven": (_uneven, 0.3),
    "turned": (_turned, 0.06),
}
"""The generator of each kind, and DuckDB's estimated core seconds per million rows read."""
