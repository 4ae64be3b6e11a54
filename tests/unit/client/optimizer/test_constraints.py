"""Platform constraints of operators, and the error for an operator without any platform."""

import math
import re

import pytest

from fedperf_engines.optimizer.costs import (
    MEMORY_FACTORS,
    Constraints,
    NoPlatformError,
    memory_needed,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.graph import Operator, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

DUCKDB, PANDAS, SPARK = Platform.DUCKDB, Platform.PANDAS, Platform.SPARK
GIB = 2.0**30


def scan_filter_join() -> Workflow:
    """Return a workflow of two scans (1 and 3 GiB), a filter (0.5 GiB) and a join (3.5 GiB)."""
    relational = OperatorClass.RELATIONAL
    return Workflow(
        (
            Operator(OperatorKind.FILE_SOURCE, relational, (), GIB / 8, 8),
            Operator(OperatorKind.FILE_SOURCE, relational, (), 3 * GIB / 8, 8),
            Operator(OperatorKind.FILTER, relational, (0,), GIB / 16, 8),
            Operator(OperatorKind.JOIN, relational, (2, 1), 10, 8),
        )
    )


def no_joins_in_pandas(position: int, platform: Platform) -> bool:
    return not (position == 3 and platform is PANDAS)


def test_constraints_by_default_allow_each_candidate_for_every_operator() -> None:
    constraints = Constraints((SPARK, DUCKDB, SPARK))
    assert constraints.platforms == (SPARK, DUCKDB)
    assert constraints.allowed(scan_filter_join()).tolist() == [[True, True]] * 4


def test_constraints_combine_support_pins_and_memory_into_one_mask() -> None:
    constraints = Constraints(
        (DUCKDB, PANDAS, SPARK),
        no_joins_in_pandas,
        pinned={2: SPARK},
        memory_caps={PANDAS: 15 * GIB, DUCKDB: 3 * GIB},
    )
    assert constraints.allowed(scan_filter_join()).tolist() == [
        [True, True, True],
        [True, False, True],  # pandas needs 30 GiB for the scan of 3
        [False, False, True],  # pinned to Spark
        [False, False, True],  # DuckDB needs 3.5 GiB for the join
    ]


def test_memory_needed_is_input_bytes_times_platform_factor() -> None:
    needed = memory_needed(scan_filter_join(), (DUCKDB, PANDAS))
    assert needed[:, 0] == pytest.approx([GIB, 3 * GIB, GIB, 3.5 * GIB])
    assert needed[:, 1] / needed[:, 0] == pytest.approx(MEMORY_FACTORS[PANDAS])
    assert all(factor >= 1 for factor in MEMORY_FACTORS.values())


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            Constraints((PANDAS,), no_joins_in_pandas),
            "operator 3 (JOIN) runs on none of the candidate platforms (pandas)",
        ),
        (
            Constraints(()),
            "operator 0 (FILE_SOURCE) runs on none of the candidate platforms (none)",
        ),
        (
            Constraints((DUCKDB, PANDAS), pinned={2: SPARK}),
            "operator 2 (FILTER) is to stay on spark, which is not installed or not a candidate "
            "(candidates: duckdb, pandas)",
        ),
        (
            Constraints((DUCKDB, PANDAS), no_joins_in_pandas, pinned={3: PANDAS}),
            "operator 3 (JOIN) is to stay on pandas, which cannot run it",
        ),
        (
            Constraints((DUCKDB, PANDAS), pinned={3: PANDAS}, memory_caps={PANDAS: 33 * GIB}),
            "operator 3 (JOIN) is to stay on pandas, whose memory cap it does not fit: "
            "pandas needs 35 of 33 GiB",
        ),
        (
            Constraints(
                (DUCKDB, PANDAS), no_joins_in_pandas, memory_caps={DUCKDB: 3 * GIB, PANDAS: 1e12}
            ),
            "operator 3 (JOIN) fits the memory cap of no platform that can run it: "
            "duckdb needs 3.5 of 3 GiB",
        ),
    ],
)
def test_operator_without_allowed_platform_is_named_with_the_reason(
    constraints: Constraints, message: str
) -> None:
    with pytest.raises(NoPlatformError, match=f"^{re.escape(message)}$"):
        constraints.allowed(scan_filter_join())


def test_constraints_with_unknown_operator_or_invalid_cap_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"operator 4 is to stay on spark.*0 to 3"):
        Constraints((SPARK,), pinned={4: SPARK}).allowed(scan_filter_join())
    for cap in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidInputError, match="memory cap of spark must be positive"):
            Constraints((SPARK,), memory_caps={SPARK: cap})
