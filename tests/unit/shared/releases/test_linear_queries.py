"""A question that could not be answered safely cannot be made."""

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
from tests.fakes.questions import DIRECTED, make_question, random_directions

GOOD = make_question()
CLIPS = np.ones(CELLS)


def centered(value: float) -> np.ndarray:
    return np.where(np.arange(CELLS) == 5, value, 0.0)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"slot": replace(DIRECTED, kind=ReleaseKind.MODEL_UPDATE)}, "no question 1"),
        ({"version": 0}, "no question 0"),
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
def test_a_question_that_may_not_be_answered_cannot_be_made(
    changes: dict[str, object], match: str
) -> None:
    with pytest.raises(InvalidQueryError, match=match):
        replace(GOOD, **changes)  # type: ignore[arg-type]  # tests name real fields


def test_a_design_that_breaks_the_norm_rule_cannot_be_asked() -> None:
    with pytest.raises(InvalidDesignError, match="norm"):
        public_design(random_directions(CLIPS) * 1.001, CLIPS)


def test_no_column_escapes_the_norm_rule_by_underflow() -> None:
    """1e-170 squared is 0, and times a clip of 1e180 still a vector of norm 1e10."""
    escaped = public_design(np.full((16, CELLS), 1e-170), np.full(CELLS, 1e180))
    with pytest.raises(InvalidQueryError, match="clip"):
        replace(GOOD, design=escaped)
