"""Verification of `OUT/summary.json` against its kept cells.

Cells are read and never computed. The experiment's own code makes rows, targets and cases of them
once more, and every difference is a line. A difference is a cell that is missing, edited, or of
other code, data or versions, or a value that does not follow from the cells.
"""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.harness.cells import KeptCell, UnfitCellError
from fedperf_simulations.harness.dependencies import Dependencies
from fedperf_simulations.harness.experiment import (
    Experiment,
    Settings,
    dependencies_of,
    outcome_of_kept,
    tables,
)

CLOSE = 1e-9
"""Relative. Sums of floats differ by less between processors."""

MOST_SHOWN = 20
"""Differences of values that have a line each."""

Summary = Mapping[str, Any]


def read_summary(out: Path) -> Summary:
    """Return the content of `OUT/summary.json`.

    Raises:
        InvalidInputError: there is none that an experiment wrote.
    """
    path = out / "summary.json"
    try:
        summary = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError) as error:
        raise InvalidInputError(f"{path} is no summary of an experiment") from error
    if not isinstance(summary, dict) or "cells" not in summary.get("provenance", {}):
        raise InvalidInputError(f"{path} names no cells; run the experiment again")
    return summary


def differences(experiment: Experiment, out: Path, *, data: Path | None) -> Iterator[str]:
    """A line for every difference between the summary and what is kept. None where all is well.

    Raises:
        InvalidInputError: there is no summary, or a public file is missing.
    """
    summary = read_summary(out)
    stamp = summary["provenance"]
    stored = list(_cells(out, stamp["cells"]))
    yield from stored
    depends = dependencies_of(experiment, data)
    others = list(depends.differences(Dependencies(**stamp["dependencies"])))
    yield from others
    if stored or others:
        return
    with tempfile.TemporaryDirectory() as charts:
        reading = Settings(
            seed=stamp["seed"],
            out=Path(charts),
            data=data,
            quick=stamp["quick"],
            dependencies=depends.digest,
            stored_results=out,
        )
        try:
            outcome = outcome_of_kept(experiment, reading, depends)
        except UnfitCellError as error:
            yield str(error)
            return
    yield from _names(reading.used, stamp["cells"])
    recomputed = orjson.loads(orjson.dumps(tables(outcome), option=orjson.OPT_SERIALIZE_NUMPY))
    lines = [line for name, rows in recomputed.items() for line in _rows(name, summary[name], rows)]
    yield from lines[:MOST_SHOWN]
    if len(lines) > MOST_SHOWN:
        yield f"{len(lines) - MOST_SHOWN} more values differ"


def _cells(out: Path, digests: Mapping[str, str]) -> Iterator[str]:
    """Cells that are not those that the summary rests on."""
    for name, digest in digests.items():
        try:
            cell = KeptCell.read(out / "cells" / f"{name}.json")
        except UnfitCellError as error:
            yield str(error)
        else:
            if cell.digest != digest:
                yield f"cell {name}: not the one that the summary rests on"


def _names(used: Mapping[str, str], named: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(used.keys() ^ named.keys()):
        yield f"cell {name}: " + ("not named by the summary" if name in used else "of no use")


def _rows(name: str, there: Sequence[Summary], recomputed: Sequence[Summary]) -> Iterator[str]:
    """Values of a table that differ."""
    if len(there) != len(recomputed):
        yield f"{name}: the summary has {len(there)}, the cells give {len(recomputed)}"
        return
    for place, (row, other) in enumerate(zip(there, recomputed, strict=True)):
        for column in dict.fromkeys([*row, *other]):
            summarized, stored = row.get(column), other.get(column)
            if not _same(summarized, stored):
                what = f"{name} {place}, {column}: the summary has {summarized!r}"
                yield f"{what}, the cells give {stored!r}"


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=CLOSE)
    return one == other
