"""Every plan's own gradient from one backward pass is what a pass of its own gives."""

import pytest
import torch

from fedperf_shared.model.architecture import HIDDEN
from fedperf_shared.model.batches import collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.gradients.layers import Recurrent
from fedperf_shared.model.gradients.plan_gradients import Network, sample_gradients
from fedperf_shared.model.gradients.records import Rows
from fedperf_shared.workflow.features import Features, featurize
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.fakes.plans import ONE_CORE, diamond

PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)


def branches(length: int, rows: float) -> Plan:
    """A source that is read by every other operator."""
    kinds = (OperatorKind.FILTER, OperatorKind.SORT, OperatorKind.SINK)
    operators = [Operator(OperatorKind.FILE_SOURCE, OperatorClass.RELATIONAL, (), rows, 40)]
    for place in range(1, length):
        kind = kinds[place % len(kinds)]
        operators.append(Operator(kind, OperatorClass.RELATIONAL, (place // 2,), rows / place, 40))
    workflow = Workflow(tuple(operators), SourceStatistics(columns=6))
    return Plan.on_one_platform(workflow, PLATFORMS[length % len(PLATFORMS)])


@pytest.fixture(scope="module")
def model() -> GGFN:
    return GGFN(seed=3, dropout=0.0).eval()


@pytest.fixture(scope="module")
def graphs() -> list[Features]:
    """More than are answered at once, of many lengths, in no order."""
    lengths = [2 + 7 * place % 23 for place in range(70)]
    return [featurize(branches(length, 10.0 * length**2), ONE_CORE) for length in lengths]


def of_its_own(model: GGFN, graph: Features) -> tuple[float, torch.Tensor]:
    output = model(collate([graph])).sum()
    parts = torch.autograd.grad(output, list(model.parameters()))
    return float(output.detach()), torch.cat([part.flatten() for part in parts])


def test_gradients_are_those_of_one_pass_for_each_plan(model: GGFN, graphs: list[Features]) -> None:
    names = [name for name, _ in model.named_parameters()]
    outputs, gradients = sample_gradients(model, graphs, names)
    for place in range(0, len(graphs), 5):
        output, expected = of_its_own(model, graphs[place])
        assert float(outputs[place]) == pytest.approx(output, abs=1e-5)
        assert (gradients[place] - expected).norm() <= 1e-5 * expected.norm()


def test_only_what_is_asked_for_is_given_in_the_order_of_the_names(model: GGFN) -> None:
    graph = featurize(diamond(), ONE_CORE)
    names = ["dense.3.bias", "attention.0.bias"]
    _, some = sample_gradients(model, [graph], names)
    sizes = [model.get_parameter(name).numel() for name in names]
    assert some.shape == (1, sum(sizes))
    assert float(some[0, 0]) == pytest.approx(1.0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_states_are_on_one_grid_so_that_products_with_them_are_exact(
    model: GGFN, graphs: list[Features]
) -> None:
    rows = Rows.of(collate(graphs[:9]))
    inputs = torch.randn(len(rows.samples), HIDDEN, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        states = Recurrent(model.recurrent, 0, "recurrent").forward(20 * inputs, rows).states
    steps = states.double() * 2.0**22
    assert torch.equal(steps, steps.round())
    assert float(steps.abs().max()) <= 2**22


def test_records_are_the_same_whatever_other_plans_there_are(
    model: GGFN, graphs: list[Features]
) -> None:
    batch, network = collate(graphs), Network(model)
    rows, given = Rows.of(batch), batch.given.tolist()
    with torch.no_grad():
        outputs, records = network.record(batch, rows, torch.ones_like)
        for place in range(0, len(graphs), 9):
            alone = collate([graphs[given[place]]])
            output, own = network.record(alone, Rows.of(alone), torch.ones_like)
            assert torch.equal(output[0], outputs[place])
            for one, many in zip(own, records, strict=True):
                here = torch.tensor([place]) if many.by_sample else rows.samples == place
                assert torch.equal(one.gradient, many.gradient[here])
                for part, parts in zip(one.parts, many.parts, strict=True):
                    if part.activation is not None and parts.activation is not None:
                        assert torch.equal(part.activation, parts.activation[here])


def test_gradients_taken_apart_are_the_same_whatever_other_plans_there_are(
    model: GGFN, graphs: list[Features]
) -> None:
    network, names = Network(model), [name for name, _ in model.named_parameters()]
    _, gradients = network.sample_gradients(graphs, names, apart=True)
    for place in range(0, len(graphs), 9):
        _, alone = network.sample_gradients([graphs[place]], names, apart=True)
        assert torch.equal(gradients[place], alone[0])


def test_no_plans_have_no_gradients(model: GGFN) -> None:
    outputs, gradients = sample_gradients(model, [], ["dense.3.bias"])
    assert outputs.shape == (0,)
    assert gradients.shape == (0, 1)
