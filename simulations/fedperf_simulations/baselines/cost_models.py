"""Cost models side by side: GGFN and the baselines of its paper, trained on the same plans.

Each is a function that learns from measured plans and gives a function from questions to
log seconds. The forest is a re-implementation of Robopt's. The deep network is the paper's
(8 layers of 256) on padded plans; boosted trees are what one would try first. These two have what
GGFN has: its loss, and the analytic cost model that they correct. Wayang's costs and the analytic
ones alone are not learnt here at all. Hyperparameters are those of the paper or were chosen on the
measured set, of which nothing is ever held out where models are compared
(`experiments.platform_choice`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.architecture import TARGET_SCALE
from fedperf_shared.model.fit import (
    HUBER_DELTA,
    Progress,
    fit,
    huber_per_sample,
    huber_within,
    predict,
)
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.workflow.features import Features, feature_names, flatten
from fedperf_simulations.baselines.flat_vectors import padded_vector, robopt_vector
from fedperf_simulations.baselines.wayang import WayangCosts

LAYERS, WIDTH = 8, 256
"""Of the deep network."""

COLUMNS_PER_SPLIT = 0.4
"""Of the forest."""

BOOSTING = {
    "learning_rate": 0.05,
    "num_leaves": 63,
    "min_data_in_leaf": 10,
    "feature_fraction": COLUMNS_PER_SPLIT,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
"""What one would try first; nothing was searched."""

_BATCH = 64
_TOGETHER = 8
"""Of the network's samples: so many in a step, so many of a question next to each other."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The training data of a model: questions and their answers.

    Attributes:
        questions: plans and resources.
        log_seconds: natural log of their run times [questions].
        asked: a number per question, the same for plans of one workflow on one cluster.
    """

    questions: Sequence[PlanOnCluster]
    log_seconds: Floats
    asked: NDArray[np.int64]

    @classmethod
    def of(cls, plans: Sequence[MeasuredPlan]) -> "TrainingPlan":
        """The lesson of measured plans."""
        numbers: dict[object, int] = {}
        asked = [numbers.setdefault((p.plan.workflow, p.cluster), len(numbers)) for p in plans]
        return cls(
            [PlanOnCluster(each.plan, each.cluster) for each in plans],
            np.array([each.log_seconds for each in plans]),
            np.array(asked, dtype=np.int64),
        )

    @property
    def residuals(self) -> Floats:
        """What the analytic cost model leaves to learn, in units of the targets, [questions]."""
        residuals: Floats = (self.log_seconds - analytic_log_seconds(self.questions)) / TARGET_SCALE
        return residuals


def analytic_log_seconds(questions: Sequence[PlanOnCluster]) -> Floats:
    """Log seconds by the analytic cost model, [questions]."""
    return np.array([each.features.analytic_log_seconds for each in questions])


CostModel = Callable[[TrainingPlan], PredictLog]


def train_ggfn(
    training_plan: TrainingPlan, *, epochs: int, seed: int, on_progress: Progress | None = None
) -> GGFN:
    """A GGFN that has seen the lesson `epochs` times.

    Without dropout, as the mean output of a thinned network is not the output of the whole one.
    That shift between training and use cost 8 points of relative error on the measured set. How
    plans of a question differ is learnt as well as what they take: of 54 lessons that were held
    out, the fastest platform was chosen, or one within a tenth of it, in 93 % instead of 89 %.
    """
    model = GGFN(dropout=0.0, seed=seed)
    fit(
        model,
        zero_constant_inputs(model, _graphs(training_plan.questions)),
        training_plan.log_seconds,
        epochs=epochs,
        seed=seed,
        on_progress=on_progress,
        questions=training_plan.asked,
    )
    return model


def zero_constant_inputs(model: GGFN, graphs: Sequence[Features]) -> list[Features]:
    """The graphs, and the model, without inputs that tell nothing of what lies beyond them.

    An input that is the same in all graphs keeps its random weights, as no training touches them:
    the first plan that differs, by its platform, a kind or several nodes, would be answered by
    these. Of cores, one or two were measured. What more of them bring only the analytic model may
    say: a network that had heard of them made plans 1.2 to 1.5 times slower on 16 cores.

    Args:
        model: before its training; weights of these inputs become 0, in place.
        graphs: all that it is trained on.

    Returns:
        The graphs with 0 for these inputs, so that weights of 0 stay what they are.
    """
    of_operators, of_plans = feature_names()
    operators = _varied(np.concatenate([each.operators for each in graphs]))
    plans = _varied(np.stack([each.plan for each in graphs]))
    operators[of_operators.index("threads")] = 0
    plans[of_plans.index("cores")] = 0
    with torch.no_grad():
        model.get_parameter("attention.0.lin.weight").mul_(torch.from_numpy(operators))
        model.get_parameter("dense.0.weight")[:, -len(plans) :].mul_(torch.from_numpy(plans))
    return [
        replace(each, operators=each.operators * operators, plan=each.plan * plans)
        for each in graphs
    ]


def _varied(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 for each column of which some rows differ, else 0."""
    return np.asarray(inputs.max(axis=0) > inputs.min(axis=0), dtype=np.float32)


def ggfn(*, epochs: int, seed: int, on_progress: Progress | None = None) -> CostModel:
    """GGFN as one cost model among others, see `train_ggfn`."""

    def learn(training_plan: TrainingPlan) -> PredictLog:
        model = train_ggfn(training_plan, epochs=epochs, seed=seed, on_progress=on_progress)
        return lambda asked: predict(model, _graphs(asked))

    return learn


def forest(*, trees: int, seed: int) -> CostModel:
    """Random forest on Robopt-like vectors."""
    from sklearn.ensemble import RandomForestRegressor

    def learn(training_plan: TrainingPlan) -> PredictLog:
        grown = RandomForestRegressor(
            trees, max_features=COLUMNS_PER_SPLIT, random_state=seed, n_jobs=1
        )
        grown.fit(_stacked(robopt_vector, training_plan.questions), training_plan.log_seconds)
        return lambda asked: np.asarray(grown.predict(_stacked(robopt_vector, asked)))

    return learn


def boosting(*, rounds: int, seed: int) -> CostModel:
    """Boosted trees on the client's flat vectors, by GGFN's loss: level and differences.

    What counts of a question's plans is how they differ as well as what each takes
    (`shared.model.fit.huber_within`).
    """
    import lightgbm

    def learn(training_plan: TrainingPlan) -> PredictLog:
        targets = training_plan.residuals
        members = np.unique(training_plan.asked, return_inverse=True)[1]
        sizes = np.bincount(members)

        def apart(values: Floats) -> Floats:
            return values - (np.bincount(members, values) / sizes)[members]

        def slopes(said: Floats, _: object) -> tuple[Floats, Floats]:
            errors = said - targets
            within = np.clip(apart(errors), -HUBER_DELTA, HUBER_DELTA)
            slope = np.clip(errors, -HUBER_DELTA, HUBER_DELTA) + apart(within)
            return slope, 2 - 1 / sizes[members]

        vectors = lightgbm.Dataset(_stacked(flatten, training_plan.questions), targets)
        trees = lightgbm.train({**BOOSTING, "objective": slopes, "seed": seed}, vectors, rounds)

        def answer(asked: Sequence[PlanOnCluster]) -> Floats:
            said = np.asarray(trees.predict(_stacked(flatten, asked)), np.float64)
            return said * TARGET_SCALE + analytic_log_seconds(asked)

        return answer

    return learn


def deep_network(*, epochs: int, seed: int) -> CostModel:
    """8 dense layers of 256 on padded plans, by the loss that GGFN has: level and differences."""

    def learn(training_plan: TrainingPlan) -> PredictLog:
        inputs = torch.from_numpy(_stacked(padded_vector, training_plan.questions))
        targets = torch.tensor(training_plan.residuals, dtype=torch.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = _network(inputs.shape[1])
            _descend(
                network, inputs, targets, asked=torch.from_numpy(training_plan.asked), epochs=epochs
            )

        def answer(asked: Sequence[PlanOnCluster]) -> Floats:
            with torch.inference_mode():
                output = network(torch.from_numpy(_stacked(padded_vector, asked)))[:, 0]
            values: Floats = (output * TARGET_SCALE).double().numpy()
            return values + analytic_log_seconds(asked)

        return answer

    return learn


def analytic() -> CostModel:
    """The analytic cost model alone, at the prices that ship."""
    return lambda _: analytic_log_seconds


def wayang(directory: Path) -> CostModel:
    """Wayang's hand-tuned linear costs; errors as `WayangCosts.read`."""
    costs = WayangCosts.read(directory)

    def learn(training_plan: TrainingPlan) -> PredictLog:
        del training_plan
        return lambda asked: np.array([math.log(costs.seconds(q.plan, q.cluster)) for q in asked])

    return learn


def _network(inputs: int) -> nn.Sequential:
    widths = [inputs, *[WIDTH] * LAYERS]
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1))


def _descend(
    network: nn.Module, inputs: Tensor, targets: Tensor, *, asked: Tensor, epochs: int
) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    steps = epochs * -(-len(inputs) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, max(steps, 2))
    for _ in range(epochs):
        for chosen in torch.split(_handfuls(asked), _BATCH):
            said, truth = network(inputs[chosen])[:, 0], targets[chosen]
            apart = huber_within(said, truth, asked[chosen])
            loss = (huber_per_sample(said, truth) + apart).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            schedule.step()


def _handfuls(asked: Tensor) -> Tensor:
    """All samples in a random order, few of a question next to each other."""
    dealt = torch.randperm(len(asked))
    dealt = dealt[torch.argsort(asked[dealt], stable=True)]
    _, sizes = torch.unique_consecutive(asked[dealt], return_counts=True)
    begins = [place % _TOGETHER == 0 for size in sizes.tolist() for place in range(size)]
    handful = torch.cumsum(torch.tensor(begins), 0) - 1
    order = torch.randperm(int(handful[-1]) + 1)
    return dealt[torch.argsort(order[handful], stable=True)]


def _graphs(questions: Sequence[PlanOnCluster]) -> list[Features]:
    return [each.features for each in questions]


def _stacked(vector: Callable[..., np.ndarray], questions: Sequence[PlanOnCluster]) -> np.ndarray:
    return np.stack([vector(each.features) for each in questions])
