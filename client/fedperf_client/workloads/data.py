"""Data sets of the shipped workloads: a function of their name, written once as Parquet.

A data set is called `<table>_<scale>`; the scale is one of `SCALES` and every
table has a fixed share of it in rows. The seed is derived from the name, so every
machine has the same rows. Numbers are small multiples of 1/8: sums of them are
exact in float64 in whatever order an engine adds them up.
"""

import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from fedperf_client.platforms.executor import dataset_path
from fedperf_client.platforms.operations import Column, ColumnType, ReadParquet, Schema
from fedperf_shared.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

SCALES = (
    *(1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
    *(1_000_000, 3_000_000, 10_000_000, 30_000_000),
)
HIGHEST_NUMBER = 1024.0
"""Generated float columns lie in [0, HIGHEST_NUMBER), evenly unless the table says otherwise."""
DAYS = 2_400
"""Dates are day numbers in [0, DAYS)."""
CATEGORIES = 20
GROUPS = 100
REGIONS = 10

Integers: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = "dict[str, npt.NDArray[np.generic] | pa.Array]"

_INTEGER, _FLOAT, _TEXT = ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TEXT


class UnknownDatasetError(InvalidInputError):
    """A name is not that of a data set that fedperf generates."""

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"no generated data set {dataset!r}: TABLE_SCALE with a table of "
            f"{', '.join(TABLES)} and a scale of {', '.join(map(str, SCALES))}"
        )
        self.dataset = dataset


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """A generated table: its columns, and how they are drawn at a scale."""

    schema: Schema
    draw: Callable[[np.random.Generator, int], Columns]


def read(table: str, scale: int, *columns: str) -> ReadParquet:
    """The step that reads columns of a table (all of them by default) at a scale."""
    schema = _table(f"{table}_{scale}")[0].schema
    chosen = tuple(each for each in schema if not columns or each.name in columns)
    return ReadParquet(f"{table}_{scale}", chosen)


def prepare(datasets: Iterable[str], data_directory: Path) -> tuple[Path, ...]:
    """Write the data sets that the directory lacks; paths in the order of the names.

    Several processes may prepare one directory: files appear whole or not at all.

    Raises:
        UnknownDatasetError: a name is not that of a generated data set.
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
        pq.write_table(pa.table(table.draw(rng, scale)), unfinished, compression="snappy")
        unfinished.replace(path)
    return path


def _table(dataset: str) -> tuple[GeneratedTable, int]:
    name, _, scale = dataset.rpartition("_")
    if name not in TABLES or not scale.isdecimal() or int(scale) not in SCALES:
        raise UnknownDatasetError(dataset)
    return TABLES[name], int(scale)


def _text(words: int, words_per_line: int) -> Callable[[np.random.Generator, int], Columns]:
    """Lines of words whose frequency falls with one over their rank; `scale` words in all."""

    def draw(rng: np.random.Generator, scale: int) -> Columns:
        import pyarrow as pa
        import pyarrow.compute as pc

        ranks = np.exp(rng.random(scale) * np.log(words)).astype(np.int64) - 1
        offsets = np.arange(0, scale + words_per_line, words_per_line).clip(max=scale)
        lists = pa.ListArray.from_arrays(offsets.astype(np.int32), _vocabulary(words).take(ranks))
        return {"line": pc.binary_join(lists, " ")}

    return draw


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


def _graph(edges_per_node: int) -> Callable[[np.random.Generator, int], Columns]:
    """`scale` edges; a few nodes receive most of them."""

    def draw(rng: np.random.Generator, scale: int) -> Columns:
        nodes = max(scale // edges_per_node, 10)
        source = _skewed(rng, scale, distinct=nodes, skew=1.3)
        target = _skewed(rng, scale, distinct=nodes, skew=3.0)
        return {"source": _scattered(source), "target": _scattered(target)}

    return draw


def _applications(rng: np.random.Generator, scale: int) -> Columns:
    rows = applications_at(scale)
    return {
        "application": _scattered(np.arange(rows)),
        "income": _numbers(rng, rows),
        "amount": _numbers(rng, rows),
        "age": rng.integers(18, 90, rows),
        "region": _labels(rng.integers(0, REGIONS, rows), "region"),
    }


def _records(rng: np.random.Generator, scale: int) -> Columns:
    application = _skewed(rng, scale, distinct=applications_at(scale), skew=1.5)
    return {
        "application_of": _scattered(application),
        "balance": _numbers(rng, scale),
        "days_late": rng.integers(0, 120, scale),
        "product": _labels(_skewed(rng, scale, distinct=8, skew=2.0), "product"),
    }


def _customers(rng: np.random.Generator, scale: int) -> Columns:
    rows = customers_at(scale)
    return {
        "customer": _scattered(np.arange(rows)),
        "segment": _labels(rng.integers(0, 5, rows), "segment"),
        "nation": rng.integers(0, 25, rows),
        "account": _numbers(rng, rows),
    }


def _orders(rng: np.random.Generator, scale: int) -> Columns:
    rows = orders_at(scale)
    customer = _skewed(rng, rows, distinct=customers_at(scale), skew=1.2)
    return {
        "order_id": _scattered(np.arange(rows)),
        "order_customer": _scattered(customer),
        "order_day": rng.integers(0, DAYS, rows),
        "priority": _labels(rng.integers(0, 5, rows), "priority"),
        "total": _numbers(rng, rows),
    }


def _lines(rng: np.random.Generator, scale: int) -> Columns:
    return {
        "line_order": _scattered(rng.integers(0, orders_at(scale), scale)),
        "line_part": _scattered(_skewed(rng, scale, distinct=parts_at(scale), skew=1.5)),
        "quantity": rng.integers(1, 51, scale),
        "price": _numbers(rng, scale),
        "discount": rng.integers(0, 9, scale) / 8,
        "ship_day": rng.integers(0, DAYS, scale),
        "return_flag": _labels(rng.integers(0, 3, scale), "flag"),
    }


def _parts(rng: np.random.Generator, scale: int) -> Columns:
    rows = parts_at(scale)
    return {
        "part": _scattered(np.arange(rows)),
        "brand": _labels(rng.integers(0, 25, rows), "brand"),
        "size": rng.integers(1, 51, rows),
    }


def _facts(skew: float) -> Callable[[np.random.Generator, int], Columns]:
    """Events that refer to items and groups; with `skew` above 1 some keys are frequent."""

    def draw(rng: np.random.Generator, scale: int) -> Columns:
        return {
            "event": _scattered(np.arange(scale)),
            "item": _scattered(_skewed(rng, scale, distinct=items_at(scale), skew=skew)),
            "group_id": _skewed(rng, scale, distinct=GROUPS, skew=skew),
            "category": rng.integers(0, CATEGORIES, scale),
            "x": _numbers(rng, scale),
            "y": _numbers(rng, scale),
            "city": _labels(_skewed(rng, scale, distinct=50, skew=skew), "city"),
        }

    return draw


def _items(rng: np.random.Generator, scale: int) -> Columns:
    rows = items_at(scale)
    return {
        "item_key": _scattered(np.arange(rows)),
        "weight": _numbers(rng, rows),
        "maker": rng.integers(0, CATEGORIES, rows),
        "color": _labels(rng.integers(0, 12, rows), "color"),
    }


def _offers(rng: np.random.Generator, scale: int) -> Columns:
    """Exactly two offers per item."""
    item = np.repeat(np.arange(items_at(scale)), 2)
    return {
        "offer_item": _scattered(item),
        "cost": _numbers(rng, len(item)),
        "seller": rng.integers(0, GROUPS, len(item)),
    }


def _groups(rng: np.random.Generator, scale: int) -> Columns:
    del scale
    return {
        "group_key": np.arange(GROUPS),
        "budget": _numbers(rng, GROUPS),
        "owner": _labels(rng.integers(0, 8, GROUPS), "owner"),
    }


def applications_at(scale: int) -> int:
    """Applications beside `scale` records."""
    return scale // 4


def orders_at(scale: int) -> int:
    """Orders beside `scale` lines."""
    return scale // 4


def customers_at(scale: int) -> int:
    """Customers beside `scale` lines."""
    return scale // 40


def parts_at(scale: int) -> int:
    """Parts beside `scale` lines."""
    return scale // 30


def items_at(scale: int) -> int:
    """Items beside `scale` events."""
    return scale // 10


def _numbers(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    return rng.integers(0, int(HIGHEST_NUMBER) * 8, rows) / 8.0


def _skewed(rng: np.random.Generator, rows: int, *, distinct: int, skew: float) -> Integers:
    """Keys in [0, distinct), even for skew 1; the first has a share of distinct ** (-1/skew)."""
    return (distinct * rng.random(rows) ** skew).astype(np.int64)


def _scattered(keys: Integers) -> Integers:
    """One to one onto numbers below 2**32, so that no engine profits from dense keys."""
    return (keys * 2_654_435_761) % (1 << 32)


def _labels(numbers: Integers, prefix: str) -> "pa.Array":
    import pyarrow as pa

    names = pa.array([f"{prefix}_{number:02d}" for number in range(int(numbers.max()) + 1)])
    return names.take(pa.array(numbers))


def _columns(**types: ColumnType) -> Schema:
    return tuple(Column(name, type_) for name, type_ in types.items())


_FACTS = _columns(
    event=_INTEGER,
    item=_INTEGER,
    group_id=_INTEGER,
    category=_INTEGER,
    x=_FLOAT,
    y=_FLOAT,
    city=_TEXT,
)

TABLES = {
    "prose": GeneratedTable(_columns(line=_TEXT), _text(50_000, 12)),
    "chat": GeneratedTable(_columns(line=_TEXT), _text(3_000, 4)),
    "web": GeneratedTable(_columns(source=_INTEGER, target=_INTEGER), _graph(8)),
    "social": GeneratedTable(_columns(source=_INTEGER, target=_INTEGER), _graph(40)),
    "applications": GeneratedTable(
        _columns(application=_INTEGER, income=_FLOAT, amount=_FLOAT, age=_INTEGER, region=_TEXT),
        _applications,
    ),
    "records": GeneratedTable(
        _columns(application_of=_INTEGER, balance=_FLOAT, days_late=_INTEGER, product=_TEXT),
        _records,
    ),
    "customers": GeneratedTable(
        _columns(customer=_INTEGER, segment=_TEXT, nation=_INTEGER, account=_FLOAT), _customers
    ),
    "orders": GeneratedTable(
        _columns(
            order_id=_INTEGER,
            order_customer=_INTEGER,
            order_day=_INTEGER,
            priority=_TEXT,
            total=_FLOAT,
        ),
        _orders,
    ),
    "lines": GeneratedTable(
        _columns(
            line_order=_INTEGER,
            line_part=_INTEGER,
            quantity=_INTEGER,
            price=_FLOAT,
            discount=_FLOAT,
            ship_day=_INTEGER,
            return_flag=_TEXT,
        ),
        _lines,
    ),
    "parts": GeneratedTable(_columns(part=_INTEGER, brand=_TEXT, size=_INTEGER), _parts),
    "events": GeneratedTable(_FACTS, _facts(1.0)),
    "hot_events": GeneratedTable(_FACTS, _facts(2.5)),
    "items": GeneratedTable(
        _columns(item_key=_INTEGER, weight=_FLOAT, maker=_INTEGER, color=_TEXT), _items
    ),
    "offers": GeneratedTable(_columns(offer_item=_INTEGER, cost=_FLOAT, seller=_INTEGER), _offers),
    "groups": GeneratedTable(_columns(group_key=_INTEGER, budget=_FLOAT, owner=_TEXT), _groups),
}
