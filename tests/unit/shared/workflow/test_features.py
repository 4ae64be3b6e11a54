"""Tests of features: bounded, versioned by their positions, and independent of labels."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.features import (
    FEATURE_LIMIT,
    FLAT_FEATURES,
    OPERATOR_FEATURES,
    PLAN_FEATURES,
    InvalidFeaturesError,
    featurize,
    featurize_assignments,
    featurize_many,
    flatten,
)
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_OPERATORS,
    MAX_ROW_BYTES,
    MAX_ROWS,
    NAMED_PLATFORMS,
    RESERVED_KINDS,
    RESERVED_PLATFORMS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)
from fedperf_simulations.model.feature_names import feature_names
from tests.fakes.plans import relabelled
from tests.work import count_calls

CLUSTER = ClusterConfig(nodes=2, cores=8, memory_bytes=16 * 2**30, machine_speed=1.5)
OPERATOR_NAMES, PLAN_NAMES = feature_names()
RELATIONAL = OperatorClass.RELATIONAL


def credit_plan() -> Plan:
    """Return a plan of two sources, a join and K-means, written back to front."""
    operators = (
        Operator(OperatorKind.ML_TRAIN, OperatorClass.ML, (1,), 10, 80, iterations=20),
        Operator(OperatorKind.JOIN, RELATIONAL, (3, 2), 500, 40, key_distinct_ratio=0.25),
        Operator(OperatorKind.MAP, RELATIONAL, (4,), 1000, 24, Complexity.LINEAR, 3, partitions=7),
        Operator(OperatorKind.TABLE_SOURCE, RELATIONAL, (), 200, 16),
        Operator(OperatorKind.FILE_SOURCE, RELATIONAL, (), 1000, 32),
    )
    sources = SourceStatistics(columns=5, top_key_share=0.5, distinct_ratio=0.1, null_ratio=0.02)
    platforms = (
        Platform.SKLEARN,
        Platform.DUCKDB,
        Platform.POLARS,
        Platform.DUCKDB,
        Platform.POLARS,
    )
    return Plan(Workflow(operators, sources), platforms)


def operator_values(plan: Plan, row: int) -> dict[str, float]:
    values = featurize(plan, CLUSTER).operators[row]
    return dict(zip(OPERATOR_NAMES, values.tolist(), strict=True))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kinds = st.sampled_from([k for k in OperatorKind if k not in RESERVED_KINDS])
    platforms = st.sampled_from([p for p in Platform if p not in RESERVED_PLATFORMS])
    operators = []
    for position in range(draw(st.integers(1, 8))):
        parents = st.integers(0, max(position - 1, 0))
        operators.append(
            Operator(
                kind=draw(kinds),
                operator_class=draw(st.sampled_from(OperatorClass)),
                inputs=tuple(draw(st.lists(parents, max_size=3 if position else 0))),
                output_rows=draw(st.sampled_from([0.0, 1.0, 5e-324, MAX_ROWS])),
                row_bytes=draw(st.sampled_from([0.0, 8.0, MAX_ROW_BYTES])),
                complexity=draw(st.sampled_from(Complexity)),
                code_steps=draw(st.sampled_from([0, 3, MAX_ITERATIONS])),
                iterations=draw(st.sampled_from([0, MAX_ITERATIONS])),
                key_distinct_ratio=draw(st.sampled_from([0.0, 1.0])),
                partitions=draw(st.sampled_from([0, MAX_ITERATIONS])),
            )
        )
    workflow = Workflow(tuple(operators), SourceStatistics(draw(st.integers(0, 10_000)), 1, 1, 1))
    return Plan(workflow, tuple(draw(platforms) for _ in operators))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterConfig:
    size = st.one_of(st.integers(1, 64), st.just(10**300))
    speed = draw(st.sampled_from([5e-324, 1.0, 1.7e308]))
    return ClusterConfig(draw(size), draw(size), draw(size), speed)


@pytest.mark.slow
@given(plans(), clusters())
def test_features_of_any_plan_and_cluster_are_finite_and_bounded(
    plan: Plan, cluster: ClusterConfig
) -> None:
    features = featurize(plan, cluster)
    assert features.operators.dtype == features.plan.dtype == np.float32
    assert features.operators.shape == (len(plan.platforms), OPERATOR_FEATURES)
    assert features.plan.shape == (PLAN_FEATURES,)
    for values in (features.operators, features.plan, flatten(features)):
        assert np.isfinite(values).all()
    assert np.abs(features.operators).max() <= FEATURE_LIMIT
    assert np.abs(features.plan).max() <= FEATURE_LIMIT


@pytest.mark.slow
@given(plans(), clusters(), st.data())
def test_featurize_assignments_equals_featurizing_each_plan_alone(
    plan: Plan, cluster: ClusterConfig, data: st.DataObject
) -> None:
    platforms = st.sampled_from([p for p in Platform if p not in RESERVED_PLATFORMS])
    count = len(plan.platforms)
    others = data.draw(st.lists(st.tuples(*[platforms] * count), max_size=5))
    assignments = [plan.platforms, *others, plan.platforms]
    together = featurize_assignments(plan.workflow, assignments, cluster)
    for assignment, features in zip(assignments, together, strict=True):
        alone = featurize(Plan(plan.workflow, assignment), cluster)
        assert features.order == alone.order
        assert features.edges.tolist() == alone.edges.tolist()
        assert features.operators.tobytes() == alone.operators.tobytes()
        assert features.plan.tobytes() == alone.plan.tobytes()


@pytest.mark.slow
@given(st.lists(st.tuples(plans(), clusters()), max_size=6))
@settings(max_examples=60)
def test_featurize_many_equals_featurizing_each_plan_alone(
    asked: list[tuple[Plan, ClusterConfig]],
) -> None:
    found = featurize_many([plan for plan, _ in asked], [cluster for _, cluster in asked])
    assert len(found) == len(asked)
    for (plan, cluster), many in zip(asked, found, strict=True):
        alone = featurize(plan, cluster)
        assert many.order == alone.order
        np.testing.assert_array_equal(many.edges, alone.edges)
        np.testing.assert_array_equal(many.operators, alone.operators)
        np.testing.assert_allclose(many.plan, alone.plan, rtol=1e-6)
        assert many.analytic_log_seconds == pytest.approx(alone.analytic_log_seconds, abs=1e-12)


def test_featurize_orders_identical_operators_by_platform_in_a_batch() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, RELATIONAL, (), 10, 8)
    workflow = Workflow((source, source, Operator(OperatorKind.JOIN, RELATIONAL, (0, 1), 5, 16)))
    duckdb, polars = Platform.DUCKDB, Platform.POLARS
    assignments = [(duckdb, polars, duckdb), (polars, duckdb, duckdb), (duckdb, polars, polars)]
    first, second, third = featurize_assignments(workflow, assignments, CLUSTER)
    assert (first.order, second.order, third.order) == ((0, 1, 2), (1, 0, 2), (0, 1, 2))
    assert (first.operators == second.operators).all()
    assert featurize_assignments(workflow, [], CLUSTER) == []


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_features_are_independent_of_the_order_of_operators(
    data: st.DataObject,
) -> None:
    plan = data.draw(plans())
    order = data.draw(st.permutations(range(len(plan.platforms))))
    again = Plan(relabelled(plan.workflow, order), tuple(plan.platforms[p] for p in order))
    first, second = featurize(plan, CLUSTER), featurize(again, CLUSTER)
    np.testing.assert_array_equal(first.operators, second.operators)
    np.testing.assert_array_equal(first.plan, second.plan)


def test_featurize_orders_identical_operators_by_platform_not_position() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, RELATIONAL, (), 10, 8)
    workflow = Workflow((source, source, Operator(OperatorKind.JOIN, RELATIONAL, (0, 1), 10, 8)))
    first, second = (
        featurize(Plan(workflow, (*twins, Platform.DUCKDB)), CLUSTER)
        for twins in (
            (Platform.POLARS, Platform.PANDAS),
            (Platform.PANDAS, Platform.POLARS),
        )
    )
    np.testing.assert_array_equal(first.operators, second.operators)
    assert (first.order, second.order) == ((0, 1, 2), (1, 0, 2))


def test_operator_features_are_at_their_documented_positions() -> None:
    plan = credit_plan()
    rows = featurize(plan, CLUSTER).operators
    # Order: sources by kind (file, table), map, join, ml_train.
    assert rows[:, 0:24].argmax(axis=1).tolist() == [0, 1, 2, 10, 15]
    assert rows[:, 24:28].argmax(axis=1).tolist() == [0, 0, 0, 0, 3]
    assert rows[:, 28:38].argmax(axis=1).tolist() == [1, 0, 1, 0, 3]
    assert (rows[:, 0:38].sum(axis=1) == 3).all()
    np.testing.assert_allclose(
        rows[3, 38:46],
        [2, 1, 2 / 12, 1 / 12, 0, 0, math.log2(9) / 10, 0],
        rtol=1e-6,
    )
    np.testing.assert_allclose(rows[2, 45:50], [0.3, 0, 0, 1.25, 0], rtol=1e-6)
    assert rows[3, 46] == 1
    expected = [math.log1p(v) / 10 for v in (1200, 1000, 500)]
    np.testing.assert_allclose(rows[3, 50:53], expected, rtol=1e-6)
    np.testing.assert_allclose(rows[3, 53], math.log(501 / 1201) / 10, rtol=1e-5)
    bytes_in = 200 * 16 + 1000 * 24
    expected = [math.log1p(v) / 10 for v in (bytes_in, 500 * 40, 40)]
    np.testing.assert_allclose(rows[3, 54:57], expected, rtol=1e-6)
    np.testing.assert_allclose(rows[3, 57:60], [1, math.log1p(24_000) / 10, 1], rtol=1e-6)
    assert rows[4, 60] == pytest.approx(math.log1p(20) / 10)
    assert rows[3, 61] == 0.25
    assert rows[:, 62].tolist() == [0] * 5


def test_operator_features_of_source_and_sort_have_expected_values() -> None:
    source = Operator(OperatorKind.TABLE_SOURCE, RELATIONAL, (), 100, 8)
    sort = Operator(OperatorKind.SORT, RELATIONAL, (0,), 100, 8)
    plan = Plan.on_one_platform(Workflow((source, sort)), Platform.PANDAS)
    values = operator_values(plan, 0)
    rows = math.log1p(100) / 10
    assert values["input_rows"] == values["largest_input_rows"] == pytest.approx(rows)
    assert values["selectivity"] == 0
    assert (values["is_source"], values["is_sink"], values["order_sensitive"]) == (1, 0, 0)
    values = operator_values(plan, 1)
    assert (values["is_source"], values["is_sink"], values["order_sensitive"]) == (0, 1, 1)


def test_plan_features_are_at_their_documented_positions() -> None:
    values = featurize(credit_plan(), CLUSTER).plan
    np.testing.assert_allclose(
        values[0:9], [5 / 12, 4 / 12, 3 / 12, 2 / 4, 2 / 3, 1 / 3, 1 / 3, 1 / 3, 1], rtol=1e-6
    )
    np.testing.assert_allclose(values[9:17], [0.4, 0.4, 0, 0.2, 0, 0, 0, 0], rtol=1e-6)
    crossing = 24_000 + 500 * 40
    np.testing.assert_allclose(values[17:19], [2 / 6, math.log1p(crossing) / 20], rtol=1e-6)
    np.testing.assert_allclose(values[19:23], [0.8, 0, 0, 0.2], rtol=1e-6)
    assert values[23:27].tolist() == [0, 1, 0, 1]
    total = 200 * 16 + 1000 * 32
    expected = [math.log1p(1200) / 10, math.log1p(total) / 20, math.log1p(1000) / 10]
    np.testing.assert_allclose(values[27:30], expected, rtol=1e-6)
    np.testing.assert_allclose(values[30], math.log1p(total / 1200) / 5, rtol=1e-6)
    np.testing.assert_allclose(values[31:35], [0.5, 0.5, 0.1, 0.02], rtol=1e-6)
    expected = [math.log1p(8) / 5, math.log(16) / 5, 2, 1.5]
    np.testing.assert_allclose(values[35:39], expected, rtol=1e-6)


def test_plan_features_without_named_platforms_have_no_shares_or_switches() -> None:
    workflow = credit_plan().workflow
    unassigned = featurize(Plan.on_one_platform(workflow, Platform.UNASSIGNED), CLUSTER).plan
    assert not unassigned[8:19].any()
    half = Plan(workflow, (Platform.DUCKDB,) + (Platform.UNASSIGNED,) * 4)
    assert featurize(half, CLUSTER).plan[17] == 0
    other = featurize(Plan.on_one_platform(workflow, Platform.OTHER), CLUSTER).plan
    assert not other[9:17].any()


def test_features_differ_only_in_platform_positions_when_platforms_change() -> None:
    plan = credit_plan()
    moved = Plan.on_one_platform(plan.workflow, Platform.PANDAS)
    changed = featurize(plan, CLUSTER).operators != featurize(moved, CLUSTER).operators
    assert set(np.flatnonzero(changed.any(axis=0))) <= {*range(28, 38), 57, 58, 59}
    changed = featurize(plan, CLUSTER).plan != featurize(moved, CLUSTER).plan
    assert set(np.flatnonzero(changed)) <= set(range(8, 19))


def test_feature_edges_connect_rows_of_parents_and_children() -> None:
    features = featurize(credit_plan(), CLUSTER)
    assert features.order == (4, 3, 2, 1, 0)
    assert sorted(zip(*features.edges.tolist(), strict=True)) == [(0, 2), (1, 3), (2, 3), (3, 4)]


def test_feature_names_are_unique_and_complete() -> None:
    assert (len(OPERATOR_NAMES), len(PLAN_NAMES)) == (OPERATOR_FEATURES, PLAN_FEATURES)
    assert len(set(OPERATOR_NAMES)) == OPERATOR_FEATURES
    assert len(set(PLAN_NAMES)) == PLAN_FEATURES


def test_features_with_impossible_values_or_shapes_are_refused() -> None:
    good = featurize(credit_plan(), CLUSTER)
    for bad in (math.nan, math.inf, -17.0):
        operators = good.operators.copy()
        operators[2, 50] = bad
        with pytest.raises(InvalidFeaturesError, match="operator features"):
            replace(good, operators=operators)
    with pytest.raises(InvalidFeaturesError, match="shapes"):
        replace(good, operators=good.operators[:, :62])
    with pytest.raises(InvalidFeaturesError, match="rows 0 to 4"):
        replace(good, edges=good.edges + 1)
    for bad in (math.nan, 17.0):
        with pytest.raises(InvalidFeaturesError, match="analytic_log_seconds"):
            replace(good, analytic_log_seconds=bad)


def flat_names() -> list[str]:
    """Return the names of the flat vector: per kind and platform, then sums, then the plan."""
    cells = [
        f"{what}_{kind.name.lower()}_on_{platform.name.lower()}"
        for what in ("count", "input_rows", "output_rows")
        for kind in OperatorKind
        for platform in NAMED_PLATFORMS
    ]
    summed = (45, 46, 47, 48, 49, 53, 54, 55, 57, 58, 60, 61, 62)
    return [*cells, *(f"sum_{OPERATOR_NAMES[slot]}" for slot in summed), "analytic", *PLAN_NAMES]


def test_flat_features_count_operators_and_rows_per_kind_and_platform() -> None:
    flat = flatten(featurize(credit_plan(), CLUSTER))
    assert flat.shape == (FLAT_FEATURES,) == (629,)
    vector = dict(zip(flat_names(), flat, strict=True))
    assert vector["count_join_on_duckdb"] == 1
    assert vector["count_join_on_polars"] == 0
    assert vector["input_rows_join_on_duckdb"] == pytest.approx(math.log1p(1200) / 10)
    assert vector["output_rows_map_on_polars"] == pytest.approx(math.log1p(1000) / 10)
    assert vector["sum_switches_in"] == 2
    assert vector["machine_speed"] == 1.5
    analytic = featurize(credit_plan(), CLUSTER).analytic_log_seconds
    assert vector["analytic"] == pytest.approx(analytic)


def test_features_of_the_largest_workflow_are_bounded() -> None:
    chain = tuple(
        Operator(OperatorKind.MAP, RELATIONAL, (p - 1,) * 40 if p else (), MAX_ROWS, MAX_ROW_BYTES)
        for p in range(MAX_OPERATORS)
    )
    features = featurize(Plan.on_one_platform(Workflow(chain), Platform.SPARK), CLUSTER)
    assert features.operators.max() == FEATURE_LIMIT


def test_featurize_of_500_plans_takes_less_than_one_cpu_second() -> None:
    """Ten million calls take about a second."""
    again = partial(featurize, credit_plan(), CLUSTER)
    again()  # tables of constants are made once
    assert count_calls(again) < 700


def test_featurize_many_keeps_partition_counts_of_plans_separate() -> None:
    told = Operator(OperatorKind.FILE_SOURCE, RELATIONAL, (), 1e9, 8, partitions=200)
    rows = Operator(OperatorKind.FILE_SOURCE, RELATIONAL, (), 1e9, 8)
    few = Operator(OperatorKind.FILTER, RELATIONAL, (0,), 10, 8)
    asked = [
        Plan.on_one_platform(Workflow(operators), Platform.DUCKDB)
        for operators in ((told, few, few), (rows, few, replace(few, inputs=(1,))))
    ]
    cluster = replace(CLUSTER, cores=64)
    found = featurize_many(asked, [cluster] * 2)
    for plan, many in zip(asked, found, strict=True):
        alone = featurize(plan, cluster).analytic_log_seconds
        assert many.analytic_log_seconds == pytest.approx(alone, abs=1e-12)
