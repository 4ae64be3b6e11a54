"""GGFN has the promised size, and a plan's prediction depends on that plan alone."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.model.architecture import (
    ARRAY_SHAPES,
    PARAMETERS,
    InvalidModelStateError,
    check_arrays,
    offset_of,
    standardise,
)
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_RUNTIME_SECONDS,
    OperatorClass,
    OperatorKind,
    Platform,
)
from fedperf_simulations.model.fit import (
    HUBER_DELTA,
    InvalidTrainingDataError,
    TrainingDivergedError,
    fit,
    huber_per_sample,
    huber_within,
    predict,
)
from fedperf_simulations.model.ggfn import (
    GGFN,
    EmptyBatchError,
    InvalidDropoutError,
    collate,
    state_to_arrays,
)
from tests.fakes.plans import relabelled

if TYPE_CHECKING:
    from fedperf_shared.model.checkpoint import NamedArrays

CLUSTER = ClusterConfig(nodes=1, cores=2, memory_bytes=8 * 2**30)
PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def random_plan(random: np.random.Generator, operators: int) -> Plan:
    """A random DAG of one component in which ties of kind and size are common."""
    rows = [float(random.choice([1e3, 1e6])) for _ in range(operators)]
    nodes = []
    for position in range(operators):
        parents = random.choice(position, size=min(position, int(random.integers(1, 3))))
        kind = OperatorKind.TABLE_SOURCE if position == 0 else OperatorKind.MAP
        inputs = tuple(int(parent) for parent in np.atleast_1d(parents)) if position else ()
        nodes.append(Operator(kind, OperatorClass.RELATIONAL, inputs, rows[position], 8.0))
    platforms = tuple(PLATFORMS[int(random.integers(3))] for _ in nodes)
    return Plan(Workflow(tuple(nodes)), platforms)


def relabelled_plan(plan: Plan, order: list[int]) -> Plan:
    return Plan(relabelled(plan.workflow, order), tuple(plan.platforms[p] for p in order))


def graph_of(plan: Plan) -> Features:
    return featurize(plan, CLUSTER)


def some_graphs(count: int, seed: int = 0, *, longest: int = 12) -> list[Features]:
    random = np.random.default_rng(seed)
    lengths = (int(random.integers(1, longest + 1)) for _ in range(count))
    return [graph_of(random_plan(random, length)) for length in lengths]


@pytest.fixture(scope="module")
def model() -> GGFN:
    return GGFN(seed=3).eval()


def test_ggfn_has_exactly_615809_float32_parameters(model: GGFN) -> None:
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS == 615_809
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())


def test_ggfn_array_shapes_constant_matches_the_model(model: GGFN) -> None:
    state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert list(state.items()) == list(ARRAY_SHAPES.items())
    assert list(state) == [name for name, _ in model.named_parameters()]


def test_ggfn_prediction_is_independent_of_the_rest_of_the_batch(model: GGFN) -> None:
    graphs = some_graphs(20)
    with torch.inference_mode():
        together = model(collate(graphs))
        alone = torch.cat([model(collate([graph])) for graph in graphs])
        backwards = model(collate(graphs[::-1])).flip(0)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together, backwards, rtol=0, atol=1e-5)
    assert together.std() > 1e-3


def test_ggfn_prediction_is_independent_of_operator_labelling(model: GGFN) -> None:
    random = np.random.default_rng(1)
    plans = [random_plan(random, 9) for _ in range(20)]
    others = [relabelled_plan(plan, random.permutation(9).tolist()) for plan in plans]
    first = predict(model, [graph_of(plan) for plan in plans])
    second = predict(model, [graph_of(plan) for plan in others])
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)


def test_ggfn_prediction_depends_on_platforms_edges_and_plan_features(model: GGFN) -> None:
    graph = graph_of(random_plan(np.random.default_rng(2), 6))
    moved = graph.operators.copy()
    moved[3, 28:38] = np.roll(moved[3, 28:38], 1)
    with torch.inference_mode():
        base, platform, edges, plan = model(
            collate(
                [
                    graph,
                    replace(graph, operators=moved),
                    replace(graph, edges=graph.edges[:, :-1]),
                    replace(graph, plan=graph.plan + 0.5),
                ]
            )
        ).tolist()
    assert len({round(value, 6) for value in (base, platform, edges, plan)}) == 4


def test_ggfn_loss_of_one_sample_has_no_gradient_for_other_samples(model: GGFN) -> None:
    batch = collate(some_graphs(5))
    operators = batch.operators.requires_grad_()
    model(batch)[2].backward()
    assert operators.grad is not None
    touched = batch.places[batch.samples[operators.grad.any(dim=1)]]
    assert set(touched.tolist()) == {2}
    model.zero_grad()


def test_collate_packs_time_major_with_symmetric_edges_and_self_loops() -> None:
    graphs = some_graphs(7)
    batch = collate(graphs)
    lengths = [len(graphs[place].order) for place in batch.places.tolist()]
    assert lengths == sorted(lengths, reverse=True)
    assert batch.batch_sizes.tolist() == [
        sum(length > step for length in lengths) for step in range(lengths[0])
    ]
    row = 0
    for step, alive in enumerate(batch.batch_sizes.tolist()):
        for sample in range(alive):
            graph = graphs[int(batch.places[sample])]
            assert np.array_equal(batch.operators[row].numpy(), graph.operators[step])
            assert int(batch.samples[row]) == sample
            row += 1
    assert row == len(batch.operators)
    edges = sorted(zip(*batch.edges.tolist(), strict=True))
    assert edges == sorted((target, source) for source, target in edges)
    loops = [source for source, target in edges if source == target]
    assert loops == list(range(row))
    assert len(edges) == row + 2 * sum(graph.edges.shape[1] for graph in graphs)
    assert torch.equal(batch.samples[batch.edges[0]], batch.samples[batch.edges[1]])


def test_ggfn_output_equals_unbatched_standard_layers_plus_analytic_offset(model: GGFN) -> None:
    """One sample, written out with explicit self loops and an unpacked GRU.

    What the network gives is added to what the analytic cost model says.
    """
    graph = graph_of(random_plan(np.random.default_rng(4), 7))
    loops = torch.arange(len(graph.order)).expand(2, -1)
    given = torch.from_numpy(graph.edges)
    edges = torch.cat([given, given.flip(0), loops], dim=1)
    with torch.inference_mode():
        states = torch.from_numpy(graph.operators)
        for attention in model.attention:
            states = torch.nn.functional.elu(attention(states, edges))
        outputs, _ = model.recurrent(states)
        fused = torch.cat([outputs[-1, :128], outputs[0, 128:], torch.from_numpy(graph.plan)])
        for dense in model.dense[:-1]:
            fused = torch.relu(dense(fused))
        expected = model.dense[-1](fused) + offset_of(graph)
        actual = model(collate([graph]))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_ggfn_predictions_are_log_seconds_within_the_public_bounds(model: GGFN) -> None:
    batch = collate(some_graphs(3))
    with torch.inference_mode():
        expected = model(batch) * 2 + math.log(0.1)
        torch.testing.assert_close(model.predict_log_seconds(batch), expected)
        wild = GGFN()
        wild.load_state_dict(model.state_dict())
        torch.nn.init.constant_(wild.get_parameter("dense.3.bias"), 1e6)
        seconds = wild.eval().predict_log_seconds(batch).exp()
    torch.testing.assert_close(seconds, torch.full((3,), MAX_RUNTIME_SECONDS))


def test_ggfn_initial_weights_depend_on_seed_and_keep_global_generator_state() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, third = (state_to_arrays(GGFN(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["dense.0.weight"], third["dense.0.weight"])


def test_ggfn_without_dropout_agrees_in_training_and_evaluation_mode() -> None:
    batch = collate(some_graphs(4))
    plain = GGFN(dropout=0, seed=1)
    torch.testing.assert_close(plain.train()(batch), plain.eval()(batch))
    dropping = GGFN(dropout=0.4, seed=1).train()
    assert not torch.allclose(dropping(batch), dropping(batch))
    with pytest.raises(InvalidDropoutError):
        GGFN(dropout=math.nan)


def test_collate_with_empty_batch_is_refused() -> None:
    with pytest.raises(EmptyBatchError):
        collate([])


def test_huber_per_sample_matches_its_formula() -> None:
    errors = torch.tensor([0.0, 0.1, -0.5, 3.0])
    expected = [0, 0.005, 0.125, HUBER_DELTA * (3 - HUBER_DELTA / 2)]
    losses = huber_per_sample(errors, torch.zeros(4))
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-5)


def test_huber_within_compares_only_differences_inside_a_group() -> None:
    predicted = torch.tensor([5.0, 5.2, 0.0, 1.0, 9.0])
    target = torch.tensor([1.0, 1.0, 0.0, 1.4, 2.0])
    losses = huber_within(predicted, target, torch.tensor([7, 7, 3, 3, 5]))
    np.testing.assert_allclose(losses.numpy(), [0.005, 0.005, 0.02, 0.02, 0], atol=1e-6)


def _learnable(count: int, seed: int) -> tuple[list[Features], NDArray[np.float64]]:
    """Short plans whose log run time is a simple function of what the features show."""
    graphs = some_graphs(count, seed, longest=5)
    labels = [
        math.log(0.01) + 4 * float(g.operators[:, 30].mean()) + 0.3 * len(g.order) for g in graphs
    ]
    return graphs, np.array(labels)


@pytest.mark.slow
def test_fit_reduces_error_and_reports_every_training_epoch() -> None:
    graphs, labels = _learnable(192, seed=1)
    test_graphs, test_labels = _learnable(60, seed=2)
    seen: list[tuple[int, float]] = []
    model = GGFN(dropout=0, seed=1)
    report = fit(
        model,
        graphs,
        labels,
        epochs=12,
        seed=4,
        batch_size=16,
        on_progress=lambda epoch, loss: seen.append((epoch, loss)),
    )
    assert report.steps == 144
    assert tuple(seen) == tuple(enumerate(report.epoch_losses, start=1))
    assert len(seen) == 12
    assert not model.training
    error = np.abs(predict(model, test_graphs) - test_labels).mean()
    assert error < 0.5 * np.abs(test_labels - labels.mean()).mean()


def test_fit_with_workload_groups_adds_within_group_loss() -> None:
    graphs, labels = _learnable(24, seed=1)
    graphs, labels = graphs * 2, np.concatenate([labels, labels[::-1]])
    with torch.inference_mode():
        outputs = GGFN(dropout=0, seed=1)(collate(graphs))
    targets = standardise(torch.tensor(labels, dtype=torch.float32))

    def first_loss(query_numbers: NDArray[np.int64]) -> float:
        report = fit(
            GGFN(dropout=0, seed=1),
            graphs,
            labels,
            epochs=1,
            seed=4,
            batch_size=16,
            learning_rate=1e-12,
            query_numbers=query_numbers,
        )
        return report.epoch_losses[0]

    alone, pairs = np.arange(48), np.arange(48) % 24
    apart = huber_per_sample(outputs, targets)
    within = huber_within(outputs, targets, torch.from_numpy(pairs))
    assert first_loss(alone) == pytest.approx(float(apart.mean()), rel=1e-4)
    assert first_loss(pairs) == pytest.approx(float((apart + within).mean()), rel=1e-4)


def test_fit_is_deterministic_for_a_seed_and_keeps_global_generator_state() -> None:
    graphs, labels = _learnable(40, seed=1)
    states = []
    for seed, noise in ((4, 1), (4, 2), (5, 1)):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        model = GGFN(dropout=0.2, seed=1)
        fit(model, graphs, labels, epochs=2, seed=seed, batch_size=16)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(state_to_arrays(model))
    first, same, other = states
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_fit_ignores_samples_of_weight_zero() -> None:
    graphs, labels = _learnable(16, seed=1)
    spoiled = labels.copy()
    spoiled[5] = -8.0
    weights = np.ones(16)
    weights[5] = 0
    states: list[NamedArrays] = []
    for these in (labels, spoiled):
        model = GGFN(seed=1)
        fit(model, graphs, these, epochs=1, seed=4, weights=weights)
        states.append(state_to_arrays(model))
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def test_fit_with_invalid_data_or_settings_is_refused_and_keeps_the_weights() -> None:
    graphs, labels = _learnable(4, seed=1)
    model = GGFN()
    before = state_to_arrays(model)
    with pytest.raises(InvalidTrainingDataError, match="0 plans"):
        fit(model, [], labels[:0], epochs=1, seed=0)
    with pytest.raises(InvalidTrainingDataError, match="4 plans"):
        fit(model, graphs, labels[:3], epochs=1, seed=0)
    with pytest.raises(InvalidTrainingDataError, match="labels"):
        fit(model, graphs, np.array([0, 1, math.nan, 2]), epochs=1, seed=0)
    with pytest.raises(InvalidTrainingDataError, match="weights"):
        fit(model, graphs, labels, epochs=1, seed=0, weights=np.zeros(4))
    with pytest.raises(InvalidTrainingDataError, match="learning_rate"):
        fit(model, graphs, labels, epochs=1, seed=0, learning_rate=math.nan)
    after = state_to_arrays(model)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_fit_that_diverges_raises_training_diverged_error() -> None:
    graphs, labels = _learnable(4, seed=1)
    model = GGFN()
    torch.nn.init.constant_(model.get_parameter("dense.0.bias"), math.inf)
    with pytest.raises(TrainingDivergedError, match="4 plans"):
        fit(model, graphs, labels, epochs=1, seed=0)


@pytest.mark.parametrize("training", [True, False])
def test_predict_uses_no_dropout_and_preserves_training_mode(training: bool) -> None:
    graphs = some_graphs(10)
    dropping, plain = GGFN(dropout=0.5, seed=1).train(training), GGFN(dropout=0, seed=1)
    np.testing.assert_array_equal(predict(dropping, graphs), predict(plain, graphs))
    assert dropping.training is training


def test_fit_accepts_one_plan_and_predict_of_no_plans_is_empty() -> None:
    graphs, labels = _learnable(1, seed=1)
    assert fit(GGFN(), graphs, labels, epochs=1, seed=0).steps == 1
    assert predict(GGFN(), []).shape == (0,)


def test_check_arrays_with_arrays_of_another_model_is_refused(model: GGFN) -> None:
    good = state_to_arrays(model)
    check_arrays(good)
    name = "recurrent.weight_hh_l1"
    bad_value = good[name].copy()
    bad_value[3, 3] = math.nan
    for array, message in (
        (good[name][:, :5], "shape"),
        (good[name].astype(np.float64), "dtype"),
        (bad_value, "finite"),
    ):
        with pytest.raises(InvalidModelStateError, match=f"{name}.*{message}"):
            check_arrays({**good, name: array})
    with pytest.raises(InvalidModelStateError, match="1 foreign") as caught:
        check_arrays({**good, "secret.name": good[name]})
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidModelStateError, match="1 missing"):
        check_arrays({key: value for key, value in good.items() if key != name})
