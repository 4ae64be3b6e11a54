"""Comparison of tables from two engines: rows in any order, floats within a tolerance."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import Table

SIGNIFICANT_DIGITS = 9
"""Digits by which floats are ordered when rows are compared. Rounding must not reorder rows."""


def tables_equal(left: Table, right: Table, *, relative_tolerance: float = 1e-6) -> bool:
    """Return True if both tables have the same columns and the same rows, in any order.

    Floats may differ by `relative_tolerance` of the larger one, or by 1e-9 absolutely.
    """
    if left.schema != right.schema or left.num_rows != right.num_rows:
        return False
    left_rows, right_rows = _row_order(left), _row_order(right)
    return all(
        _columns_equal(
            _values(left, name)[left_rows],
            _values(right, name)[right_rows],
            relative_tolerance=relative_tolerance,
        )
        for name in left.column_names
    )


def _columns_equal(
    left: npt.NDArray[np.generic], right: npt.NDArray[np.generic], *, relative_tolerance: float
) -> bool:
    if np.issubdtype(left.dtype, np.floating):
        return bool(np.allclose(left, right, rtol=relative_tolerance, atol=1e-9, equal_nan=True))
    return bool(np.array_equal(left, right))


def _row_order(table: Table) -> npt.NDArray[np.int64]:
    """Return the order of rows by the exact columns first, then by the rounded floats."""
    exact = [n for n in table.column_names if not pa.types.is_floating(table.schema.field(n).type)]
    floats = [n for n in table.column_names if n not in exact]
    keys = [_values(table, name) for name in exact]
    keys += [_rounded(_values(table, name)) for name in floats]
    order: npt.NDArray[np.int64] = np.lexsort([_codes(key) for key in reversed(keys)])
    return order


def _codes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if values.dtype == object:
        codes: npt.NDArray[np.generic] = np.unique(values, return_inverse=True)[1]
        return codes
    return values


def _rounded(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    floats = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        magnitude = np.floor(np.log10(np.abs(floats)))
    scale = 10.0 ** (SIGNIFICANT_DIGITS - 1 - np.where(np.isfinite(magnitude), magnitude, 0))
    return np.round(floats * scale) / scale


def _values(table: Table, name: str) -> npt.NDArray[np.generic]:
    values: npt.NDArray[np.generic] = table.column(name).to_numpy()
    return values
