"""Arithmetic whose bits depend on nothing but the row itself, whatever is computed beside it.

Invariant: a product's terms lie on one power-of-two grid, and no partial sum reaches 2^53
steps of it. So float64 holds each of them exactly, in any order, in blocks, with fused
multiplication and from any library. All else is elementwise, or a sum in a fixed order.

Elementwise functions may round the last numbers of an array, which do not fill a vector,
in another way. So they see whole vectors only: widths are multiples of 64, `exponential`
pads, and `one_thread` keeps torch from cutting arrays in pieces.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

BITS = 22
"""Bound of a number of a row or matrix: 384 products of two such have at most 2^52.6 steps."""

LARGEST = 2.0**100
"""A row with a number beyond this is no longer numbers at all; powers of two stay in float32."""

_VECTOR = 64

_EXPONENT_32, _EXPONENT_64 = 0x7F800000, 0x7FF0000000000000


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def largest(rows: Tensor) -> Tensor:
    """The largest absolute number of every row, [..., rows, 1]."""
    return torch.maximum(rows.amax(-1, keepdim=True), rows.amin(-1, keepdim=True).neg_())


def row_grid(rows: Tensor) -> Tensor:
    """float32 [..., rows, width] rounded to `BITS` bits of each row's largest, as float64."""
    most = largest(rows)
    exponents = most.view(torch.int32) & _EXPONENT_32
    # Adding 1.5 * 2^(e + 24 - BITS) leaves no bit below the grid.
    shift = (exponents + ((24 - BITS) << 23) | (1 << 22)).view(torch.float32)
    shift = torch.where(most < LARGEST, shift, torch.nan)
    return (rows + shift).sub_(shift).double()


def matrix_grid(matrix: Tensor) -> Tensor:
    """float32 `matrix` rounded to `BITS` bits of its largest number, as float64."""
    matrix = matrix.double()
    exponent = matrix.abs().max().view(torch.int64) & _EXPONENT_64
    shift = (exponent + ((53 - BITS) << 52) | (1 << 51)).view(torch.float64)
    return (matrix + shift).sub_(shift)


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """float32 [..., rows, inner] times a matrix of `matrix_grid` [..., inner, width].

    At most 384 inner numbers, so that the sums are exact before they become float32.
    """
    return torch.matmul(row_grid(rows), matrix).float()


def exponential(values: Tensor) -> Tensor:
    """e^values, by whole vectors alone.

    Torch 2.13 rounds e^x alike in a rest too, but not the sigmoid or the ELU; nothing rests on it.
    """
    count = values.numel()
    padded = values.new_zeros(-(-count // _VECTOR) * _VECTOR)
    padded[:count] = values.flatten()
    return padded.exp_()[:count].view(values.shape)
