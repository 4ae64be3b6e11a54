"""Query-matched cross-validation: folds that imitate the query regime."""

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.ensemble import (
    MOST_LEVELS,
    Fold,
    closest_split,
    holdout_splits,
    query_regimes,
)
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_shared.errors import InvalidInputError
from tests.unit.client.prediction.jobs import places, samples

KNOWN = samples()
PLACES = places(KNOWN)
SCALE, SIZE = PLACES.scale, PLACES.size


def at(nodes: float, megabytes: float) -> ScaleAndSize:
    return ScaleAndSize(np.log([nodes]), np.log([megabytes]))


def matching_folds(
    known: ScaleAndSize, asked: ScaleAndSize, kind: QueryRegime, features: Floats
) -> list[Fold]:
    way = closest_split(holdout_splits(known, kind, features), known, asked)
    return [] if way is None else list(way.folds)


def held(kind: QueryRegime, asked: ScaleAndSize, rows: Floats | None = None) -> list[list[float]]:
    """Return the held-out levels of each fold, as nodes or megabytes."""
    features = KNOWN.features if rows is None else rows
    values = SCALE if kind.is_of_scales else SIZE
    folds = matching_folds(PLACES, asked, kind, features)
    return [sorted(set(np.exp(values[fold.held_out]).round().tolist())) for fold in folds]


@pytest.mark.parametrize(
    ("nodes", "megabytes", "expected"),
    [
        (4, 2000, QueryRegime.SEEN),
        (5, 2000, QueryRegime.BETWEEN_SCALES),
        (4, 1700, QueryRegime.BETWEEN_SIZES),
        (14, 2000, QueryRegime.BEYOND_SCALES),
        (1, 2000, QueryRegime.BEYOND_SCALES),
        (4, 9000, QueryRegime.BEYOND_SIZES),
        (4, 100, QueryRegime.BEYOND_SIZES),
        (5, 9000, QueryRegime.BEYOND_SIZES),
        (14, 9000, QueryRegime.BEYOND_SCALES),
    ],
)
def test_query_regimes_depend_on_position_relative_to_training_data(
    nodes: float, megabytes: float, expected: QueryRegime
) -> None:
    assert query_regimes(PLACES, at(nodes, megabytes)) == [expected]


def test_query_regime_without_training_data_is_beyond_scales_without_folds() -> None:
    nothing = ScaleAndSize(np.zeros(0), np.zeros(0))
    assert query_regimes(nothing, at(4, 2000)) == [QueryRegime.BEYOND_SCALES]
    assert matching_folds(nothing, at(4, 1), QueryRegime.BEYOND_SCALES, np.zeros((0, 5))) == []


def test_folds_for_interpolation_hold_out_each_inner_level() -> None:
    assert held(QueryRegime.BETWEEN_SCALES, at(5, 2000)) == [[4], [6], [8], [10]]
    assert held(QueryRegime.BETWEEN_SIZES, at(4, 1700)) == [[1500], [2000], [3000]]


def test_folds_for_farther_extrapolation_hold_out_more_levels() -> None:
    assert held(QueryRegime.BEYOND_SCALES, at(13, 2000)) == [[12]]
    assert held(QueryRegime.BEYOND_SCALES, at(20, 2000)) == [[10, 12]]
    assert held(QueryRegime.BEYOND_SIZES, at(4, 5000)) == [[4000]]
    assert held(QueryRegime.BEYOND_SIZES, at(4, 1e6)) == [[2000, 3000, 4000]]


def test_folds_hold_out_no_rows_differing_in_a_column_constant_in_training() -> None:
    only_largest = np.column_stack([KNOWN.features, np.isclose(SIZE, SIZE.max())])
    assert held(QueryRegime.BEYOND_SIZES, at(4, 5000), only_largest) == [[3000]]
    half = only_largest.copy()
    half[::2, -1] = 0.0
    [fold] = matching_folds(PLACES, at(4, 5000), QueryRegime.BEYOND_SIZES, half)
    assert len(fold.held_out) == 6
    assert not half[fold.held_out, -1].any()


@pytest.mark.parametrize("kind", list(QueryRegime))
def test_folds_keep_levels_whole_and_disjoint_from_training(kind: QueryRegime) -> None:
    folds = matching_folds(PLACES, at(14, 9000), kind, KNOWN.features)
    assert bool(folds) == (kind is not QueryRegime.SEEN)
    for fold in folds:
        values = SCALE if kind.is_of_scales else SIZE
        assert not set(values[fold.held_out].tolist()) & set(values[fold.training].tolist())
        assert 0 < len(fold.held_out) < len(KNOWN)


def test_matched_folds_with_two_levels_are_empty() -> None:
    two = ScaleAndSize(np.log([2.0, 2.0, 4.0]), np.zeros(3))
    for kind in QueryRegime:
        assert matching_folds(two, at(8, 1), kind, np.zeros((3, 1))) == []


def test_matched_folds_group_many_distinct_sizes() -> None:
    many = ScaleAndSize(np.zeros(100), np.linspace(0, 5, 100))
    folds = matching_folds(many, at(1, 10), QueryRegime.BETWEEN_SIZES, np.ones((100, 1)))
    assert len(folds) == MOST_LEVELS - 2


def test_scale_and_size_with_invalid_values_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="length"):
        ScaleAndSize(np.zeros(2), np.zeros(3))
    with pytest.raises(InvalidInputError, match="finite"):
        ScaleAndSize(np.zeros(1), np.array([np.nan]))
