"""Quality of the coordinator's synthetic rows: how well they fit own executions.

SDMetrics compares both in the public table. Every figure is computed from raw executions, so it
must not leave the organization. No figure is evidence of privacy, not even the distance to the
closest record: it can be small for rows that copy no record, and large for mechanisms that leak.
The privacy guarantee follows from the ledger alone.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import Execution
from fedperf_shared.releases.public_table import COLUMNS, METADATA, TABLE, TableRow

if TYPE_CHECKING:
    import pandas as pd

MOST_EXECUTIONS = 2_000  # executions that are compared at most, spread evenly over the history

CAVEAT = (
    "computed from your own executions: stays here, do not publish; closest_record "
    "(1: no closer to yours than random rows) is no evidence of privacy, the ledger is"
)


@dataclass(frozen=True, slots=True)
class Quality:
    """SDMetrics scores from 0 to 1; None where they cannot be computed."""

    executions: int  # number of own executions that were compared
    synthetic_rows: int  # number of rows that were compared
    score: float | None  # mean of the next two
    column_shapes: float | None  # similarity of the distributions of single columns
    column_pairs: float | None  # similarity of the dependencies of pairs of columns
    # Distance of synthetic rows from own executions, relative to rows drawn uniformly between the
    # own extremes.
    closest_record: float | None
    caveat: str = CAVEAT  # on the use of these figures

    def as_row(self) -> dict[str, object]:
        """Return the figures by name, rounded for reading."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def quality_of(own: Iterable[Execution], synthetic: Sequence[SyntheticRow]) -> Quality:
    """Compare synthetic rows with the executions among `own` that ended well.

    Raises:
        InvalidInputError: one side has fewer than two rows.
    """
    real = _spread(
        [
            TableRow.of(each.plan, each.cluster, math.log(each.measurement.runtime_seconds))
            for each in own
            if each.is_ok and each.measurement is not None
        ]
    )
    rows = [TableRow.of(row.plan, row.cluster, row.log_seconds) for row in synthetic]
    if min(len(real), len(rows)) < 2:  # noqa: PLR2004  a distribution needs two
        raise InvalidInputError(
            f"there must be two executions and two synthetic rows to compare, got {len(real)} and "
            f"{len(rows)}; the coordinator has rows once reports have arrived"
        )
    shapes, pairs = _similarity(_frame(real), _frame(rows))
    both = [each for each in (shapes, pairs) if each is not None]
    return Quality(
        executions=len(real),
        synthetic_rows=len(rows),
        score=float(np.mean(both)) if both else None,
        column_shapes=shapes,
        column_pairs=pairs,
        closest_record=_closest_record(_frame(real), _frame(rows)),
    )


def _similarity(
    real: "pd.DataFrame", synthetic: "pd.DataFrame"
) -> tuple[float | None, float | None]:
    from sdmetrics.reports import QualityReport

    report = QualityReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about constant columns, whose score is NaN
        report.generate({TABLE: real}, {TABLE: synthetic}, METADATA, verbose=False)
        scores = report.get_properties().set_index("Property")["Score"]
    return _finite(scores["Column Shapes"]), _finite(scores["Column Pair Trends"])


def _closest_record(real: "pd.DataFrame", synthetic: "pd.DataFrame") -> float | None:
    from sdmetrics.single_table import DCRBaselineProtection

    class SeededProtection(DCRBaselineProtection):  # type: ignore[misc]
        """The metric with the same random rows each time."""

        _seed = 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _finite(SeededProtection.compute({TABLE: real}, {TABLE: synthetic}, METADATA, TABLE))


def _frame(rows: Sequence[TableRow]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame.from_records([row.as_record() for row in rows], columns=list(COLUMNS))


def _spread(rows: list[TableRow]) -> list[TableRow]:
    if len(rows) <= MOST_EXECUTIONS:
        return rows
    return [rows[at] for at in np.linspace(0, len(rows) - 1, MOST_EXECUTIONS).astype(int).tolist()]


def _finite(score: float) -> float | None:
    return float(score) if math.isfinite(score) else None
