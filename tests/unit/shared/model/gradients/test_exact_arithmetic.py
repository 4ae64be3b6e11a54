"""Arithmetic whose bits depend on nothing but the row itself."""

from fractions import Fraction

import pytest
import torch

from fedperf_shared.model.gradients.edges import Slots
from fedperf_shared.model.gradients.exact_arithmetic import (
    exponential,
    matrix_grid,
    one_thread,
    product,
    row_grid,
)

GENERATOR = torch.Generator().manual_seed(3)


def rows(count: int, width: int) -> torch.Tensor:
    """Of very different sizes."""
    drawn = torch.randn(count, width, generator=GENERATOR)
    return drawn * 10.0 ** (torch.rand(count, width, generator=GENERATOR) * 12 - 6)


def test_a_row_is_rounded_to_22_bits_of_its_largest_number() -> None:
    drawn = rows(50, 128)
    rounded = row_grid(drawn)
    largest = drawn.abs().amax(1, keepdim=True).double()
    assert bool(((rounded - drawn.double()).abs() <= largest * 2.0**-22).all())
    steps = rounded / (2.0 ** (torch.frexp(largest)[1] - 22).double())
    assert torch.equal(steps, steps.round())
    assert bool((steps.abs() <= 2**22).all())


def test_a_product_is_exact_before_it_is_rounded_once() -> None:
    drawn, matrix = rows(3, 384), rows(384, 2)
    found = product(drawn, matrix_grid(matrix))
    left, right = row_grid(drawn), matrix_grid(matrix)
    for row in range(3):
        for column in range(2):
            pairs = zip(left[row].tolist(), right[:, column].tolist(), strict=True)
            exact = sum((Fraction(one) * Fraction(other) for one, other in pairs), Fraction())
            assert float(found[row, column]) == float(torch.tensor(float(exact)).float())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17, 64, 101])
def test_a_row_of_a_product_does_not_depend_on_the_others(count: int) -> None:
    drawn, matrix = rows(count, 384), matrix_grid(rows(384, 128))
    together = product(drawn, matrix)
    for place in range(count):
        assert torch.equal(product(drawn[place : place + 1], matrix)[0], together[place])


def test_an_exponential_does_not_depend_on_its_place_or_on_the_others() -> None:
    values = -20 * torch.rand(1037, generator=GENERATOR)
    together = exponential(values)
    assert bool(((together.double() - values.double().exp()).abs() <= 1e-6 * together).all())
    for count in (1, 2, 3, 7, 9, 33, 1036):
        assert torch.equal(exponential(values[-count:]), together[-count:])


@pytest.mark.parametrize(
    "value", [float("inf"), float("-inf"), float("nan"), 3e38, 2.0**127, -2e37]
)
def test_a_row_beyond_all_use_is_no_number_and_spoils_no_other(value: float) -> None:
    """Its grid would not fit in float32, so that it would keep too many bits to be exact."""
    drawn = rows(3, 64)
    spoiled = drawn.clone()
    spoiled[1, 7] = value
    assert bool(row_grid(spoiled)[1].isnan().all())
    assert torch.equal(row_grid(spoiled)[[0, 2]], row_grid(drawn)[[0, 2]])


def test_sums_over_edges_have_the_order_of_a_rows_own_edges() -> None:
    own, values = torch.tensor([2, 2, 0, 2, 0]), rows(5, 3)
    company = torch.tensor([4, 2, 2, 3, 0, 4, 2, 0, 3])
    kept = torch.tensor([1, 2, 4, 6, 7])
    mixed = rows(9, 3)
    mixed[kept] = values
    sums = []
    for targets, added in ((own, values), (company, mixed)):
        slots, order = Slots.by(targets)
        for begin, end in slots.cuts:
            assert len(set(slots.rows[begin:end].tolist())) == end - begin
        sums.append(slots.add(torch.zeros(5, 3), added[order])[:3])
    assert torch.equal(*sums)
    highest = Slots.by(own)[0].raise_to(torch.full((3, 3), -1e9), values[Slots.by(own)[1]])
    assert torch.equal(highest[2], values[[0, 1, 3]].amax(0))


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with one_thread():
            inside = torch.get_num_threads()
        assert (inside, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)
