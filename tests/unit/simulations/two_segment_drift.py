"""A small drift for tests of continual learning: two segments that contradict each other."""

import numpy as np

from fedperf_simulations.data.public_table import Columns, PublicTable
from fedperf_simulations.experiments.drift.sequences import DriftSequence, Segment

COLUMNS = Columns((2,), 1)
ROWS = 200


def segment(name: str, level: float, *, category: int, rng: np.random.Generator) -> Segment:
    """Return rows of one category at `level`, with small random deviations."""
    codes = np.full((ROWS, 1), category)
    return Segment(
        name,
        PublicTable(codes, rng.uniform(-1, 1, (ROWS, 1))),
        level + 0.01 * rng.standard_normal(ROWS),
    )


def two_levels() -> DriftSequence:
    """Return two categories in sequence whose levels a model can distinguish."""
    rng = np.random.default_rng(5)
    segments = (
        segment("before", -1.0, category=0, rng=rng),
        segment("after", 1.0, category=1, rng=rng),
    )
    return DriftSequence("two levels", COLUMNS, segments, 1.0)
