"""Parsing of the command-line constraints on a plan."""

import pytest

from fedperf_engines.advice import constraints
from fedperf_engines.advice.constraints import (
    PlanConstraints,
    candidate_platforms,
    parse_memory,
    parse_pins,
    parse_platforms,
    platforms_without_rows,
    require_measured,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform
from tests.unit.client.advice.jobs import DUCKDB, GIB, PANDAS, POLARS, SPARK, learning


def test_parse_pins_accepts_number_or_unique_operator_kind() -> None:
    assert parse_pins(["3=spark", "ml_train = duckdb"], learning()) == {3: SPARK, 4: DUCKDB}
    assert parse_pins(["join=spark", "3=spark"], learning()) == {3: SPARK}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("join", "--pin is like 3=spark or join=spark, got 'join'"),
        ("=spark", "--pin is like"),
        ("file_source=spark", r"several operators are file_source \(0, 1\): pin one by number"),
        ("window=spark", "no operator is 'window'; there are file_source, filter, join"),
        ("join=abacus", "unknown platform 'abacus'; expected one of duckdb"),
    ],
)
def test_parse_pins_with_invalid_pin_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        parse_pins([text], learning())


def test_parse_pins_with_two_platforms_for_one_operator_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="operator 3 cannot stay on two platforms"):
        parse_pins(["3=spark", "join=duckdb"], learning())


def test_parse_memory_accepts_caps_per_platform_or_for_all() -> None:
    caps, others = parse_memory(["pandas=1.5GB", "8 GiB", "duckdb=500MB"])
    assert caps == {PANDAS: 1.5e9, DUCKDB: 5e8}
    assert others == 8 * GIB
    for text in ("much", "pandas=", "=4GB", "4", "pandas=4gb"):
        with pytest.raises(InvalidInputError, match="--memory is like 8GB or pandas=4GB"):
            parse_memory([text])
    with pytest.raises(InvalidInputError, match="unknown platform 'abacus'"):
        parse_memory(["abacus=4GB"])


def test_memory_caps_default_to_node_memory_for_platforms_that_cannot_spill() -> None:
    cluster = ClusterConfig(2, 8, 16 * GIB)
    three = (DUCKDB, PANDAS, SPARK)
    assert PlanConstraints(three).memory_caps(cluster) == {PANDAS: 8 * GIB}
    assert PlanConstraints(three, memory={SPARK: 5.0}).memory_caps(cluster) == {
        PANDAS: 8 * GIB,
        SPARK: 5.0,
    }
    all_capped = PlanConstraints(three, memory={PANDAS: 7.0}, memory_of_others=9.0)
    assert all_capped.memory_caps(cluster) == {DUCKDB: 9.0, PANDAS: 7.0, SPARK: 9.0}


@pytest.fixture
def only_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "installed_platforms", lambda: (DUCKDB,))


@pytest.mark.usefixtures("only_duckdb")
def test_candidate_platforms_are_those_installed_or_in_local_executions() -> None:
    assert candidate_platforms(None, (), ()) == (DUCKDB,)
    assert candidate_platforms(None, (), {SPARK, Platform.UNASSIGNED, Platform.OTHER}) == (
        DUCKDB,
        SPARK,
    )
    assert candidate_platforms([DUCKDB, DUCKDB], (), ()) == (DUCKDB,)


@pytest.mark.usefixtures("only_duckdb")
@pytest.mark.parametrize(
    ("platform", "says"),
    [
        (SPARK, "spark is not installed: pip install 'fedperf[spark]' and Java 17"),
        (POLARS, "polars is not installed: pip install polars"),
        (Platform.FLINK, "flink is not installed, and no local execution ran on it"),
    ],
)
def test_candidate_platforms_with_missing_platform_names_installation_step(
    platform: Platform, says: str
) -> None:
    for named, pinned in (([platform], []), (None, [platform])):
        with pytest.raises(InvalidInputError) as caught:
            candidate_platforms(named, pinned, ())
        assert str(caught.value) == says


def test_parse_platforms_splits_at_commas_and_refuses_empty_name() -> None:
    assert parse_platforms("duckdb, Polars") == (DUCKDB, POLARS)
    with pytest.raises(InvalidInputError, match="unknown platform ''"):
        parse_platforms("duckdb,")


def test_memory_cap_below_measured_peak_of_the_job_is_refused() -> None:
    on_pandas = Plan.on_one_platform(learning(), PANDAS)
    with pytest.raises(InvalidInputError, match="for pandas is less than the 3"):
        require_measured({}, 1e9, on_pandas, 3 * GIB)
    with pytest.raises(InvalidInputError):
        require_measured({PANDAS: 1e9}, 1e12, on_pandas, 3 * GIB)
    require_measured({PANDAS: 4e9, DUCKDB: 1e9}, None, on_pandas, 3 * GIB)
    require_measured({}, 1e9, on_pandas, 0)
    mixed = Plan(learning(), (DUCKDB, PANDAS, *[POLARS] * 4))
    require_measured({}, 1e9, mixed, 3 * GIB)


def test_platforms_for_unknown_rows_are_limited_to_current_and_named_ones() -> None:
    today = Plan.on_one_platform(learning(), SPARK)
    unknown = KnownJob("nightly", has_rows=False)
    assert platforms_without_rows(unknown, today, ()) == (SPARK,)
    assert platforms_without_rows(unknown, today, [DUCKDB]) == (SPARK, DUCKDB)
    assert (
        platforms_without_rows(unknown, Plan.on_one_platform(learning(), Platform.OTHER), ())
        is None
    )
    assert platforms_without_rows(KnownJob("nightly"), today, ()) is None
    assert platforms_without_rows(None, today, ()) is None
