"""Parts of SQL queries over the shop's tables: columns by their use, conditions, joins along keys.

Every join goes from a table to one with unique keys, so that no join makes more rows than its left
side has. The texts of this module are SQL that DuckDB and Spark read alike.
"""

from collections.abc import Mapping, Sequence
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
"""Tables that queries start from, the first with the most to join."""

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
    """Tables joined along keys: what FROM says, and which they are; columns are `table.column`."""

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
    """One of them."""
    return choices[int(rng.integers(len(choices)))]


def some(rng: np.random.Generator, choices: Sequence[str], least: int, most: int) -> list[str]:
    """Between `least` and `most` of them without repetition, as far as there are."""
    wanted = min(int(rng.integers(least, most + 1)), len(choices))
    places = rng.choice(len(choices), wanted, replace=False)
    return [choices[place] for place in places.tolist()]


def joined(
    rng: np.random.Generator, fact: str, joins: int, *, kinds: Sequence[str] = ("JOIN",)
) -> JoinedTables:
    """A table and up to so many that it points to, also through others."""
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
    found = TABLES[table]
    share = float(keeps if keeps is not None else 10 ** rng.uniform(-1.5, 0))
    kinds = ["number"] + ["day"] * bool(found.days) + ["word"] * (keeps is None)
    kind = pick(rng, [*kinds, "value"] if keeps is None else kinds)
    if kind == "day":
        column = pick(rng, list(found.days))
        first = int((1 - share) * _DAYS * rng.random())
        start = np.datetime64(found.days[column]) + first
        end = start + max(int(share * _DAYS), 1)
        name = f"{table}.{column}"
        return f"{name} >= DATE '{start}' AND {name} < DATE '{end}'"
    if kind == "word":
        column = pick(rng, list(found.words))
        word = pick(rng, found.words[column])
        return f"{table}.{column} {pick(rng, ('LIKE', 'LIKE', 'NOT LIKE'))} '%{word}%'"
    if kind == "value":
        column = pick(rng, found.few)
        if column in _VALUES:
            chosen = sorted(some(rng, _VALUES[column], 1, 3))
            return f"{table}.{column} IN ({', '.join(repr(each) for each in chosen)})"
        return f"{table}.{column} IS NOT NULL"
    column = pick(rng, list(found.numbers))
    low, high = found.numbers[column]
    start_at = low + (high - low) * (1 - share) * rng.random()
    return f"{table}.{column} BETWEEN {start_at:.2f} AND {start_at + (high - low) * share:.2f}"


def conditions(rng: np.random.Generator, source: JoinedTables, least: int, most: int) -> str:
    """A WHERE of some conditions; empty for none."""
    count = int(rng.integers(least, most + 1))
    found = [condition(rng, pick(rng, source.tables)) for _ in range(count)]
    return f" WHERE {' AND '.join(found)}" if found else ""


def figure(rng: np.random.Generator, source: JoinedTables, *, distinct: bool = True) -> str:
    """An aggregate."""
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
    """One to five aggregates with names."""
    count = int(rng.integers(1, 6))
    found = (figure(rng, source, distinct=distinct and place == 0) for place in range(count))
    return ", ".join(f"{each} AS f{place}" for place, each in enumerate(found))


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
