"""Tests of linear queries: a query of unbounded sensitivity cannot be constructed."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.linear_queries import (
    MAX_CENTER,
    Design,
    InvalidDesignError,
    InvalidQueryError,
    public_design,
)
from fedperf_shared.releases.release import ReleaseKind
from tests.fakes.cell_queries import DIRECTED, make_cell_query, random_directions

GOOD = make_cell_query()
CLIPS = np.ones(CELLS)


def centered(value: float) -> np.ndarray:
    return np.where(np.arange(CELLS) == 5, value, 0.0)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"slot": replace(DIRECTED, kind=ReleaseKind.MODEL_UPDATE)}, "a query numbered 1 for"),
        ({"version": 0}, "a query numbered 0 for"),
        ({"basis_version": 2}, "over basis 2"),
        ({"center": np.zeros(CELLS - 1)}, "center"),
        ({"center": centered(MAX_CENTER * 1.01)}, "center"),
        ({"center": centered(np.nan)}, "center"),
        ({"center": centered(-np.inf)}, "center"),
        ({"design": public_design(np.zeros((16, CELLS - 1)), CLIPS[1:])}, "95"),
        ({"design": public_design(np.zeros((15, CELLS)), CLIPS)}, "15"),
        ({"design": Design(np.zeros((16, CELLS)), CLIPS, np.zeros((1, CELLS)))}, "offsets"),
        ({"design": public_design(np.zeros((16, CELLS)), CLIPS * 1e-9)}, "clip"),
        ({"design": public_design(np.zeros((16, CELLS)), CLIPS * 1e9)}, "clip"),
    ],
)
def test_linear_query_with_invalid_fields_is_refused(
    changes: dict[str, object], match: str
) -> None:
    with pytest.raises(InvalidQueryError, match=match):
        replace(GOOD, **changes)  # type: ignore[arg-type]  # tests name real fields


def test_linear_query_design_above_norm_one_is_refused() -> None:
    with pytest.raises(InvalidDesignError, match="norm"):
        public_design(random_directions(CLIPS) * 1.001, CLIPS)


def test_linear_query_with_norm_underflow_is_refused_for_its_clip() -> None:
    """1e-170 squared underflows to 0, but a clip of 1e180 gives a vector of norm 1e10."""
    escaped = public_design(np.full((16, CELLS), 1e-170), np.full(CELLS, 1e180))
    with pytest.raises(InvalidQueryError, match="clip"):
        replace(GOOD, design=escaped)
