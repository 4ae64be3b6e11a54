"""Synthetic rows: plans of a public catalogue, drawn as often as reports say their cells occur.

A batch is post-processing of reports (no charge): noisy counts say how often each cell is drawn,
the catalogue gives public plans and clusters of that cell, the shared model plus the correction
labels them. There is one batch for all, drawn from everybody's reports, those of whoever rehearses
it included: what a row knows of them was released and paid for before, and training on it again
composes like any use of an earlier release. A batch for each organization, without its own, would
protect nobody further: two of them would differ by what one organization reported. It could not be
had where the coordinator itself rehearses (steps at the tangent). The buffer is bounded and
balanced: every segment (platform) holds at most its share.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedperf_server.inference.corrections import (
    NoisySums,
    ReceivedReport,
    believed_counts,
    pooled_by_organization,
)
from fedperf_shared.errors import ConfigurationError, FedperfError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import SizedPlan
from fedperf_shared.releases.basis import ALL_CELLS, CELLS, PLATFORM_GROUPS, cell_of

if TYPE_CHECKING:
    from fedperf_shared.workflow.vocabulary import Platform

Floats = NDArray[np.float64]


Catalogue = Mapping[int, tuple[SizedPlan, ...]]
"""Catalogue entries by the index of their cell."""

HEARD = 3.5
"""Standard deviations of its noise that a platform's number of workloads lies above 0: by chance
one of 4,300 empty ones does."""

PredictLog = Callable[[Sequence[SizedPlan]], Floats]
"""Catalogue entries -> natural log of wall seconds that the shared model predicts."""


class InvalidLabelsError(FedperfError):
    """The shared model gave labels of a wrong number, or labels that are not finite."""


def by_cell(entries: Iterable[SizedPlan]) -> dict[int, tuple[SizedPlan, ...]]:
    """The catalogue, sorted into cells of the public basis."""
    cells: dict[int, list[SizedPlan]] = defaultdict(list)
    for entry in entries:
        cells[cell_of(entry.plan).index].append(entry)
    return {cell: tuple(members) for cell, members in cells.items()}


def on_grid(entries: Sequence[SizedPlan]) -> dict[int, tuple[SizedPlan, ...]]:
    """Every plan of `entries` on every cluster of theirs, by cell: the public grid."""
    clusters = dict.fromkeys(entry.cluster for entry in entries)
    plans = dict.fromkeys(entry.plan for entry in entries)
    return by_cell(SizedPlan(plan, cluster) for plan in plans for cluster in clusters)


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


def _labels(entries: Sequence[SizedPlan], predict: PredictLog) -> Floats:
    labels = np.asarray(predict(entries), dtype=np.float64)
    if labels.shape != (len(entries),) or not np.isfinite(labels).all():
        raise InvalidLabelsError(
            f"the shared model gave labels of shape {labels.shape} for {len(entries)} rows, "
            f"{int(np.count_nonzero(~np.isfinite(labels)))} of them not finite"
        )
    return labels
