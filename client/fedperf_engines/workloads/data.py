"""Data sets of the shipped workloads: a function of their name, written once as Parquet.

A data set is called `<table>_<scale>`. The scale is one of `SCALES`, and every table has a fixed
share of it in rows. The seed is derived from the name, so every machine has the same rows. Numbers
are small multiples of 1/8, so sums of them are exact in float64 in any order of addition.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from fedperf_engines.platforms.executor import dataset_path
from fedperf_engines.platforms.operations import Column, ColumnType, ReadParquet, Schema
from fedperf_shared.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

SCALES = (
    *(1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
    *(1_000_000, 3_000_000, 10_000_000, 30_000_000),
)
# Generated float columns lie in [0, HIGHEST_NUMBER), evenly unless the table defines another
# distribution.
HIGHEST_NUMBER = 1024.0
DAYS = 2_400  # dates are day numbers in [0, DAYS)
CATEGORIES = 20
GROUPS = 100
REGIONS = 10

# Rows of the scale per row of these tables.
_APPLICATION, _ORDER, _CUSTOMER, _PART, _ITEM = 4, 4, 40, 30, 10
_FEWEST_KEYS = 10

Integers: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = "npt.NDArray[np.generic] | pa.Array"

_INTEGER, _FLOAT, _TEXT = ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TEXT


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """The type of a column, and its values at a scale in a table of so many rows."""

    type: ColumnType
    draw: Callable[[np.random.Generator, int, int], Values]


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """The columns of a generated table, drawn in this order, and its rows at a scale."""

    columns: Mapping[str, GeneratedColumn]
    rows: Callable[[int], int] = int

    @property
    def schema(self) -> Schema:
        """Return the columns of a program that reads all of it."""
        return tuple(Column(name, each.type) for name, each in self.columns.items())


def read(table: str, scale: int, *columns: str) -> ReadParquet:
    """Return the step that reads columns of a table (all of them by default) at a scale."""
    schema = _table(f"{table}_{scale}")[0].schema
    read_columns = tuple(each for each in schema if not columns or each.name in columns)
    return ReadParquet(f"{table}_{scale}", read_columns)


def prepare(datasets: Iterable[str], data_directory: Path) -> tuple[Path, ...]:
    """Write the data sets that the directory lacks; paths in the order of the names.

    Several processes may prepare one directory: files appear whole or not at all.

    Raises:
        InvalidInputError: a name is not that of a generated data set.
    """
    return tuple(_prepared(dataset, data_directory) for dataset in datasets)


def _prepared(dataset: str, data_directory: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = dataset_path(data_directory, dataset)
    table, scale = _table(dataset)
    if not path.is_file():
        data_directory.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(zlib.crc32(dataset.encode()))
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        rows = table.rows(scale)
        columns = {name: each.draw(rng, scale, rows) for name, each in table.columns.items()}
        pq.write_table(pa.table(columns), unfinished, compression="snappy")
        unfinished.replace(path)
    return path


def _table(dataset: str) -> tuple[GeneratedTable, int]:
    name, _, scale = dataset.rpartition("_")
    if name not in TABLES or not scale.isdecimal() or int(scale) not in SCALES:
        raise InvalidInputError(
            f"no generated data set {dataset!r}: TABLE_SCALE with a table of "
            f"{', '.join(TABLES)} and a scale of {', '.join(map(str, SCALES))}"
        )
    return TABLES[name], int(scale)


def _text(words: int, words_per_line: int) -> GeneratedColumn:
    """Return lines of Zipf-distributed words, `scale` words in all."""

    def draw(rng: np.random.Generator, scale: int, _: int) -> "pa.Array":
        import pyarrow as pa
        import pyarrow.compute as pc

        ranks = np.exp(rng.random(scale) * np.log(words)).astype(np.int64) - 1
        offsets = np.arange(0, scale + words_per_line, words_per_line).clip(max=scale)
        lists = pa.ListArray.from_arrays(offsets.astype(np.int32), _vocabulary(words).take(ranks))
        return pc.binary_join(lists, " ")

    return GeneratedColumn(_TEXT, draw)


def _vocabulary(words: int) -> "pa.Array":
    import pyarrow as pa

    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    base = len(syllables)
    names = []
    for number in range(words):
        rest, name = number, ""
        while rest or not name:
            rest, syllable = divmod(rest, base)
            name += syllables[syllable]
        names.append(name)
    return pa.array(names)


def _key(rows_per_key: int = 1) -> GeneratedColumn:
    """Return every key equally often."""
    return GeneratedColumn(
        _INTEGER, lambda _, __, rows: _scattered(np.arange(rows) // rows_per_key)
    )


def _reference(per: int, skew: float) -> GeneratedColumn:
    """Keys of a table with one row per `per` rows of the scale, some of them frequent."""
    return GeneratedColumn(
        _INTEGER,
        lambda rng, scale, rows: _scattered(
            _skewed(rng, rows, distinct=max(scale // per, _FEWEST_KEYS), skew=skew)
        ),
    )


def _whole(low: int, high: int) -> GeneratedColumn:
    """Whole numbers from `low` to below `high`, evenly."""
    return GeneratedColumn(_INTEGER, lambda rng, _, rows: rng.integers(low, high, rows))


def _number(highest: float = HIGHEST_NUMBER) -> GeneratedColumn:
    """Multiples of 1/8 from 0 to below `highest`, evenly."""
    return GeneratedColumn(_FLOAT, lambda rng, _, rows: rng.integers(0, int(highest * 8), rows) / 8)


def _label(prefix: str, count: int) -> GeneratedColumn:
    """Return one of so many texts, evenly."""
    return GeneratedColumn(
        _TEXT, lambda rng, _, rows: _labels(rng.integers(0, count, rows), prefix)
    )


def _skewed_label(prefix: str, count: int, skew: float) -> GeneratedColumn:
    """Return one of so many texts, the first ones more often."""
    return GeneratedColumn(
        _TEXT, lambda rng, _, rows: _labels(_skewed(rng, rows, distinct=count, skew=skew), prefix)
    )


def _skewed(rng: np.random.Generator, rows: int, *, distinct: int, skew: float) -> Integers:
    """Keys in [0, distinct), even for skew 1; the first has a share of distinct ** (-1/skew)."""
    return (distinct * rng.random(rows) ** skew).astype(np.int64)


def _scattered(keys: Integers) -> Integers:
    """Map keys one to one onto numbers below 2**32, so that no engine profits from dense keys."""
    return (keys * 2_654_435_761) % (1 << 32)


def _labels(numbers: Integers, prefix: str) -> "pa.Array":
    import pyarrow as pa

    names = pa.array([f"{prefix}_{number:02d}" for number in range(int(numbers.max()) + 1)])
    return names.take(pa.array(numbers))


def _graph(edges_per_node: int) -> GeneratedTable:
    """Directed edges; a few nodes receive most of them."""
    return GeneratedTable(
        {"source": _reference(edges_per_node, 1.3), "target": _reference(edges_per_node, 3.0)}
    )


def _events(skew: float) -> GeneratedTable:
    """Events that refer to items and groups; with `skew` above 1 some keys are frequent."""
    return GeneratedTable(
        {
            "event": _key(),
            "item": _reference(_ITEM, skew),
            "group_id": GeneratedColumn(
                _INTEGER, lambda rng, _, rows: _skewed(rng, rows, distinct=GROUPS, skew=skew)
            ),
            "category": _whole(0, CATEGORIES),
            "x": _number(),
            "y": _number(),
            "city": _skewed_label("city", 50, skew),
        }
    )


def _one_per(count: int) -> Callable[[int], int]:
    return lambda scale: scale // count


TABLES: Mapping[str, GeneratedTable] = {
    "prose": GeneratedTable({"line": _text(50_000, 12)}),
    "chat": GeneratedTable({"line": _text(3_000, 4)}),
    "web": _graph(8),
    "social": _graph(40),
    "applications": GeneratedTable(
        {
            "application": _key(),
            "income": _number(),
            "amount": _number(),
            "age": _whole(18, 90),
            "region": _label("region", REGIONS),
        },
        _one_per(_APPLICATION),
    ),
    "records": GeneratedTable(
        {
            "application_of": _reference(_APPLICATION, 1.5),
            "balance": _number(),
            "days_late": _whole(0, 120),
            "product": _skewed_label("product", 8, 2.0),
        }
    ),
    "customers": GeneratedTable(
        {
            "customer": _key(),
            "segment": _label("segment", 5),
            "nation": _whole(0, 25),
            "account": _number(),
        },
        _one_per(_CUSTOMER),
    ),
    "orders": GeneratedTable(
        {
            "order_id": _key(),
            "order_customer": _reference(_CUSTOMER, 1.2),
            "order_day": _whole(0, DAYS),
            "priority": _label("priority", 5),
            "total": _number(),
        },
        _one_per(_ORDER),
    ),
    "lines": GeneratedTable(
        {
            "line_order": GeneratedColumn(
                _INTEGER,
                lambda rng, scale, rows: _scattered(rng.integers(0, scale // _ORDER, rows)),
            ),
            "line_part": _reference(_PART, 1.5),
            "quantity": _whole(1, 51),
            "price": _number(),
            "discount": _number(9 / 8),
            "ship_day": _whole(0, DAYS),
            "return_flag": _label("flag", 3),
        }
    ),
    "parts": GeneratedTable(
        {"part": _key(), "brand": _label("brand", 25), "size": _whole(1, 51)}, _one_per(_PART)
    ),
    "events": _events(1.0),
    "hot_events": _events(2.5),
    "items": GeneratedTable(
        {
            "item_key": _key(),
            "weight": _number(),
            "maker": _whole(0, CATEGORIES),
            "color": _label("color", 12),
        },
        _one_per(_ITEM),
    ),
    "offers": GeneratedTable(
        {"offer_item": _key(2), "cost": _number(), "seller": _whole(0, GROUPS)},
        _one_per(_ITEM // 2),
    ),
    "groups": GeneratedTable(
        {
            "group_key": GeneratedColumn(_INTEGER, lambda _, __, rows: np.arange(rows)),
            "budget": _number(),
            "owner": _label("owner", 8),
        },
        lambda _: GROUPS,
    ),
}
