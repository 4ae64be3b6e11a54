"""Every plan's own gradient from one backward pass is what a pass of its own gives."""

import pytest
import torch

from fedperf_shared.model.batching import PlanGraph, collate
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.recorded import sample_gradients
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
def graphs() -> list[PlanGraph]:
    """More than are answered at once, of many lengths, in no order."""
    lengths = [2 + 7 * place % 23 for place in range(70)]
    return [PlanGraph.of(branches(length, 10.0 * length**2), ONE_CORE) for length in lengths]


def of_its_own(model: GGFN, graph: PlanGraph) -> tuple[float, torch.Tensor]:
    output = model(collate([graph])).sum()
    parts = torch.autograd.grad(output, list(model.parameters()))
    return float(output.detach()), torch.cat([part.flatten() for part in parts])


def test_gradients_are_those_of_one_pass_for_each_plan(
    model: GGFN, graphs: list[PlanGraph]
) -> None:
    names = [name for name, _ in model.named_parameters()]
    outputs, gradients = sample_gradients(model, graphs, names)
    for place in range(0, len(graphs), 5):
        output, expected = of_its_own(model, graphs[place])
        assert float(outputs[place]) == pytest.approx(output, abs=1e-5)
        assert (gradients[place] - expected).norm() <= 1e-5 * expected.norm()


def test_only_what_is_asked_for_is_given_in_the_order_of_the_names(model: GGFN) -> None:
    graph = PlanGraph.of(diamond(), ONE_CORE)
    names = ["dense.3.bias", "attention.0.bias"]
    _, some = sample_gradients(model, [graph], names)
    sizes = [model.get_parameter(name).numel() for name in names]
    assert some.shape == (1, sum(sizes))
    assert float(some[0, 0]) == pytest.approx(1.0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_no_plans_have_no_gradients(model: GGFN) -> None:
    outputs, gradients = sample_gradients(model, [], ["dense.3.bias"])
    assert outputs.shape == (0,)
    assert gradients.shape == (0, 1)
