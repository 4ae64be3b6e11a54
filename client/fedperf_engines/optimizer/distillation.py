"""Distil the additive surrogate from a cost model: the sum of its parts learns the whole.

The teacher labels plans that never ran: known workflows on random platforms. The sum of the
student's parts is fitted to the teacher's run time, by Huber loss on its logarithm. The same seed,
teacher and workflows give the same surrogate on one machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_engines.optimizer.additive_surrogate import (
    EDGE_INPUTS,
    HIDDEN,
    OPERATOR_INPUTS,
    PLATFORMS,
    AdditiveSurrogate,
    inputs_of,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

ASSIGNMENTS = 24  # random plans per workflow, in addition to those on one platform
EPOCHS = 40
WORKFLOWS_AT_ONCE = 8
LEARNING_RATE = 1e-2
TYPICAL_LOG_SECONDS = -6.0  # where the parts start, in `LAST_BIASES`: a few milliseconds
LAST_BIASES = ("operator.2.bias", "edge.1.bias")

# Whether a platform can run an operator of that kind.
Supports = Callable[[OperatorKind, Platform], bool]

Progress = Callable[[int, int], None]  # called with epochs that are done, and epochs in all


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingPlan:
    """One workflow and its plans."""

    operators: Tensor  # inputs [operators, 54]
    edges: Tensor  # inputs [edges, 7]
    platforms: Tensor  # [plans, operators]
    pairs: Tensor  # parent's and child's platform as one number [plans, edges]
    switches: Tensor  # 1 where those two differ, else 0 [plans, edges]
    log_seconds: Tensor  # by the teacher [plans]


class _Parts(nn.Module):
    """The two networks. Their parameters are named as in `SHAPES`."""

    def __init__(self) -> None:
        super().__init__()
        self.operator = nn.ModuleList(
            nn.Linear(*widths)
            for widths in ((OPERATOR_INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, PLATFORMS))
        )
        self.edge = nn.ModuleList(
            nn.Linear(*widths)
            for widths in ((EDGE_INPUTS, HIDDEN), (HIDDEN, PLATFORMS * PLATFORMS))
        )
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name in LAST_BIASES:
                    parameter.fill_(TYPICAL_LOG_SECONDS)

    def forward(self, training_plans: Sequence[_TrainingPlan]) -> Tensor:
        """Log of the summed seconds of all plans of the lessons, one after the other."""
        operators = _through(self.operator, torch.cat([each.operators for each in training_plans]))
        edges = _through(self.edge, torch.cat([each.edges for each in training_plans]))
        of_operators = torch.split(
            operators.exp(), [len(each.operators) for each in training_plans]
        )
        of_edges = torch.split(edges.exp(), [len(each.edges) for each in training_plans])
        totals = [
            ran.expand(len(each.platforms), -1, -1).gather(2, each.platforms[..., None]).sum((1, 2))
            + (
                moves.expand(len(each.pairs), -1, -1).gather(2, each.pairs[..., None])[..., 0]
                * each.switches
            ).sum(1)
            for each, ran, moves in zip(training_plans, of_operators, of_edges, strict=True)
        ]
        return torch.cat(totals).log()


def distil(
    teacher: PredictLog,
    workflows: Sequence[tuple[Workflow, ClusterConfig]],
    platforms: Sequence[Platform],
    supports: Supports,
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    on_progress: Progress | None = None,
) -> AdditiveSurrogate:
    """Distil the additive surrogate whose sums come closest to `teacher`.

    Args:
        teacher: predicts log seconds; called once per workflow.
        workflows: to make plans of, with the resources that they run on.
        platforms: of the training plans; predictions for others mean nothing.
        supports: see `Supports`.
        seed: of plans, initial weights and order.
        epochs: passes over the plans.
        on_progress: called after every epoch.

    Raises:
        InvalidInputError: none of the platforms can run any of the workflows.
    """
    rng = np.random.default_rng(seed)
    training_plans = [
        _training_plan(teacher, workflow, cluster, able, rng)
        for workflow, cluster in workflows
        if all(
            able := [
                [platform for platform in platforms if supports(each.kind, platform)]
                for each in workflow.operators
            ]
        )
    ]
    if not training_plans:
        raise InvalidInputError(
            "the platforms can run no workflow to distil an additive surrogate from"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = _Parts()
    steps = epochs * -(-len(training_plans) // WORKFLOWS_AT_ONCE)
    optimizer = torch.optim.Adam(parts.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, max(steps, 2))
    for epoch in range(epochs):
        order = rng.permutation(len(training_plans))
        for start in range(0, len(order), WORKFLOWS_AT_ONCE):
            batch = [training_plans[place] for place in order[start : start + WORKFLOWS_AT_ONCE]]
            loss = huber_loss(parts(batch), torch.cat([each.log_seconds for each in batch]))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        if on_progress is not None:
            on_progress(epoch + 1, epochs)
    state = parts.state_dict().items()
    return AdditiveSurrogate({name: value.detach().numpy().copy() for name, value in state})


def _through(layers: nn.ModuleList, values: Tensor) -> Tensor:
    for layer in layers[:-1]:
        values = layer(values).relu()
    logs: Tensor = layers[-1](values)
    return logs


def _training_plan(
    teacher: PredictLog,
    workflow: Workflow,
    cluster: ClusterConfig,
    able: Sequence[Sequence[Platform]],
    rng: np.random.Generator,
) -> _TrainingPlan:
    plans = _plans(able, workflow, rng)
    queries = PlanOnCluster.of(workflow, [tuple(map(Platform, plan)) for plan in plans], cluster)
    features = featurize(Plan.on_one_platform(workflow, Platform.UNASSIGNED), cluster)
    operators, edges = inputs_of(features)
    rows = np.array(plans)[:, features.order]
    ends = rows[:, features.edges]
    log_seconds: Floats = teacher(queries)
    return _TrainingPlan(
        torch.from_numpy(operators),
        torch.from_numpy(edges),
        torch.from_numpy(rows),
        torch.from_numpy(ends[:, 0] * PLATFORMS + ends[:, 1]),
        torch.from_numpy((ends[:, 0] != ends[:, 1]).astype(np.float32)),
        torch.from_numpy(log_seconds.astype(np.float32)),
    )


def _plans(
    able: Sequence[Sequence[Platform]], workflow: Workflow, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Return plans of one platform where possible, and random plans with few to many switches."""
    everywhere = sorted({platform for each in able for platform in each})
    plans = {tuple(int(one if one in each else each[0]) for each in able) for one in everywhere}
    for _ in range(ASSIGNMENTS):
        stay = rng.random()
        plan: dict[int, int] = {}
        for position in topological_order(workflow):
            inputs = workflow.operators[position].inputs
            inherited = plan[inputs[int(rng.integers(len(inputs)))]] if inputs else -1
            choices = able[position]
            stays = inherited in choices and rng.random() < stay
            plan[position] = inherited if stays else int(choices[int(rng.integers(len(choices)))])
        plans.add(tuple(plan[position] for position in range(len(able))))
    return sorted(plans)
