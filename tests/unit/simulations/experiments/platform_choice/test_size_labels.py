"""Labels between sizes are judged on sizes that no rule was told."""

import math
from collections.abc import Callable

import pytest

from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.corpus.measured_log import Role
from fedperf_simulations.experiments.platform_choice.tables import TOLD, label_rows
from tests.unit.simulations.compared import DUCKDB, case, everywhere

ASKED = (300_000, 1_000_000, 3_000_000)


def series(seconds: Callable[[int], float]) -> list[Case]:
    return [
        case(
            str(rows), {everywhere(DUCKDB): seconds(rows)},
            workload="w", role=Role.SERIES, rows=rows,
        )
        for rows in (*TOLD, *ASKED)
    ]  # fmt: skip


def test_a_power_law_is_labelled_without_error_in_logarithms() -> None:
    rows = {str(row["rule"]): row for row in label_rows(series(lambda rows: 1e-6 * rows**0.8))}
    assert rows["monotone in logs"]["relative error"] == pytest.approx(0, abs=1e-9)
    assert rows["published in logs"]["relative error"] == pytest.approx(0, abs=1e-6)
    assert all(row["labels"] == len(ASKED) for row in rows.values())


def test_the_published_rule_gives_negative_run_times() -> None:
    steep = series(lambda rows: 0.005 + 1e-7 * rows + (0.02 if rows == 30_000 else 0.0))
    rows = {str(row["rule"]): row for row in label_rows(steep)}
    negative = {name: row["negative"] for name, row in rows.items()}
    assert negative.pop("published") in range(1, len(ASKED) + 1)
    assert set(negative.values()) == {0}


def test_a_curve_with_a_failed_size_is_left_out() -> None:
    [first, *_] = label_rows(series(lambda rows: math.inf if rows == TOLD[2] else 1.0))
    assert (first["labels"], first["relative error"]) == (0, None)
