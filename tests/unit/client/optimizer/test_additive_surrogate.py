"""The additive surrogate: accuracy against its teacher, and invariance to operator order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedperf_client.prediction.prediction import Floats
from fedperf_engines.optimizer.additive_surrogate import (
    SHAPES,
    STARTUP_SECONDS,
    AdditiveSurrogate,
    InvalidSurrogateError,
    load_surrogate,
    save_surrogate,
)
from fedperf_engines.optimizer.distillation import distil
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from tests.unit.client.optimizer.additive_workflows import random_workflow, workflow

CLUSTER = ClusterConfig(1, 2, 2**33)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
PER_ROW = {Platform.DUCKDB: 2e-7, Platform.POLARS: 1e-7, Platform.PANDAS: 8e-7}
PER_BYTE_MOVED = 3e-8


def sized(seed: int) -> Workflow:
    rng = np.random.default_rng(seed)
    drawn = random_workflow(rng, int(rng.integers(2, 9)))
    rows = float(10 ** rng.uniform(4, 7))
    return Workflow(
        tuple(
            replace(each, output_rows=rows * float(rng.uniform(0.3, 1)), row_bytes=40.0)
            for each in drawn.operators
        )
    )


def seconds_of(plan: Plan) -> float:
    """Return the seconds of an additive teacher: rows by platform, and bytes over each switch."""
    operators = plan.workflow.operators
    work = sum(
        PER_ROW[platform] * each.output_rows
        for each, platform in zip(operators, plan.platforms, strict=True)
    )
    moved = sum(
        operators[parent].output_bytes
        for parent, child in plan.workflow.edges
        if plan.platforms[parent] != plan.platforms[child]
    )
    return work + PER_BYTE_MOVED * moved


def teacher(questions: Sequence[PlanOnCluster]) -> Floats:
    return np.log([seconds_of(question.plan) for question in questions])


def runs_anywhere(kind: OperatorKind, platform: Platform) -> bool:
    del kind, platform
    return True


def distilled(*, seed: int = 0, epochs: int = 60, workflows: int = 75) -> AdditiveSurrogate:
    known = [(sized(number), CLUSTER) for number in range(workflows)]
    return distil(teacher, known, PLATFORMS, runs_anywhere, seed=seed, epochs=epochs)


@pytest.fixture(scope="module")
def head() -> AdditiveSurrogate:
    return distilled()


def drawn_head(seed: int) -> AdditiveSurrogate:
    rng = np.random.default_rng(seed)
    return AdditiveSurrogate(
        {n: (rng.normal(size=s) / 8).astype(np.float32) for n, s in SHAPES.items()}
    )


@pytest.mark.slow
def test_surrogate_distilled_from_additive_teacher_predicts_unseen_plans(
    head: AdditiveSurrogate,
) -> None:
    rng = np.random.default_rng(1)
    ratios = []
    for number in range(1_000, 1_060):
        unseen = sized(number)
        costs = head.costs(unseen, CLUSTER, PLATFORMS, startup_seconds={})
        for _ in range(5):
            chosen = [PLATFORMS[column] for column in rng.integers(0, 3, len(unseen.operators))]
            ratios.append(costs.total(chosen) / seconds_of(Plan(unseen, tuple(chosen))))
    errors = np.abs(np.log(ratios))
    assert np.median(errors) < np.log(1.1)
    assert np.percentile(errors, 90) < np.log(1.35)


@pytest.mark.slow
def test_surrogate_ranks_platforms_like_its_teacher(head: AdditiveSurrogate) -> None:
    for number in range(1_000, 1_020):
        costs = head.costs(sized(number), CLUSTER, PLATFORMS)
        order = np.argsort(costs.operator_seconds, axis=1)
        assert (order == [1, 0, 2]).mean() > 0.95


def test_surrogate_costs_are_invariant_to_operator_order() -> None:
    head, first = drawn_head(1), sized(3)
    rng = np.random.default_rng(5)
    place = rng.permutation(len(first.operators)).tolist()
    written = [first.operators[place.index(new)] for new in range(len(place))]
    moved = Workflow(
        tuple(replace(o, inputs=tuple(place[parent] for parent in o.inputs)) for o in written)
    )
    here, there = (head.costs(each, CLUSTER, PLATFORMS) for each in (first, moved))
    assert here.operator_seconds == pytest.approx(there.operator_seconds[place], rel=1e-4)
    plans = rng.integers(0, 3, (20, len(place)))
    again = np.empty_like(plans)
    again[:, place] = plans
    assert here.totals(plans) == pytest.approx(there.totals(again), rel=1e-4)


def test_transfer_seconds_are_positive_only_between_different_platforms() -> None:
    many = workflow((), (), (0, 1), (2, 2))
    costs = drawn_head(2).costs(many, CLUSTER, PLATFORMS)
    assert costs.transfer_seconds.shape == (4, 3, 3)
    assert (costs.transfer_seconds > 0).sum() == 4 * 6
    assert costs.transfer_seconds[2].tolist() == costs.transfer_seconds[3].tolist()


def test_surrogate_costs_have_requested_platforms_and_their_startup_seconds() -> None:
    head, one = drawn_head(3), sized(4)
    some = head.costs(one, CLUSTER, (Platform.SPARK, Platform.DUCKDB))
    other = head.costs(one, CLUSTER, (Platform.DUCKDB, Platform.SPARK))
    assert some.operator_seconds.tolist() == other.operator_seconds[:, ::-1].tolist()
    starts = [STARTUP_SECONDS[Platform.SPARK], STARTUP_SECONDS[Platform.DUCKDB]]
    assert some.startup_seconds.tolist() == starts
    warm = head.costs(one, CLUSTER, (Platform.SPARK,), startup_seconds={})
    assert warm.startup_seconds.tolist() == [0.0]


def test_distil_is_deterministic_for_a_seed() -> None:
    first, again, other = (distilled(seed=s, epochs=2, workflows=5) for s in (1, 1, 2))
    assert all((first.arrays[name] == again.arrays[name]).all() for name in SHAPES)
    assert any((first.arrays[name] != other.arrays[name]).any() for name in SHAPES)


def test_surrogate_round_trips_through_its_file(tmp_path: Path) -> None:
    head = drawn_head(4)
    save_surrogate(head, tmp_path / "head.safetensors")
    again = load_surrogate(tmp_path / "head.safetensors")
    assert all((head.arrays[name] == again.arrays[name]).all() for name in SHAPES)
    assert [each.name for each in tmp_path.iterdir()] == ["head.safetensors"]


def test_load_surrogate_of_invalid_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    arrays = dict(drawn_head(5).arrays)
    with pytest.raises(InvalidSurrogateError, match="is not an additive surrogate"):
        load_surrogate(path)
    path.write_bytes(b"no safetensors")
    with pytest.raises(InvalidSurrogateError, match="is not an additive surrogate"):
        load_surrogate(path)
    save_file(arrays, path, metadata={"feature_schema": "999"})
    with pytest.raises(InvalidSurrogateError, match="another version of the features"):
        load_surrogate(path)
    with pytest.raises(InvalidSurrogateError, match="other arrays"):
        AdditiveSurrogate({name: each for name, each in arrays.items() if name != "edge.1.bias"})
    with pytest.raises(
        InvalidSurrogateError, match=r"operator\.2\.bias of the additive surrogate is not"
    ):
        AdditiveSurrogate(arrays | {"operator.2.bias": np.full(8, np.nan, np.float32)})


def test_distil_without_runnable_workflow_is_refused() -> None:
    def nowhere(kind: OperatorKind, platform: Platform) -> bool:
        del kind, platform
        return False

    with pytest.raises(InvalidInputError, match="the platforms can run no workflow"):
        distil(teacher, [(sized(1), CLUSTER)], PLATFORMS, nowhere)
