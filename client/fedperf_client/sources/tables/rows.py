"""The rows of a table in a file: CSV, TSV, JSON or Parquet, plain or compressed by gzip.

A row holds cells by column. Cells of CSV are texts; those of JSON and Parquet keep their types. A
nested object is a column for each of its values, with names such as `stats.rows`. JSON is a list of
objects, one object per line, lists by column, or an object with one of these under any key. CSV and
lines of JSON are read row by row, so memory does not grow with them.
"""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from fedperf_client.sources.opener import SourcePlace
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.quantities import size_text

Cell = str | float | bool | datetime | None
Row = dict[str, Cell]

CSV, JSON, PARQUET = (".csv", ".tsv"), (".json", ".jsonl", ".ndjson"), (".parquet",)
LARGEST_DOCUMENT = 512_000_000  # bytes of JSON that is not one object per line
MOST_NAMES = 2000  # columns

_GZIP = b"\x1f\x8b"
_FIRST = 65_536  # bytes that tell the form of a file
_BATCH_ROWS = 4096


class InvalidTableFileError(InvalidInputError):
    """Raised when a file is not a table, or damaged."""

    def __init__(self, path: SourcePlace, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def has_table_name(path: SourcePlace) -> bool:
    """Return whether the name of a file ends like that of a table."""
    return _suffix(path) in (*CSV, *JSON, *PARQUET)


def read_document(path: SourcePlace) -> object:
    """Return the content of a JSON file; None if it is no JSON, or one object per line.

    Raises:
        InvalidTableFileError: it is larger than `LARGEST_DOCUMENT`.
    """
    if _suffix(path) not in JSON:
        return None
    with _opened(path) as stream:
        content = stream.read(LARGEST_DOCUMENT + 1)
    if len(content) > LARGEST_DOCUMENT:
        raise InvalidTableFileError(
            path,
            f"JSON of more than {size_text(LARGEST_DOCUMENT)}; write one object per line (.jsonl)",
        )
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def read_rows(path: SourcePlace, document: object = None) -> Iterator[Row]:
    """Yield the rows of a file, in its order.

    Args:
        path: of the file; its form follows from its name, otherwise from its first bytes.
        document: the content of a JSON file, if `read_document` returned it.

    Raises:
        InvalidTableFileError: it is not a table, or damaged.
        OSError: it cannot be read.
    """
    if document is not None:
        yield from rows_of(path, document)
        return
    match _form(path):
        case ".parquet":
            yield from _parquet_rows(path)
        case ".json":
            yield from _json_lines(path)
        case _:
            yield from _csv_rows(path)


def rows_of(path: SourcePlace, document: object) -> Iterator[Row]:
    """Yield the rows of a JSON document."""
    objects = _objects_in(document)
    if objects is None:
        raise InvalidTableFileError(path, "not a table: expected a list of objects")
    yield from map(_flat, objects)


def _objects_in(document: object) -> list[Mapping[str, object]] | None:
    if isinstance(document, list):
        return document if document and all(isinstance(each, dict) for each in document) else None
    if not isinstance(document, dict):
        return None
    for each in document.values():
        if (inner := _objects_in(each) if isinstance(each, list) else None) is not None:
            return inner
    columns = list(document.values())
    if len({len(each) if isinstance(each, list) else 0 for each in columns} - {0}) == 1 and all(
        columns
    ):
        return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]
    return [document] if any(isinstance(each, int | float) for each in columns) else None


def _flat(content: Mapping[str, object], prefix: str = "") -> Row:
    row: Row = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            row |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | datetime) or value is None:
            row[prefix + name] = value
        elif isinstance(value, date):
            row[prefix + name] = value.isoformat()
        elif hasattr(value, "__float__"):  # decimals
            row[prefix + name] = float(value)
    return row


def _json_lines(path: SourcePlace) -> Iterator[Row]:
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                content = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise InvalidTableFileError(path, f"line {number} is not JSON: {error}") from error
            if not isinstance(content, dict):
                raise InvalidTableFileError(path, f"line {number} is not an object")
            yield _flat(content)


def _parquet_rows(path: SourcePlace) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as stream, parquet.ParquetFile(stream) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                yield from map(_flat, batch.to_pylist())
    except pa.ArrowException as error:
        raise InvalidTableFileError(path, f"not a readable Parquet file: {error}") from error


def _csv_rows(path: SourcePlace) -> Iterator[Row]:
    with _opened(path) as stream:
        first = stream.read(_FIRST)
    if b"\0" in first and not first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidTableFileError(path, "not a text file")
    encoding = "utf-16" if first.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    with _opened(path) as binary:
        text = io.TextIOWrapper(binary, encoding, errors="replace", newline="")
        head = first.decode(encoding, errors="replace").partition("\n")[0]
        rows = csv.reader(text, delimiter=max("\t,;|", key=head.count))
        try:
            names = [each.strip() for each in next(rows, [])]
            _check_names(path, names)
            for cells in rows:
                if rows.line_num == 2 and len(cells) == len(names) + 1:  # noqa: PLR2004 (the second)
                    names = ["", *names]  # R and Spark name no column of row numbers
                if len(cells) == len(names):
                    yield dict(zip(names, cells, strict=True))
                elif cells:
                    raise InvalidTableFileError(
                        path,
                        f"line {rows.line_num} has {len(cells)} cells, the first line names "
                        f"{len(names)} columns",
                    )
        except csv.Error as error:
            raise InvalidTableFileError(path, f"line {rows.line_num}: {error}") from error


def _check_names(path: SourcePlace, names: list[str]) -> None:
    if not any(names):
        raise InvalidTableFileError(path, "no table: the first line names no columns")
    twice = sorted({each for each in names if each and names.count(each) > 1})
    if twice:
        raise InvalidTableFileError(path, f"the column {twice[0]!r} is there twice; rename one")
    if len(names) > MOST_NAMES:
        raise InvalidTableFileError(path, f"{len(names)} columns, at most {MOST_NAMES} are read")


def _suffix(path: SourcePlace) -> str:
    """Return the ending that tells the form, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _form(path: SourcePlace) -> str:
    """Return the first ending of the form of a file, by its name or else by its first bytes."""
    suffix = _suffix(path)
    for each in (CSV, JSON, PARQUET):
        if suffix in each:
            return each[0]
    with _opened(path) as stream:
        first = stream.read(4)
    return ".parquet" if first == b"PAR1" else ".json" if first.startswith(b"{") else ".csv"


@contextmanager
def _opened(path: SourcePlace) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, which are unpacked where gzip packed them."""
    with path.open("rb") as stream:
        is_packed = stream.read(2) == _GZIP
        stream.seek(0)
        if not is_packed:
            yield cast("BinaryIO", stream)
            return
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked:
                yield cast("BinaryIO", unpacked)
        except (EOFError, gzip.BadGzipFile) as error:
            raise InvalidTableFileError(path, f"gzip cannot unpack it: {error}") from error
