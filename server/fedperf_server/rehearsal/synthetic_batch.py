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

Noisy counts say how often each cell is drawn,
the catalogue gives public plans and clusters of that cell, the shared model plus the correction
labels them. There is one batch for all, drawn from everybody's reports, those of whoever rehearses
it included: what a row knows of them was released and paid for before, and training on it again
composes like any use of an earlier release. A batch for each organization, without its own, would
protect nobody further: two of them would differ by what one organization reported. It could not be
had where the coordinator itself rehearses (steps at the tangent). The buffer is bounded and
balanced: every segment (platform) holds at most its share.
"""

import contextlib
import io
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from fedperf_server.inference.corrections import (
    CellCorrectionPosterior,
    NoisySums,
    ReceivedReport,
    believed_counts,
    pooled_by_organization,
)
from fedperf_server.state import registry
from fedperf_shared.errors import (
    ConfigurationError,
    FedperfError,
    InvalidInputError,
    PrivacyRefusedError,
)
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.releases.basis import (
    ALL_CELLS,
    CELLS,
    PLATFORM_GROUPS,
    SIZE_BOUNDS,
    Cell,
    cell_of,
)
from fedperf_shared.releases.public_table import (
    CELL_COLUMNS,
    CLUSTER_COLUMNS,
    METADATA,
    TABLE,
    TableRow,
    size_bounds,
)
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

Floats = NDArray[np.float64]


Catalogue = Mapping[int, tuple[PlanOnCluster, ...]]
"""Catalogue entries by the index of their cell."""

HEARD = 3.5
"""Standard deviations of its noise that a platform's number of workloads lies above 0: by chance
one of 4,300 empty ones does."""

PredictLog = Callable[[Sequence[PlanOnCluster]], Floats]
"""Catalogue entries -> natural log of wall seconds that the shared model predicts."""


class InvalidLabelsError(FedperfError):
    """The shared model gave labels of a wrong number, or labels that are not finite."""


def by_cell(entries: Iterable[PlanOnCluster]) -> dict[int, tuple[PlanOnCluster, ...]]:
    """The catalogue, sorted into cells of the public basis."""
    cells: dict[int, list[PlanOnCluster]] = defaultdict(list)
    for entry in entries:
        cells[cell_of(entry.plan).index].append(entry)
    return {cell: tuple(members) for cell, members in cells.items()}


def on_grid(entries: Sequence[PlanOnCluster]) -> dict[int, tuple[PlanOnCluster, ...]]:
    """Every plan of `entries` on every cluster of theirs, by cell: the public grid."""
    clusters = dict.fromkeys(entry.cluster for entry in entries)
    plans = dict.fromkeys(entry.plan for entry in entries)
    return by_cell(PlanOnCluster(plan, cluster) for plan in plans for cluster in clusters)


def cell_shares(reports: Sequence[ReceivedReport], *, reference_version: int) -> Floats:
    """The share of draws of each cell: mean over the organizations' shares, float64 [CELLS].

    Every organization counts the same. All zeros where no report says anything. Of a platform
    that nobody seems to use (`_heard`) there is nothing, as long as of another one there is:
    what is believed of an empty cell is more than none.
    """
    pools = pooled_by_organization(reports, reference_version=reference_version)
    shares, heard = np.zeros(CELLS), _heard(list(pools.values()))
    used = np.repeat(heard if heard.any() else ~heard, CELLS // len(PLATFORM_GROUPS))
    for sums in pools.values():
        counts = used * believed_counts(sums.counts, sums.count_sd)[0]
        shares += counts / max(counts.sum(), 1e-9)
    return np.asarray(shares / max(float(shares.sum()), 1e-9), dtype=np.float64)


def _heard(pools: Sequence[NoisySums]) -> NDArray[np.bool_]:
    """On which platforms workloads are heard above the noise, bool [PLATFORM_GROUPS].

    By one organization alone, or by all together; what a single one says counts for at most
    `HEARD` either way, so that nobody silences a platform of others by itself.
    """
    by_platform = (len(PLATFORM_GROUPS), -1)
    above = np.array(
        [
            each.counts.reshape(by_platform).sum(axis=1)
            / (each.count_sd * math.sqrt(CELLS // len(PLATFORM_GROUPS)))
            for each in pools
        ]
    ).reshape(-1, len(PLATFORM_GROUPS))
    together = np.clip(above, -HEARD, HEARD).sum(axis=0) / math.sqrt(max(1, len(pools)))
    return np.asarray((above >= HEARD).any(axis=0) | (together >= HEARD))


def draw_rows(
    shares: Floats,
    catalogue: Catalogue,
    *,
    rows: int,
    predict: PredictLog,
    correction: Floats,
    seed: int,
) -> tuple[SyntheticRow, ...]:
    """`rows` rows drawn by `shares` over the cells that the catalogue has; the same for a seed.

    Args:
        shares: from `cell_shares`, float64 [CELLS].
        catalogue: entries by cell.
        rows: how many, a public number.
        predict: the shared model.
        correction: mean of the correction per cell, log seconds, float64 [CELLS].
        seed: of the draw.

    Returns:
        `rows` rows; none where the catalogue has nothing in any cell of a positive share.
    """
    available = np.zeros(CELLS)
    available[list(catalogue)] = 1.0
    chances = np.maximum(shares, 0.0) * available
    if not chances.sum() > 0 or rows <= 0:
        return ()
    random = np.random.default_rng(seed)
    cells = random.choice(CELLS, size=rows, p=chances / chances.sum())
    drawn = [catalogue[cell][random.integers(len(catalogue[cell]))] for cell in cells.tolist()]
    labels = _labels(drawn, predict) + correction[cells]
    return tuple(
        SyntheticRow(entry.plan, entry.cluster, float(label), ALL_CELLS[cell].platform)
        for entry, label, cell in zip(drawn, labels, cells.tolist(), strict=True)
    )


@dataclass(frozen=True, slots=True)
class RehearsalBuffer:
    """A buffer of at most `capacity_per_segment` rows of every segment, the newest ones.

    Balanced, so that a platform with many reports does not crowd out one with few.
    """

    capacity_per_segment: int
    rows: tuple[SyntheticRow, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.capacity_per_segment >= 1:
            raise ConfigurationError(
                f"capacity_per_segment must be at least 1, got {self.capacity_per_segment!r}"
            )

    def with_rows(self, rows: Sequence[SyntheticRow]) -> "RehearsalBuffer":
        """The buffer after adding `rows`; of each segment the oldest beyond the capacity leave."""
        kept: list[SyntheticRow] = []
        held: dict[Platform, int] = defaultdict(int)
        for row in reversed((*self.rows, *rows)):
            if held[row.segment] < self.capacity_per_segment:
                held[row.segment] += 1
                kept.append(row)
        return RehearsalBuffer(self.capacity_per_segment, tuple(reversed(kept)))


def _labels(entries: Sequence[PlanOnCluster], predict: PredictLog) -> Floats:
    labels = np.asarray(predict(entries), dtype=np.float64)
    if labels.shape != (len(entries),) or not np.isfinite(labels).all():
        raise InvalidLabelsError(
            f"the shared model gave labels of shape {labels.shape} for {len(entries)} rows, "
            f"{int(np.count_nonzero(~np.isfinite(labels)))} of them not finite"
        )
    return labels


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
