"""An organization's gain from a rehearsed year: the change of errors on its own workloads.

Workloads that were kept away are asked about in three ways: by own executions alone, by these with
the start that ships, and by what joining gave. Ways are compared case by case, and workloads are
resampled.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.joining_gain import (
    LOCAL,
    PERSONALIZED,
    PUBLIC_START,
    errors_by_way,
)
from fedperf_client.prediction.query_encoding import History
from fedperf_memory.paired import Interval, PairedComparison
from fedperf_memory.year_simulation.own_jobs import LocalHistory

ALONE, WITH_START, JOINED = "alone", "with the start that ships", "joined"

_WAYS = {ALONE: LOCAL, WITH_START: PUBLIC_START, JOINED: PERSONALIZED}


@dataclass(frozen=True, slots=True)
class ErrorChange:
    """Change of a typical answer's q-error, percent; below 0 is better.

    Attributes:
        percent: change of the geometric mean over the cases.
        interval: 95 %, resampling workloads; None of a single one.
    """

    percent: float
    interval: Interval | None

    @classmethod
    def of(
        cls,
        ours: NDArray[np.float64],
        theirs: NDArray[np.float64],
        workloads: Sequence[str],
    ) -> Self:
        """The change from absolute log errors of the same cases."""
        paired = PairedComparison.by_groups(ours, theirs, groups=workloads)
        if paired.interval is None:
            return cls(_percent(paired.mean), None)
        low, high = paired.interval
        return cls(_percent(paired.mean), (_percent(low), _percent(high)))

    @property
    def is_told(self) -> bool:
        """Whether it differs from 0 surely."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if not self.is_told:
            return "no difference"
        return "better" if self.percent < 0 else "worse"


@dataclass(frozen=True, slots=True)
class OwnGain:
    """Errors of each way to predict, and what joining changes.

    Attributes:
        known: executions that were learned from.
        asked: executions that were asked about.
        workloads: that these are of.
        errors: median q-error by way to predict.
        means: geometric mean of the q-errors by way to predict.
        changes: of that mean, of `JOINED` against each other way.
    """

    known: int
    asked: int
    workloads: int
    errors: Mapping[str, float]
    means: Mapping[str, float]
    changes: Mapping[str, ErrorChange]

    @classmethod
    def of(
        cls, errors: Mapping[str, NDArray[np.float64]], workloads: Sequence[str], *, known: int
    ) -> Self:
        """The gain from absolute log errors by way to predict, [asked], and the workload of each.

        A way without an answer to everything is left out: own executions alone where there are
        none.
        """
        answered = {way: each for way, each in errors.items() if np.isfinite(each).all()}
        joined = answered[JOINED]
        return cls(
            known=known,
            asked=len(joined),
            workloads=len(set(workloads)),
            errors={way: math.exp(float(np.median(each))) for way, each in answered.items()},
            means={way: math.exp(float(np.mean(each))) for way, each in answered.items()},
            changes={
                way: ErrorChange.of(joined, each, workloads)
                for way, each in answered.items()
                if way != JOINED
            },
        )


def own_gain(jobs: LocalHistory, models: FetchedModels) -> OwnGain | None:
    """The gain of `models`; None where no own execution can be asked about."""
    known, asked = History.from_executions(jobs.known), History.from_executions(jobs.asked)
    if not len(asked):
        return None
    found = errors_by_way(known, asked, models.starts(), models)
    errors = {way: found[name] for way, name in _WAYS.items()}
    return OwnGain.of(errors, asked.workloads, known=len(known))


def _percent(log_change: float) -> float:
    return 100 * math.expm1(log_change)
