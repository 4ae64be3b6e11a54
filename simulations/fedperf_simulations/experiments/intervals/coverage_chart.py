"""A chart of what 90 % intervals cover, a line per situation."""

from collections.abc import Sequence
from pathlib import Path

from fedperf_client.charts.kit import FAINT, INK, svg
from fedperf_simulations.experiments.intervals.figures import (
    INFORMATION,
    LEVEL,
    OURS,
    PREDICTOR,
    SITUATION,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import chart
from fedperf_simulations.harness.experiment import Row

WIDTH, ROW_HEIGHT, MARGIN = 8.6, 0.24, 1.1
PERCENT = 100


def coverage_chart(rows: Sequence[Row], path: Path) -> Path | None:
    """Write it: a dot for what the product's intervals cover, a bar for its bootstrap interval.

    None where no row says what is covered.
    """
    told = [each for each in rows if _is_told(each)]
    if not told:
        return None
    with chart(WIDTH, MARGIN + ROW_HEIGHT * len(told), grid="x") as (figure, axes):
        for height, row in enumerate(reversed(told)):
            share = PERCENT * number(row["covered"])
            if row.get("covered low") is not None:
                low, high = (PERCENT * number(row[f"covered {end}"]) for end in ("low", "high"))
                axes.plot([low, high], [height, height], color=FAINT, linewidth=1.2, zorder=2)
            axes.plot([share], [height], "o", color=INK, markersize=4, zorder=3)
        axes.axvline(PERCENT * LEVEL, color=FAINT, linestyle="--", linewidth=1, zorder=1)
        axes.set_ylim(-1, len(told))
        axes.set_yticks(range(len(told)), [_label(each) for each in reversed(told)])
        axes.set_xlim(
            left=min(50.0, *(PERCENT * number(each["covered"]) for each in told)), right=101
        )
        axes.set_xlabel("executions inside of 90 % intervals, %")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(figure), encoding="utf-8")
    return path


def _is_told(row: Row) -> bool:
    is_all = row.get("organization") in (None, "all")
    return row.get(PREDICTOR) == OURS and is_all and row.get("covered") is not None


def _label(row: Row) -> str:
    information = row.get(INFORMATION)
    return f"{row[SITUATION]}, {information}" if information else str(row[SITUATION])
