"""Errors of newcomers by predictor and number of own executions, and what is compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_simulations.experiments.joining_gain.newcomers import LOCALS, WITH_PUBLIC, personalized
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row

Floats = NDArray[np.float64]

EPS1, EPS3, NO_NOISE = "epsilon 1", "epsilon 3", "no noise"
ONCE1, ONCE3 = "epsilon 1, noise once per job", "epsilon 3, noise once per job"


@dataclass(frozen=True, slots=True)
class PairedChange:
    """A paired change of the mean error, percent of the mean compared with.

    Attributes:
        percent: below 0 is better.
        error: standard error over newcomers.
        better: newcomers that improved.
    """

    percent: float
    error: float
    better: int


@dataclass(frozen=True, slots=True)
class GainTable:
    """Errors of one data set.

    Attributes:
        mape: by predictor and n, one value per newcomer that has so many executions.
        q50: the same.
    """

    mape: Mapping[tuple[str, int], Floats]
    q50: Mapping[tuple[str, int], Floats]

    @classmethod
    def of(cls, cells: Sequence[Row]) -> "GainTable":
        """From the cells of all newcomers; those without enough executions lack some n."""
        found: dict[str, dict[tuple[str, int], list[float]]] = {"mape": {}, "q50": {}}
        for cell in cells:
            for key, value in cell.items():
                name, own, metric = key.split("|")
                if isinstance(value, int | float):
                    found[metric].setdefault((name, int(own)), []).append(float(value))
        mape, q50 = (
            {key: np.array(values) for key, values in found[metric].items()}
            for metric in ("mape", "q50")
        )
        return cls(mape, q50)

    @property
    def sizes(self) -> list[int]:
        """Numbers of own executions."""
        return sorted({own for _, own in self.mape})

    @property
    def joined(self) -> list[str]:
        """What was joined."""
        there = {name for name, _ in self.mape}
        return [
            name for name in (EPS1, EPS3, ONCE1, ONCE3, NO_NOISE) if personalized(name) in there
        ]

    def strongest(self, own: int) -> str | None:
        """The local-only predictor with the least mean error at that n; None at 0."""
        known = [name for name in LOCALS if (name, own) in self.mape]
        return min(known, key=lambda name: float(self.mape[name, own].mean()), default=None)

    def change(self, name: str, rival: str, own: int) -> PairedChange:
        """By how much `name` is better than `rival`; both keys must be there."""
        ours, theirs = self.mape[name, own], self.mape[rival, own]
        differences = ours - theirs
        scale = 100 / float(theirs.mean())
        error = float(differences.std(ddof=1)) / np.sqrt(len(ours)) if len(ours) > 1 else 0.0
        return PairedChange(
            scale * float(differences.mean()), scale * error, int((differences < 0).sum())
        )

    def rows(self, data: str) -> Iterator[Row]:
        """One per predictor and n."""
        for name, own in self.mape:
            strongest = self.strongest(own)
            joined = name not in LOCALS
            local = self.change(name, strongest, own) if joined and strongest else None
            public = self.change(name, WITH_PUBLIC, own) if joined and own else None
            yield {
                "data": data,
                "predictor": name,
                "n": own,
                "newcomers": len(self.mape[name, own]),
                "MAPE": float(self.mape[name, own].mean()),
                "q50": float(self.q50[name, own].mean()),
                "vs local, %": local.percent if local else None,
                "+-": local.error if local else None,
                "better": local.better if local else None,
                "vs local + public, %": public.percent if public else None,
                "+- ": public.error if public else None,
            }


def plotted(out: Path, data: str, table: GainTable) -> Path:
    """MAPE over n with standard errors: local-only, with the public start, joined."""
    wanted = (
        *LOCALS,
        WITH_PUBLIC,
        *(personalized(name) for name in (EPS1, EPS3, NO_NOISE) if name in table.joined),
    )
    lines = []
    for name in wanted:
        sizes = [own for own in table.sizes if (name, own) in table.mape]
        if not sizes:
            continue
        errors = [table.mape[name, own] for own in sizes]
        lines.append(
            Line(
                name,
                [table.sizes.index(own) for own in sizes],
                [float(each.mean()) for each in errors],
                dashed=name in LOCALS,
                spread=[float(each.std() / np.sqrt(len(each))) for each in errors],
            )
        )
    marks = [str(own) for own in table.sizes]
    chart = lines_chart(lines, f"own executions: {data}", "MAPE, %", marks=marks, is_log=True)
    path = out / f"{data.replace(',', '').replace(' ', '_').lower()}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart, encoding="utf-8")
    return path
