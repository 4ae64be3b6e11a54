"""Paired comparisons, case by case, so that no single case decides.

A case is a new participant, a split or a job that both sides predict. A comparison has the mean
and its bootstrap interval, the median over cases with its own, the share of cases that improved,
and the mean without the most favourable case. Where cases come in groups that have much in common
(queries of a lineage, draws of a job), groups are resampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedperf_memory.paired import RESAMPLES, Floats, Interval, interval_by_groups, interval_of

Ints = NDArray[np.int64]

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A comparison of our errors with theirs, case by case. Below 0 is better.

    Attributes:
        mean: of all cases.
        interval: 95 % bootstrap interval of the mean, resampling cases; None of a single one in
            every stratum.
        median: of the changes case by case.
        median_interval: as `interval`.
        wins: cases that became better; None where nothing is compared with.
        cases: how many there are.
        one_left_out: the mean without the case, or the stratum where there are some, that lowers
            it most; None of a single one.
    """

    mean: float
    interval: Interval | None
    median: float
    median_interval: Interval | None
    wins: int | None
    cases: int
    one_left_out: float | None

    @classmethod
    def percent(cls, ours: ArrayLike, theirs: ArrayLike) -> "PairedComparison":
        """Change in percent: of the mean error, and of each case's error, [cases]."""
        against = np.asarray(theirs, float)
        return _compared(PERCENT * (np.asarray(ours, float) - against), against)

    @classmethod
    def points(
        cls,
        ours: ArrayLike,
        theirs: ArrayLike | None = None,
        strata: Sequence[object] | None = None,
    ) -> "PairedComparison":
        """Change in the unit of the errors, [cases]. Without `theirs` the errors themselves.

        Args:
            ours: errors of each case.
            theirs: of the same cases.
            strata: a group of each case; groups are fixed, cases are resampled inside of them.
        """
        errors = np.asarray(ours, float)
        ones = np.ones(len(errors))
        if theirs is None:
            return replace(_compared(errors, ones, strata), wins=None)
        return _compared(errors - np.asarray(theirs, float), ones, strata)

    @classmethod
    def by_groups(
        cls, ours: ArrayLike, theirs: ArrayLike | None = None, *, groups: Sequence[object]
    ) -> "PairedComparison":
        """Compare like `points`, but resample, and leave out, whole groups of cases.

        Args:
            ours: errors of each case.
            theirs: of the same cases.
            groups: that of each case.
        """
        errors = np.asarray(ours, float)
        changes = errors if theirs is None else errors - np.asarray(theirs, float)
        parts = _groups(groups)
        return cls(
            float(changes.mean()),
            interval_by_groups(changes, groups),
            float(np.median(changes)),
            interval_by_groups(changes, groups, share=0.5),
            None if theirs is None else int((changes < 0).sum()),
            len(changes),
            _one_left_out(changes, np.ones(len(changes)), parts) if len(parts) > 1 else None,
        )


def _compared(
    changes: Floats, against: Floats, strata: Sequence[object] | None = None
) -> PairedComparison:
    """Compare the means of `changes` and `against`, and the median of their ratios."""
    each, count = changes / against, len(changes)
    groups = _groups(strata) if strata else [np.arange(count)]
    interval: Interval | None = None
    median_interval: Interval | None = None
    if count > len(groups):
        resamples = _resampled(groups)
        interval = interval_of(changes[resamples].mean(axis=1) / against[resamples].mean(axis=1))
        median_interval = interval_of(np.median(each[resamples], axis=1))
    parts = groups if strata else list(np.arange(count)[:, None])
    return PairedComparison(
        float(changes.mean() / against.mean()),
        interval,
        float(np.median(each)),
        median_interval,
        int((changes < 0).sum()),
        count,
        _one_left_out(changes, against, parts) if len(parts) > 1 else None,
    )


def _groups(strata: Sequence[object]) -> list[Ints]:
    labels = np.array([str(each) for each in strata])
    return [np.flatnonzero(labels == each) for each in np.unique(labels)]


def _resampled(groups: Sequence[Ints]) -> Ints:
    """Draw cases with replacement, the same for equally many, [resamples, cases]."""
    rng = np.random.default_rng(0)
    samples = [each[rng.integers(len(each), size=(RESAMPLES, len(each)))] for each in groups]
    return np.concatenate(samples, axis=1)


def _one_left_out(changes: Floats, against: Floats, parts: Sequence[Ints]) -> float:
    """Return the largest mean when one of the parts is left out."""
    left = [np.setdiff1d(np.arange(len(changes)), each) for each in parts]
    return max(float(changes[each].mean() / against[each].mean()) for each in left)
