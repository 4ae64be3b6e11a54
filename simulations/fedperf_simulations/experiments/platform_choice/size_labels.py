"""Errors of labels between measured sizes, by each rule of `cold_start`.

The published setting: all workflows run on small inputs, few on medium and large ones. Of
every plan of a series the rule gets the sizes in `TOLD`, and is asked about the others.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedperf_simulations.baselines.cold_start import RULES, Floats, Rule
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.harness.experiment import Row

if TYPE_CHECKING:
    from fedperf_engines.optimizer.enumeration import Assignment

TOLD = (1_000, 3_000, 10_000, 30_000, 100_000, 10_000_000)
"""Many small sizes and one large: the degree-5 polynomial needs six."""


def label_rows(series: Sequence[Case]) -> Iterator[Row]:
    """One row per rule."""
    curves = list(_curves(series))
    for name, rule in RULES.items():
        errors, negative = _judged(rule, curves)
        yield {
            "part": "labels",
            "rule": name,
            "labels": len(errors),
            "negative": negative,
            "relative error": float(np.mean(errors)) if len(errors) else None,
            "median relative error": float(np.median(errors)) if len(errors) else None,
        }


def _judged(rule: Rule, curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, int]:
    errors: list[Floats] = []
    negative = 0
    for rows, seconds in curves:
        told = np.isin(rows, TOLD)
        labels = rule(rows[told], seconds[told], rows[~told])
        negative += int(np.sum(~(labels > 0)))
        errors.append(np.abs(labels / seconds[~told] - 1))
    return np.concatenate(errors) if errors else np.empty(0), negative


def _curves(series: Sequence[Case]) -> Iterator[tuple[Floats, Floats]]:
    """Rows and seconds of every plan that ended well at all told sizes and at others."""
    found: dict[tuple[str, Assignment], dict[int, float]] = defaultdict(dict)
    for case in series:
        for plan, seconds in case.seconds.items():
            if seconds < math.inf:
                found[case.workload, plan][case.rows] = seconds
    for sizes in found.values():
        if set(TOLD) < sizes.keys():
            rows = np.array(sorted(sizes), dtype=np.float64)
            yield rows, np.array([sizes[int(each)] for each in rows])
