import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedperf_server.inference.aggregation import aggregate, influence_bound, update_norm
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import InvalidReleaseError

SHAPES = ((3, 4), (5,))
Update = list[NDArray[np.float32]]


def draw_update(seed: int, size: float = 1.0) -> Update:
    rng = np.random.default_rng(seed)
    return [(size * rng.standard_normal(shape)).astype(np.float32) for shape in SHAPES]


def zeros() -> Update:
    return [np.zeros(shape, np.float32) for shape in SHAPES]


def distance(one: tuple[NDArray[np.float32], ...], other: tuple[NDArray[np.float32], ...]) -> float:
    return update_norm([a - b for a, b in zip(one, other, strict=True)])


def test_few_small_updates_are_averaged_with_equal_weight() -> None:
    updates = [draw_update(seed) for seed in range(3)]
    result = aggregate(zeros(), updates, norm_bound=100.0)
    for place, array in enumerate(result):
        expected = np.mean([update[place] for update in updates], axis=0)
        np.testing.assert_allclose(array, expected, rtol=1e-5)
        assert array.dtype == np.float32


def test_a_long_update_is_scaled_to_the_bound_and_keeps_its_direction() -> None:
    update = draw_update(1, size=50.0)
    result = aggregate(zeros(), [update], norm_bound=2.0)
    assert update_norm(result) == pytest.approx(2.0, rel=1e-5)
    ratio = np.concatenate([r.ravel() / u.ravel() for r, u in zip(result, update, strict=True)])
    assert np.ptp(ratio) < 1e-6


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 12), seed=st.integers(0, 999), exponent=st.integers(-3, 6))
def test_one_update_of_any_content_moves_the_result_by_the_stated_bound_at_most(
    count: int, seed: int, exponent: int
) -> None:
    others = [draw_update(seed + n, size=0.2) for n in range(count - 1)]
    liar = draw_update(seed + 5000, size=10.0**exponent)
    without = aggregate(zeros(), [*others, zeros()], norm_bound=1.0)
    lied = aggregate(zeros(), [*others, liar], norm_bound=1.0)
    assert distance(lied, without) <= influence_bound(count, norm_bound=1.0) + 1e-5


def test_without_trimming_the_bound_is_the_norm_bound_over_the_number_of_updates() -> None:
    assert influence_bound(4, norm_bound=2.0) == pytest.approx(0.5)
    assert influence_bound(10, norm_bound=6.0) == pytest.approx(1.0)


def test_from_five_updates_on_one_extreme_update_leaves_no_trace_beyond_the_others_range() -> None:
    honest = [draw_update(seed, size=0.01) for seed in range(4)]
    liar = [np.full(shape, 1e6, np.float32) for shape in SHAPES]
    result = aggregate(zeros(), [*honest, liar], norm_bound=1.0)
    for place, array in enumerate(result):
        assert (array <= np.max([update[place] for update in honest], axis=0) + 1e-7).all()


@pytest.mark.parametrize("place", range(5))
def test_the_lowest_and_highest_value_are_left_out_whenever_they_arrive(place: int) -> None:
    values = np.roll([-9.0, 1.0, 2.0, 6.0, 9.0], place)
    updates = [[np.array([value, -value], np.float32)] for value in values]
    (result,) = aggregate([np.zeros(2, np.float32)], updates, norm_bound=100.0)
    np.testing.assert_allclose(result, [3.0, -3.0], rtol=1e-6)


def test_the_order_of_updates_does_not_matter() -> None:
    updates = [draw_update(seed) for seed in range(6)]
    one = aggregate(zeros(), updates, norm_bound=1.0)
    other = aggregate(zeros(), updates[::-1], norm_bound=1.0)
    assert distance(one, other) < 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_refused(value: float) -> None:
    bad = zeros()
    bad[0][0, 0] = value
    with pytest.raises(InvalidReleaseError, match="norm"):
        aggregate(zeros(), [draw_update(1), bad], norm_bound=1.0)


def test_wrong_shapes_and_no_updates_are_refused() -> None:
    with pytest.raises(InvalidReleaseError, match="shapes"):
        aggregate(zeros(), [draw_update(1)[::-1]], norm_bound=1.0)
    with pytest.raises(InvalidReleaseError, match="no update"):
        aggregate(zeros(), [], norm_bound=1.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(ConfigurationError, match="norm_bound"):
        aggregate(zeros(), [zeros()], norm_bound=bound)
