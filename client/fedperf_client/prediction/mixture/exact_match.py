"""What ran before, exactly so: its own measured times draw the answer about it.

A mix answers by folds that never split repeats of a configuration, so it speaks as if it had
not seen the configuration that is asked about. Where it was measured, the answer is the mean of
both by precision: the mix's with the mean square of its errors in folds, the measured ones with
the variance of a repeat over their number (the posterior mean of a normal with a normal
prior; Gelman et al., Bayesian Data Analysis, section 2.5). Intervals stay as wide as they are
for new workloads: wider than they need be, never narrower.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.prediction import Floats

REPEAT_SD = 0.15
"""Log seconds by which a repeat differs, before own repeats say better."""

REPEAT_SD_COUNTS = 8
"""As so many repeats `REPEAT_SD` counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Own executions by configuration: those that no feature tells apart.

    Attributes:
        log_seconds: of each configuration that was measured.
        variance: of one repeat, log seconds squared.
    """

    log_seconds: Mapping[bytes, Floats]
    variance: float

    @classmethod
    def of(cls, samples: Samples, log_seconds: Floats) -> Self:
        """Of own executions, `log_seconds` [executions]."""
        found: dict[bytes, list[float]] = defaultdict(list)
        for key, each in zip(_keys(samples), log_seconds.tolist(), strict=True):
            found[key].append(each)
        measured = {key: np.array(each) for key, each in found.items()}
        squares = sum(float(((each - each.mean()) ** 2).sum()) for each in measured.values())
        told = len(log_seconds) - len(measured)
        variance = (REPEAT_SD_COUNTS * REPEAT_SD**2 + squares) / (REPEAT_SD_COUNTS + told)
        return cls(measured, variance)

    def drawn(self, asked: Samples, log_seconds: Floats, error_variance: Floats) -> Floats:
        """The answers `log_seconds` of mixes with such errors, drawn to what was measured."""
        found = log_seconds.copy()
        for row, key in enumerate(_keys(asked)):
            measured = self.log_seconds.get(key)
            if measured is not None:
                of_mix, of_mean = error_variance[row], self.variance / len(measured)
                share = of_mix / (of_mix + of_mean)
                found[row] += share * (measured.mean() - found[row])
        return found


def _keys(samples: Samples) -> Iterator[bytes]:
    features = samples.features.astype(np.float32)  # as they are kept in a file
    for row, cell in zip(features, samples.cells.tolist(), strict=True):
        yield row.tobytes() + cell.to_bytes(8, "little", signed=True)
