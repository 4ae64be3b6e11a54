"""Tests of labels between input sizes: errors are computed at sizes withheld from the rules."""

import math
from collections.abc import Callable

import pytest

from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.corpus.measured_log import Role
from fedperf_simulations.experiments.platform_choice.tables import TRAINING_ROWS, label_rows
from tests.unit.simulations.comparison_cases import DUCKDB, case, everywhere

ASKED = (300_000, 1_000_000, 3_000_000)


def series(seconds: Callable[[int], float]) -> list[Case]:
    return [
        case(
            str(rows), {everywhere(DUCKDB): seconds(rows)},
            workload="w", role=Role.SERIES, rows=rows,
        )
        for rows in (*TRAINING_ROWS, *ASKED)
    ]  # fmt: skip


def test_log_interpolations_have_no_error_on_a_power_law_series() -> None:
    rows = {str(row["rule"]): row for row in label_rows(series(lambda rows: 1e-6 * rows**0.8))}
    assert rows["monotone in logs"]["relative error"] == pytest.approx(0, abs=1e-9)
    assert rows["published in logs"]["relative error"] == pytest.approx(0, abs=1e-6)
    assert all(row["labels"] == len(ASKED) for row in rows.values())


def test_published_interpolation_yields_negative_times_on_a_steep_series() -> None:
    steep = series(lambda rows: 0.005 + 1e-7 * rows + (0.02 if rows == 30_000 else 0.0))
    rows = {str(row["rule"]): row for row in label_rows(steep)}
    negative = {name: row["negative"] for name, row in rows.items()}
    assert negative.pop("published") in range(1, len(ASKED) + 1)
    assert set(negative.values()) == {0}


def test_interpolation_errors_exclude_a_series_with_a_failed_size() -> None:
    [first, *_] = label_rows(series(lambda rows: math.inf if rows == TRAINING_ROWS[2] else 1.0))
    assert (first["labels"], first["relative error"]) == (0, None)
