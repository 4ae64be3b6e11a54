"""Errors of newcomers by predictor and number of own executions, and their comparisons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_memory.paired import PairedComparison
from fedperf_simulations.experiments.joining_gain.new_participants import (
    CLIENTS,
    LOCALS,
    WITH_PUBLIC,
    personalized,
)
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import Row

Floats = NDArray[np.float64]

EPS1, EPS3, NO_NOISE = "epsilon 1", "epsilon 3", "no noise"
ONCE1, ONCE3 = "epsilon 1, noise once per job", "epsilon 3, noise once per job"


MAPE, Q50, LOG_MAE = "MAPE", "q50", "MAE of the log"


@dataclass(frozen=True, slots=True)
class GainTable:
    """Errors of one data set.

    Attributes:
        mape: by predictor and n, one value per newcomer that has so many executions.
        q50: the same.
        log_mae: the same.
    """

    mape: Mapping[tuple[str, int], Floats]
    q50: Mapping[tuple[str, int], Floats]
    log_mae: Mapping[tuple[str, int], Floats]

    @classmethod
    def of(cls, cases: Sequence[Row]) -> "GainTable":
        """Means over seeds; newcomers without enough executions lack some n."""
        return cls(*(_by_newcomer(cases, each) for each in (MAPE, Q50, LOG_MAE)))

    @property
    def sizes(self) -> list[int]:
        """Numbers of own executions."""
        return sorted({own for _, own in self.mape})

    @property
    def joined(self) -> list[str]:
        """Names of the ways to join that the table holds."""
        there = {name for name, _ in self.mape}
        return [
            name for name in (EPS1, EPS3, ONCE1, ONCE3, NO_NOISE) if personalized(name) in there
        ]

    def strongest(self, own: int) -> str | None:
        """The local-only predictor with the least mean error at that n; None at 0."""
        known = [name for name in LOCALS if (name, own) in self.mape]
        return min(known, key=lambda name: float(self.mape[name, own].mean()), default=None)

    def change(self, name: str, rival: str, own: int) -> PairedComparison:
        """The change from `rival` to `name`; both keys must be there."""
        return PairedComparison.percent(self.mape[name, own], self.mape[rival, own])

    def log_change(self, name: str, rival: str, own: int) -> PairedComparison:
        """As `change`, of the log's error."""
        return PairedComparison.percent(self.log_mae[name, own], self.log_mae[rival, own])

    def rows(self, data: str) -> Iterator[Row]:
        """One per predictor and n."""
        for name, own in self.mape:
            strongest = self.strongest(own)
            joined = name not in LOCALS
            local = self.change(name, strongest, own) if joined and strongest else None
            public = self.change(name, WITH_PUBLIC, own) if joined and own else None
            log_local = self.log_change(name, strongest, own) if joined and strongest else None
            log_public = self.log_change(name, WITH_PUBLIC, own) if joined and own else None
            yield {
                "data": data,
                "predictor": name,
                "n": own,
                "newcomers": len(self.mape[name, own]),
                MAPE: float(self.mape[name, own].mean()),
                f"median {MAPE}": float(np.median(self.mape[name, own])),
                Q50: float(self.q50[name, own].mean()),
                **_columns("vs local", local),
                **_columns("vs local + public", public),
                LOG_MAE: float(self.log_mae[name, own].mean()),
                **_columns(f"{LOG_MAE} vs local", log_local),
                **_columns(f"{LOG_MAE} vs local + public", log_public),
            }


def _columns(title: str, change: PairedComparison | None) -> Row:
    """Percent: of the mean with its 95 % interval, the median of newcomers, who is better."""
    low, high = (change and change.interval) or (None, None)
    return {
        f"{title}, %": change.mean if change else None,
        f"{title}, low": low,
        f"{title}, high": high,
        f"{title}, median": change.median if change else None,
        f"{title}, better": change.wins if change else None,
    }


def _by_newcomer(cases: Sequence[Row], metric: str) -> dict[tuple[str, int], Floats]:
    """Means over seeds by predictor and n, [newcomers]."""
    found: dict[tuple[str, int], dict[int, list[float]]] = {}
    for case in cases:
        own, newcomer, error = case["n"], case["newcomer"], case[metric]
        if not (isinstance(own, int) and isinstance(newcomer, int) and isinstance(error, float)):
            raise TypeError(f"a case has n, newcomer and {metric}, not {case}")
        key = str(case["predictor"]), own
        found.setdefault(key, {}).setdefault(newcomer, []).append(error)
    return {
        key: np.array([np.mean(errors) for errors in of_newcomers.values()])
        for key, of_newcomers in found.items()
    }


def plotted(out: Path, data: str, table: GainTable) -> Path:
    """MAPE over n with standard errors: local-only, with the public start, joined."""
    wanted = (
        *CLIENTS,
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
                dashed=name in CLIENTS,
                spread=[float(each.std() / np.sqrt(len(each))) for each in errors],
            )
        )
    marks = [str(own) for own in table.sizes]
    chart = lines_chart(lines, f"own executions: {data}", "MAPE, %", marks=marks, is_log=True)
    path = out / f"{data.replace(',', '').replace(' ', '_').lower()}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart, encoding="utf-8")
    return path
