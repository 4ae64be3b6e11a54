"""The synthetic batch: rows that follow from released reports, and more rows like them.

A batch is post-processing. It is a function of released reports, of the correction (itself
a function of them), of public plans, of the shared model and of a public seed, so it costs
no privacy: two histories whose reports are the same bytes have the same batch.

`more_rows` answers for a part of it ("POLARS, from a million rows on"): SDV fits a Gaussian
copula on the rows of the batch and draws, under the public schema (`public_table`) and the
constraints below. It takes a `SyntheticBatch` and nothing else, and a batch comes from
reports or from what was published of them, never from executions: SDV sees only what is
differentially private already. What it draws has no plan and only roughly the batch's
spread, but the level of its cell. SDV is imported when it is needed; it prints nothing,
writes no files and draws from the seed that it is given.
"""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from sqlalchemy.orm import Session

from fedperf_server.inference.corrections import CellCorrectionPosterior, ReceivedReport
from fedperf_server.rehearsal.synthetic_rows import Catalogue, PredictLog, cell_shares, draw_rows
from fedperf_server.state import registry
from fedperf_shared.errors import InvalidInputError, PrivacyRefusedError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.releases.basis import PLATFORM_GROUPS, SIZE_BOUNDS, Cell
from fedperf_shared.releases.public_table import (
    CELL_COLUMNS,
    CLUSTER_COLUMNS,
    METADATA,
    TABLE,
    TableRow,
    size_bounds,
)
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

if TYPE_CHECKING:
    import pandas as pd
    from sdv.cag.base import BaseConstraint
    from sdv.single_table import GaussianCopulaSynthesizer

T = TypeVar("T")

LEAST_ROWS = 2
"""Rows of a batch below which there is no distribution to draw from."""

MOST_ROWS = 10_000
"""Most rows that can be asked for."""

DRAWN_AT_ONCE = 500
"""Least rows that SDV is asked for, so that few of a rare kind are found as well."""

_NOTHING_FOUND = "Unable to sample any rows"
"""How SDV says that no row met the condition."""


class NoSuchRowsError(InvalidInputError):
    """The batch has no rows of the kind that was asked for."""


class NotReleasedError(PrivacyRefusedError):
    """Somebody tried to fit on something that is no synthetic batch."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"only a synthetic batch may be fitted on, which follows from released reports; "
            f"got {type(found).__name__}"
        )


@dataclass(frozen=True, slots=True)
class SyntheticBatch:
    """Synthetic rows that follow from released reports; made by the two ways below only."""

    rows: tuple[SyntheticRow, ...]

    @classmethod
    def from_reports(
        cls,
        reports: Sequence[ReceivedReport],
        correction: CellCorrectionPosterior,
        catalogue: Catalogue,
        *,
        rows: int,
        predict: PredictLog,
        seed: int,
    ) -> Self:
        """Rows on public plans and clusters: drawn by noisy counts, labelled by the model.

        Args:
            reports: released, all against the correction's reference version.
            correction: what follows from them.
            catalogue: public plans on public clusters, by cell.
            rows: how many, a public number; none where the reports say nothing.
            predict: the reference model.
            seed: of the draw, public.
        """
        shares = cell_shares(reports, reference_version=correction.reference_version)
        return cls(
            draw_rows(
                shares,
                catalogue,
                rows=rows,
                predict=predict,
                correction=correction.mean,
                seed=seed,
            )
        )

    @classmethod
    def published(cls, session: Session) -> Self:
        """The batch that this coordinator publishes; empty while there is none."""
        return cls(registry.published_rows(session))

    def table(self) -> tuple[TableRow, ...]:
        """The rows in the public table."""
        return tuple(TableRow.of(row.plan, row.cluster, row.log_seconds) for row in self.rows)


@dataclass(frozen=True, slots=True)
class CellCondition:
    """Which cells are asked for; None means any.

    Attributes:
        platform: main platform.
        operator_class: most special operator class.
        size: group of source rows, 0 to 3.
    """

    platform: Platform | None = None
    operator_class: OperatorClass | None = None
    size: int | None = None

    @classmethod
    def parse(
        cls, *, platform: str | None = None, operator_class: str | None = None, size: int | None
    ) -> Self:
        """The condition in the words of a user.

        Raises:
            InvalidInputError: a word is none of the vocabulary; the message lists them.
        """
        if size is not None and not 0 <= size <= len(SIZE_BOUNDS):
            raise InvalidInputError(f"size must be 0 to {len(SIZE_BOUNDS)}, got {size}")
        platforms = {each.name.lower(): each for each in PLATFORM_GROUPS}
        classes = {each.name.lower(): each for each in OperatorClass}
        return cls(
            _named("platform", platform, platforms),
            _named("operator class", operator_class, classes),
            size,
        )

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is asked for."""
        asked = {each.name: getattr(self, each.name) for each in fields(self)}
        return all(value in (None, getattr(cell, name)) for name, value in asked.items())

    def as_words(self) -> dict[str, str | int]:
        """The condition in words, by the columns of the public table."""
        asked = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value.name.lower() if isinstance(value, Platform | OperatorClass) else value
            for name, value in asked.items()
            if value is not None
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_words().items()) or "any kind"


def more_rows(
    batch: SyntheticBatch, condition: CellCondition, *, rows: int, seed: int
) -> tuple[TableRow, ...]:
    """`rows` rows of the cells that `condition` asks for, each about as often as in the batch.

    SDV draws cell, cluster, operators, source rows and the run time's distance from the mean of
    its cell. The same batch, condition and seed give the same rows.

    Raises:
        NotReleasedError: `batch` is no synthetic batch.
        NoSuchRowsError: the batch has no such rows, or too few to draw from.
        InvalidInputError: `rows` is not in [1, `MOST_ROWS`].
    """
    if not isinstance(batch, SyntheticBatch):
        raise NotReleasedError(batch)
    if not 1 <= rows <= MOST_ROWS:
        raise InvalidInputError(f"rows must be in [1, {MOST_ROWS}], got {rows}")
    table = batch.table()
    if not table:
        raise NoSuchRowsError(
            "no synthetic batch is published yet; the first follows from the first reports, whose "
            "dates `fedperf-server calendar` shows"
        )
    matching = sum(condition.holds(row.cell) for row in table)
    if not matching or len(table) < LEAST_ROWS:
        raise NoSuchRowsError(
            f"the batch has {len(table)} rows, {matching} of them of {condition}; "
            "ask for less, or wait for more reports"
        )
    levels = _levels(table)
    with _quiet_sdv():
        synthesizer = _fitted(_relative(table, levels))
        sampled = _sampled(synthesizer, condition, max(rows, DRAWN_AT_ONCE), seed)
    if len(sampled) < rows:
        raise _too_rare(condition, len(sampled), rows)
    return _absolute(sampled.head(rows), levels)


def constraints() -> "list[BaseConstraint]":
    """The constraints on rows: cells and clusters of the batch, no more sources than operators.

    Combinations are those of the batch's rows, which are public plans on public clusters.
    """
    from sdv.cag import FixedCombinations, Inequality

    return [
        FixedCombinations(list(CELL_COLUMNS)),
        FixedCombinations(list(CLUSTER_COLUMNS)),
        Inequality("sources", "operators"),
    ]


def _fitted(frame: "pd.DataFrame") -> "GaussianCopulaSynthesizer":
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    synthesizer = GaussianCopulaSynthesizer(Metadata.load_from_dict(METADATA))
    synthesizer.add_constraints(constraints())
    synthesizer.fit({TABLE: frame})
    return synthesizer


def _sampled(
    synthesizer: "GaussianCopulaSynthesizer", condition: CellCondition, rows: int, seed: int
) -> "pd.DataFrame":
    """Up to `rows` rows; fewer where SDV, which draws and rejects, does not find enough."""
    from sdv.sampling import Condition as SdvCondition

    # SDV 2.0 has no public way to give a seed: it starts from one of its own unless this is set.
    synthesizer._set_random_state(seed)
    asked = condition.as_words()
    try:
        drawn = (
            synthesizer.sample_from_conditions([SdvCondition(asked, num_rows=rows)])
            if asked
            else synthesizer.sample(rows)
        )
    except ValueError as error:
        if _NOTHING_FOUND not in str(error):
            raise
        raise _too_rare(condition, 0, rows) from error
    frame: pd.DataFrame = drawn[TABLE]
    return frame


def _too_rare(condition: CellCondition, found: int, rows: int) -> NoSuchRowsError:
    return NoSuchRowsError(
        f"{condition} is so rare in the batch that only {found} of {rows} rows were found; "
        "ask for less, or wait for more reports"
    )


def _levels(table: Sequence[TableRow]) -> dict[Cell, float]:
    """Mean log run time of every cell: what a copula over unordered cells would blur."""
    labels: dict[Cell, list[float]] = {}
    for row in table:
        labels.setdefault(row.cell, []).append(row.log_seconds)
    return {cell: float(np.mean(values)) for cell, values in labels.items()}


def _relative(table: Sequence[TableRow], levels: dict[Cell, float]) -> "pd.DataFrame":
    """The table with run times relative to their cell and source rows to their size group."""
    import pandas as pd

    records = [row.as_record() for row in table]
    for row, record in zip(table, records, strict=True):
        low, high = size_bounds(row.cell.size)
        record["log_source_rows"] = (row.log_source_rows - low) / (high - low)
        record["log_seconds"] = row.log_seconds - levels[row.cell]
    return pd.DataFrame.from_records(records)


def _absolute(frame: "pd.DataFrame", levels: dict[Cell, float]) -> tuple[TableRow, ...]:
    """The inverse of `_relative`; a row that the schema does not allow is refused."""
    by_columns = {
        (c.platform.name.lower(), c.operator_class.name.lower(), c.size): c for c in levels
    }
    rows = []
    for record in frame.to_dict("records"):
        named = {str(name): value for name, value in record.items()}
        cell = by_columns[(named["platform"], named["operator_class"], int(named["size"]))]
        low, high = size_bounds(cell.size)
        named["log_source_rows"] = low + named["log_source_rows"] * (high - low)
        named["log_seconds"] += levels[cell]
        rows.append(TableRow.from_record(named))
    return tuple(rows)


@contextlib.contextmanager
def _quiet_sdv() -> Iterator[None]:
    """SDV without progress bars, advice, and the directory for logs that it makes on import."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        with _no_data_directory():
            import sdv  # noqa: F401
        yield


@contextlib.contextmanager
def _no_data_directory() -> Iterator[None]:
    """The user's data directory cannot be made; SDV then logs nothing, as on a read-only disk."""
    import platformdirs

    directory_of = platformdirs.user_data_dir
    platformdirs.user_data_dir = lambda *_, **__: str(Path(os.devnull, "none"))
    try:
        yield
    finally:
        platformdirs.user_data_dir = directory_of


def _named(what: str, word: str | None, vocabulary: dict[str, T]) -> T | None:
    if word is None:
        return None
    if word.lower() not in vocabulary:
        raise InvalidInputError(f"{what} must be one of {', '.join(vocabulary)}, got {word!r}")
    return vocabulary[word.lower()]
