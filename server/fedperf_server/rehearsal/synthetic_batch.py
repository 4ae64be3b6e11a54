"""The synthetic batch: rows computed from released reports, and samples of similar rows.

A batch is post-processing. It is a function of released reports, of the correction (itself a
function of them), of public plans, of the shared model and of a public seed. So it costs no
privacy: two histories with equal reports have the same batch.

`sample_rows` samples a part of it, such as POLARS from a million rows on. SDV fits a Gaussian
copula to the rows of the batch and samples under the public schema (`public_table`) and the
constraints below. It takes only a `SyntheticBatch`, which is made from reports or from published
rows, never from executions. So SDV processes only differentially private data. Sampled rows have no
plan. They match the level of their cell, and the spread of the batch roughly. SDV is imported when
it is needed, prints nothing, writes no files, and samples by the given seed.

Noisy counts give the frequency of each cell. The catalogue contains public plans and clusters of
the cell, and the shared model plus the correction labels them. There is one batch for all, sampled
from the reports of all organizations, including the ones that rehearse it. Its information was
released and charged before, and training on it composes like any use of an earlier release. A batch
for each organization without its own reports would not protect more, because two of them differ by
one organization's reports. It is also impossible where the coordinator rehearses (linearized
steps). The buffer is bounded and balanced: every segment (platform) holds at most its share.
"""

import contextlib
import io
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from fedperf_server.inference.corrections import (
    CellCorrectionPosterior,
    NoisySums,
    ReceivedReport,
    estimate_counts,
    pool_by_organization,
)
from fedperf_server.state import registry
from fedperf_shared.errors import (
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


Catalogue = Mapping[int, tuple[PlanOnCluster, ...]]  # catalogue entries by the index of their cell
# Noise standard deviations above 0 from which a platform's number of workloads counts as detected.
# One of 4,300 empty platforms exceeds it.
DETECTION_SDS = 3.5

# Maps catalogue entries to the shared model's predictions, natural log of wall seconds.
PredictLog = Callable[[Sequence[PlanOnCluster]], Floats]


def by_cell(entries: Iterable[PlanOnCluster]) -> dict[int, tuple[PlanOnCluster, ...]]:
    """Group the catalogue by cells of the public basis."""
    cells: dict[int, list[PlanOnCluster]] = defaultdict(list)
    for entry in entries:
        cells[cell_of(entry.plan).index].append(entry)
    return {cell: tuple(plans) for cell, plans in cells.items()}


def cross_clusters(entries: Sequence[PlanOnCluster]) -> dict[int, tuple[PlanOnCluster, ...]]:
    """Return every plan of `entries` on every cluster of `entries`, by cell."""
    clusters = dict.fromkeys(entry.cluster for entry in entries)
    plans = dict.fromkeys(entry.plan for entry in entries)
    return by_cell(PlanOnCluster(plan, cluster) for plan in plans for cluster in clusters)


def cell_shares(reports: Sequence[ReceivedReport], *, reference_version: int) -> Floats:
    """Return the sampling probability of each cell, the mean of all organizations, float64 [CELLS].

    All organizations have the same weight. Without reports all are zero. Platforms without
    detected workloads (`_detect_platforms`) have probability zero if any platform is detected,
    because estimated counts of empty cells are positive.
    """
    pools = pool_by_organization(reports, reference_version=reference_version)
    shares, detected = np.zeros(CELLS), _detect_platforms(list(pools.values()))
    used = np.repeat(detected if detected.any() else ~detected, CELLS // len(PLATFORM_GROUPS))
    for sums in pools.values():
        counts = used * estimate_counts(sums.counts, sums.count_sd)[0]
        shares += counts / max(counts.sum(), 1e-9)
    return np.asarray(shares / max(float(shares.sum()), 1e-9), dtype=np.float64)


def _detect_platforms(pools: Sequence[NoisySums]) -> NDArray[np.bool_]:
    """Return the platforms with workloads above the noise, bool [PLATFORM_GROUPS].

    A platform is detected in the reports of one organization or in all together. A single
    organization counts at most `DETECTION_SDS` in either direction, so that none can hide a
    platform of others.
    """
    by_platform = (len(PLATFORM_GROUPS), -1)
    above = np.array(
        [
            each.counts.reshape(by_platform).sum(axis=1)
            / (each.count_sd * math.sqrt(CELLS // len(PLATFORM_GROUPS)))
            for each in pools
        ]
    ).reshape(-1, len(PLATFORM_GROUPS))
    together = np.clip(above, -DETECTION_SDS, DETECTION_SDS).sum(axis=0) / math.sqrt(
        max(1, len(pools))
    )
    return np.asarray((above >= DETECTION_SDS).any(axis=0) | (together >= DETECTION_SDS))


def draw_rows(
    shares: Floats,
    catalogue: Catalogue,
    *,
    rows: int,
    predict: PredictLog,
    correction: Floats,
    seed: int,
) -> tuple[SyntheticRow, ...]:
    """Sample rows by `shares` from the cells of the catalogue, reproducibly by seed.

    Args:
        shares: from `cell_shares`, float64 [CELLS].
        catalogue: entries by cell.
        rows: number of rows, a public constant.
        predict: the shared model.
        correction: mean of the correction per cell, log seconds, float64 [CELLS].
        seed: random seed.

    Returns:
        `rows` rows, none if the catalogue is empty in all cells with a positive share.
    """
    available = np.zeros(CELLS)
    available[list(catalogue)] = 1.0
    probabilities = np.maximum(shares, 0.0) * available
    if not probabilities.sum() > 0 or rows <= 0:
        return ()
    random = np.random.default_rng(seed)
    cells = random.choice(CELLS, size=rows, p=probabilities / probabilities.sum())
    entries = [catalogue[cell][random.integers(len(catalogue[cell]))] for cell in cells.tolist()]
    predicted = np.asarray(predict(entries), dtype=np.float64)
    if predicted.shape != (len(entries),) or not np.isfinite(predicted).all():
        raise FedperfError(
            f"the shared model gave labels of shape {predicted.shape} for {len(entries)} rows, "
            f"{int(np.count_nonzero(~np.isfinite(predicted)))} of them not finite"
        )
    labels = predicted + correction[cells]
    return tuple(
        SyntheticRow(entry.plan, entry.cluster, float(label), ALL_CELLS[cell].platform)
        for entry, label, cell in zip(entries, labels, cells.tolist(), strict=True)
    )


if TYPE_CHECKING:
    import pandas as pd
    from sdv.cag.base import BaseConstraint
    from sdv.single_table import GaussianCopulaSynthesizer

T = TypeVar("T")

MIN_ROWS = 2  # minimum number of rows of a batch for sampling
MAX_ROWS = 10_000  # maximum number of rows of one call
SAMPLED_AT_ONCE = 500  # minimum number of rows to sample with SDV, so that rare cells are found too
_NOTHING_FOUND = "Unable to sample any rows"  # message of SDV if no row matches the condition


@dataclass(frozen=True, slots=True)
class SyntheticBatch:
    """Synthetic rows computed from released reports. Make it by the class methods only."""

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
        """Sample public plans and clusters by noisy counts, and label them by the model.

        The result has no rows if the reports detect no workloads.

        Args:
            reports: released reports about the correction's reference version.
            correction: the correction that follows from them.
            catalogue: public plans on public clusters, by cell.
            rows: number of rows, a public constant.
            predict: the reference model.
            seed: public random seed.
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
        """Return the batch that this coordinator publishes, empty before the first."""
        return cls(registry.published_rows(session))

    def table(self) -> tuple[TableRow, ...]:
        """Return the rows in the public schema."""
        return tuple(TableRow.of(row.plan, row.cluster, row.log_seconds) for row in self.rows)


@dataclass(frozen=True, slots=True)
class CellCondition:
    """A condition on cells. None matches any value."""

    platform: Platform | None = None  # main platform
    operator_class: OperatorClass | None = None  # most special operator class
    size: int | None = None  # group of source rows, 0 to 3

    @classmethod
    def parse(
        cls, *, platform: str | None = None, operator_class: str | None = None, size: int | None
    ) -> Self:
        """Parse a condition from command line options.

        Raises:
            InvalidInputError: a value is unknown; the message lists the allowed ones.
        """
        if size is not None and not 0 <= size <= len(SIZE_BOUNDS):
            raise InvalidInputError(f"size must be 0 to {len(SIZE_BOUNDS)}, got {size}")
        platforms = {each.name.lower(): each for each in PLATFORM_GROUPS}
        classes = {each.name.lower(): each for each in OperatorClass}
        return cls(
            _parse_value("platform", platform, platforms),
            _parse_value("operator class", operator_class, classes),
            size,
        )

    def matches(self, cell: Cell) -> bool:
        """Return whether the cell matches."""
        return all(value in (None, getattr(cell, name)) for name, value in asdict(self).items())

    def to_columns(self) -> dict[str, str | int]:
        """Return the condition by columns of the public table."""
        return {
            name: value.name.lower() if isinstance(value, Platform | OperatorClass) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    def __str__(self) -> str:
        return (
            ", ".join(f"{name} {value}" for name, value in self.to_columns().items()) or "any kind"
        )


def sample_rows(
    batch: SyntheticBatch, condition: CellCondition, *, rows: int, seed: int
) -> tuple[TableRow, ...]:
    """Sample rows of the cells that match `condition`, about as frequent as in the batch.

    SDV samples cell, cluster, operators, source rows and the run time relative to the mean of its
    cell. The same batch, condition and seed give the same rows.

    Raises:
        PrivacyRefusedError: `batch` is not a synthetic batch.
        InvalidInputError: `rows` is not in [1, `MAX_ROWS`], or the batch has too few matching rows.
    """
    if not isinstance(batch, SyntheticBatch):
        raise PrivacyRefusedError(
            "only a synthetic batch, computed from released reports, may be fitted; "
            f"got {type(batch).__name__}"
        )
    if not 1 <= rows <= MAX_ROWS:
        raise InvalidInputError(f"rows must be in [1, {MAX_ROWS}], got {rows}")
    table = batch.table()
    if not table:
        raise InvalidInputError(
            "no synthetic batch is published yet; the first is published after the first reports. "
            "Show their dates with `fedperf-server calendar`"
        )
    matching = sum(condition.matches(row.cell) for row in table)
    if not matching or len(table) < MIN_ROWS:
        raise InvalidInputError(
            f"the batch has {len(table)} rows, {matching} of them match {condition}; "
            "use a wider condition, or wait for more reports"
        )
    levels = _levels(table)
    with _quiet_sdv():
        synthesizer = _fit(_relative(table, levels))
        sampled = _sample(synthesizer, condition, max(rows, SAMPLED_AT_ONCE), seed)
    if len(sampled) < rows:
        raise _too_rare_error(condition, len(sampled), rows)
    return _absolute(sampled.head(rows), levels)


def constraints() -> "list[BaseConstraint]":
    """Return the constraints: combinations of the batch, no more sources than operators.

    Combinations are those of the batch's rows, which are public plans on public clusters.
    """
    from sdv.cag import FixedCombinations, Inequality

    return [
        FixedCombinations(list(CELL_COLUMNS)),
        FixedCombinations(list(CLUSTER_COLUMNS)),
        Inequality("sources", "operators"),
    ]


def _fit(frame: "pd.DataFrame") -> "GaussianCopulaSynthesizer":
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    synthesizer = GaussianCopulaSynthesizer(Metadata.load_from_dict(METADATA))
    synthesizer.add_constraints(constraints())
    synthesizer.fit({TABLE: frame})
    return synthesizer


def _sample(
    synthesizer: "GaussianCopulaSynthesizer", condition: CellCondition, rows: int, seed: int
) -> "pd.DataFrame":
    """Return up to `rows` rows, fewer if SDV's rejection sampling does not find enough."""
    from sdv.sampling import Condition as SdvCondition

    # SDV 2.0 has no public way to set a seed, and uses its own unless this is set.
    synthesizer._set_random_state(seed)
    columns = condition.to_columns()
    try:
        sampled = (
            synthesizer.sample_from_conditions([SdvCondition(columns, num_rows=rows)])
            if columns
            else synthesizer.sample(rows)
        )
    except ValueError as error:
        if _NOTHING_FOUND not in str(error):
            raise
        raise _too_rare_error(condition, 0, rows) from error
    frame: pd.DataFrame = sampled[TABLE]
    return frame


def _too_rare_error(condition: CellCondition, sampled: int, rows: int) -> InvalidInputError:
    return InvalidInputError(
        f"{condition} is so rare in the batch that only {sampled} of {rows} rows were sampled; "
        "use fewer --rows, or wait for more reports"
    )


def _levels(table: Sequence[TableRow]) -> dict[Cell, float]:
    """Return the mean log run time of every cell, which a copula over cells would blur."""
    labels: dict[Cell, list[float]] = {}
    for row in table:
        labels.setdefault(row.cell, []).append(row.log_seconds)
    return {cell: float(np.mean(values)) for cell, values in labels.items()}


def _relative(table: Sequence[TableRow], levels: dict[Cell, float]) -> "pd.DataFrame":
    """Return run times relative to their cell, and source rows relative to their size group."""
    import pandas as pd

    records = [row.as_record() for row in table]
    for row, record in zip(table, records, strict=True):
        low, high = size_bounds(row.cell.size)
        record["log_source_rows"] = (row.log_source_rows - low) / (high - low)
        record["log_seconds"] = row.log_seconds - levels[row.cell]
    return pd.DataFrame.from_records(records)


def _absolute(frame: "pd.DataFrame", levels: dict[Cell, float]) -> tuple[TableRow, ...]:
    """Invert `_relative`. A row that violates the schema is refused."""
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
    """Run SDV without progress bars, warnings, and the log directory that it makes on import."""
    import platformdirs

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        directory_of = platformdirs.user_data_dir
        platformdirs.user_data_dir = lambda *_, **__: str(Path(os.devnull, "none"))
        try:
            import sdv  # noqa: F401
        finally:
            platformdirs.user_data_dir = directory_of
        yield


def _parse_value(option: str, word: str | None, vocabulary: dict[str, T]) -> T | None:
    if word is None:
        return None
    if word.lower() not in vocabulary:
        raise InvalidInputError(f"{option} must be one of {', '.join(vocabulary)}, got {word!r}")
    return vocabulary[word.lower()]
