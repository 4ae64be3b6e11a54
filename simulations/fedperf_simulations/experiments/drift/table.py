"""Errors of methods over a sequence: cells to keep, rows to compare, charts to look at.

Metrics of forgetting, from R[i][j]: a model's error on segment j after training segment i.

Lower is better everywhere; backward transfer above 0 is forgetting. Definitions as in Lopez-Paz and
Ranzato (NeurIPS 2017) and Chaudhry et al. (ECCV 2018), with errors in place of accuracies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.experiments.drift.continual import MAE, MAPE, Q50
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Metrics of one sequence.

    Attributes:
        final: mean error over all segments at the end.
        averaged: mean over time of the mean error over the segments seen so far.
        backward_transfer: mean over the earlier segments of how much worse each became since
            it was trained.
        forgetting: the same against the best that the model ever was on it.
    """

    final: float
    averaged: float
    backward_transfer: float
    forgetting: float

    @classmethod
    def of(cls, errors: Floats) -> "Forgetting":
        """The metrics of R, [segments, segments]. What lies above its diagonal is not looked at.

        Raises:
            InvalidInputError: R is not square, or has an error that is not a number.
        """
        averaged = float(seen_so_far(errors).mean())
        last = errors[-1]
        earlier = range(len(errors) - 1)
        best = [errors[place:, place].min() for place in range(len(errors))]
        return cls(
            float(last.mean()),
            averaged,
            float(np.mean([last[j] - errors[j, j] for j in earlier])) if earlier else 0.0,
            float(np.mean(last - best)),
        )


def seen_so_far(errors: Floats) -> Floats:
    """After each segment, the mean error over the segments until then, [segments].

    Raises:
        InvalidInputError: R is not square, or has an error that is not a number.
    """
    if errors.shape != 2 * errors.shape[:1] or not errors.size:
        raise InvalidInputError(f"errors must be a square of segments, got {errors.shape}")
    below = np.tril(np.ones(errors.shape, dtype=bool))
    if not np.isfinite(errors[below]).all():
        raise InvalidInputError("an error on a segment that was seen is not a number")
    return np.array([row[: place + 1].mean() for place, row in enumerate(errors)])


FINAL, FACTOR, WORSE, TRANSFER = "MAE", "x naive", "vs cumulative, %", "BWT"
NAIVE, CUMULATIVE = "naive", "cumulative (the ceiling)"

COLUMNS: Mapping[str, str] = {
    FINAL: "final",
    FACTOR: "final",
    WORSE: "final",
    "averaged": "averaged",
    TRANSFER: "backward_transfer",
    "forgetting": "forgetting",
    "MAPE, %": MAPE,
    Q50: Q50,
}
"""Titles, and the score that each is made of. The second and third compare it with others'."""

DECIMALS = 3

_SEEN = "seen"


def cell_of(errors: Mapping[str, Mapping[str, Floats]]) -> Row:
    """Return the kept row of some methods of one sequence.

    Args:
        errors: by method and metric, [seeds, after segment, on segment].
    """
    cell: dict[str, float] = {}
    for method, by_metric in errors.items():
        for seed, square in enumerate(by_metric[MAE]):
            scores = {
                **asdict(Forgetting.of(square)),
                **{name: float(by_metric[name][seed, -1].mean()) for name in (MAPE, Q50)},
                **{f"{_SEEN}{i}": float(each) for i, each in enumerate(seen_so_far(square))},
            }
            cell |= {f"{method}|{name}|{seed}": value for name, value in scores.items()}
    return cell


@dataclass(frozen=True, slots=True)
class DriftTable:
    """Methods on one sequence.

    Attributes:
        scores: by method and name of the score, one value per seed.
    """

    scores: Mapping[str, Mapping[str, Floats]]

    @classmethod
    def of(cls, cells: Sequence[Row]) -> "DriftTable":
        """Return the table from all cells of a sequence."""
        by_method: dict[str, dict[str, list[float]]] = {}
        for cell in cells:
            for key, value in cell.items():
                method, name, _ = key.split("|")
                if isinstance(value, int | float):
                    by_method.setdefault(method, {}).setdefault(name, []).append(float(value))
        return cls(
            {
                method: {name: np.array(values) for name, values in scores.items()}
                for method, scores in by_method.items()
            }
        )

    def cases(self, about: Row) -> Iterator[Row]:
        """Yield a row per method and seed, with all scores."""
        for method, scores in self.scores.items():
            for seed in range(len(next(iter(scores.values())))):
                seed_scores = {name: float(values[seed]) for name, values in scores.items()}
                yield {**about, "method": method, "seed": seed, **seed_scores}

    def means(self, method: str) -> dict[str, float]:
        """Over the seeds. How a method compares is the ratio of two means."""
        means = {title: float(self._of(method, title).mean()) for title in COLUMNS}
        naive, ceiling = (float(self._of(each, FINAL).mean()) for each in (NAIVE, CUMULATIVE))
        return _rounded(
            means | {FACTOR: naive / means[FINAL], WORSE: 100 * (means[FINAL] / ceiling - 1)}
        )

    def spreads(self, method: str) -> dict[str, float]:
        """Standard deviations over the seeds, of comparisons seed by seed."""
        final = self._of(method, FINAL)
        factors = self._of(NAIVE, FINAL) / final
        worse = 100 * (final / self._of(CUMULATIVE, FINAL) - 1)
        deviations = {title: float(self._of(method, title).std()) for title in COLUMNS}
        return _rounded(deviations | {FACTOR: float(factors.std()), WORSE: float(worse.std())})

    def _of(self, method: str, title: str) -> Floats:
        return self.scores[method][COLUMNS[title]]

    def line(self, method: str, *, dashed: bool) -> Line:
        """Mean error over the segments seen, after each segment."""
        mine = self.scores[method]
        plotted = [
            mine[f"{_SEEN}{place}"] for place in range(sum(each.startswith(_SEEN) for each in mine))
        ]
        return Line(
            method,
            range(len(plotted)),
            [float(each.mean()) for each in plotted],
            dashed,
            spread=[float(each.std() / np.sqrt(len(each))) for each in plotted],
        )


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {title: round(value, DECIMALS) for title, value in values.items()}


def plotted(
    out: Path, sequence: str, table: DriftTable, methods: Sequence[str], marks: Sequence[str]
) -> Path:
    """Error over the segments seen so far, a line per method."""
    lines = [table.line(each, dashed=each in {NAIVE, CUMULATIVE}) for each in methods]
    marks = [each.replace("-", "\n") for each in marks]
    across = f"after each segment of {sequence}"
    chart = lines_chart(lines, across, "MAE (log) over the segments seen", marks=marks)
    path = out / f"drift_{sequence.replace(' ', '_')}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart, encoding="utf-8")
    return path
