import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_engines.platforms.executor import conform
from fedperf_engines.platforms.operations import Column, ColumnType
from tests.fakes.arrow_tables import tables_equal

ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.sampled_from([0.0, 1 / 3, -2.5, 1e12, 1e-3]),
        st.sampled_from(["", "a", "é"]),
    ),
    max_size=12,
)


def table(rows: list[tuple[int, float, str]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = pa.int64(), pa.float64(), pa.large_string()
    return pa.table(
        {name: pa.array(v, t) for name, v, t in zip("kvt", columns, types, strict=True)}
    )


@given(rows=ROWS, seed=st.integers(0, 1000))
def test_tables_equal_ignores_row_order_and_float_rounding(
    rows: list[tuple[int, float, str]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    rounded = [(k, v * (1 + 1e-13 * rng.integers(-3, 4)), t) for k, v, t in shuffled]
    assert tables_equal(table(rows), table(rounded))


@given(rows=ROWS.filter(bool), change=st.sampled_from(["k", "v", "t", "dropped", "repeated"]))
def test_tables_equal_detects_any_changed_row(
    rows: list[tuple[int, float, str]], change: str
) -> None:
    (k, v, t), rest = rows[0], rows[1:]
    changed = {
        "k": [(k + 10, v, t), *rest],
        "v": [(k, v * 1.001 + 0.5, t), *rest],
        "t": [(k, v, t + "x"), *rest],
        "dropped": rest,
        "repeated": [*rows, rows[0]],
    }[change]
    assert not tables_equal(table(rows), table(changed))


def test_tables_equal_detects_values_swapped_between_rows() -> None:
    assert not tables_equal(
        table([(1, 1.0, "a"), (2, 2.0, "a")]), table([(1, 2.0, "a"), (2, 1.0, "a")])
    )


def test_tables_equal_detects_other_names_or_types() -> None:
    left = table([(1, 1.0, "a")])
    assert not tables_equal(left, left.rename_columns(["k", "v", "u"]))
    assert not tables_equal(left, left.set_column(0, "k", pa.array([1.0])))


def test_conform_converts_types_and_refuses_lossy_conversion() -> None:
    raw = pa.table(
        {"n": pa.array([1, 2], pa.uint32()), "w": pa.array(["a", "b"], pa.string_view())}
    )
    schema = (Column("w", ColumnType.TEXT), Column("n", ColumnType.INTEGER))
    result = conform(raw, schema)
    assert result.schema == pa.schema([("w", pa.large_string()), ("n", pa.int64())])
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.table({"n": [1.5]}), (Column("n", ColumnType.INTEGER),))
