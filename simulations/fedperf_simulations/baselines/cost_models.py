"""Cost models side by side: GGFN and the baselines of its paper, trained on the same plans.

Each is a function that learns from measured plans and returns a function from queries to log
seconds. The forest is a re-implementation of Robopt's. The deep network is the paper's (8 layers of
256) on padded plans; boosted trees are what one would try first. These two have what GGFN has: its
loss, and the analytic cost model that they correct. Wayang's costs and the analytic costs alone are
not trained here. Hyperparameters are those of the paper or were chosen on the measured set, of
which nothing is ever held out where models are compared (`experiments.platform_choice`).

Some models read plans as vectors of fixed length. `robopt_vector` follows Robopt: per kind of
operator and platform how many operators, and the sums of their input and of their output rows; what
crosses platforms; and the features of the plan. `padded_vector` is what the GGFN paper gives its
deep network: the features of the operators one after the other, and those of the plan.

Apache Wayang's hand-tuned linear costs are cycles per operator and platform. They are read from the
two property files that Wayang ships (`FEDPERF_DATA/wayang`): every operator of the Java and of the
Spark platform has a load such as `700*in0 + 56789` cycles, and Spark an initialization of its own.
Whatever runs in one process here (DuckDB, Polars, pandas, scikit-learn) counts as Java. Our
operators are those of Wayang that do the same; what Wayang has no operator for is written with
several (`_AS`). Refused: a file without the operators that are needed, an expression that is no sum
of products.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedperf_client.prediction.prediction import Floats, PredictLog
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, MeasuredPlan, PlanOnCluster
from fedperf_shared.model.architecture import TARGET_SCALE
from fedperf_shared.workflow.features import OPERATOR_FEATURES, Features, flatten
from fedperf_shared.workflow.graph import Operator, Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind, Platform
from fedperf_simulations.model.feature_names import feature_names
from fedperf_simulations.model.fit import (
    HUBER_DELTA,
    Progress,
    fit,
    huber_per_sample,
    huber_within,
    predict,
)
from fedperf_simulations.model.ggfn import GGFN

MOST_OPERATORS = 16
"""Operators of a padded vector. Those of longer plans that come later are left out."""

_KINDS = slice(0, len(OperatorKind))
_PLATFORMS = slice(28, 28 + len(NAMED_PLATFORMS))
_INPUT_ROWS, _OUTPUT_ROWS = 50, 52
_SUMMED = (48, 57, 58)
"""Steps of user code, edges in from another platform, bytes over them."""

Float32 = NDArray[np.float32]


def robopt_vector(features: Features) -> Float32:
    """Float32 [24 kinds x 8 platforms x 3 + 3 + 39]."""
    rows = features.operators
    on = rows[:, _KINDS, None] * rows[:, None, _PLATFORMS]
    sums = [
        np.tensordot(weight, on, axes=1).ravel()
        for weight in (np.ones(len(rows)), rows[:, _INPUT_ROWS], rows[:, _OUTPUT_ROWS])
    ]
    return np.concatenate([*sums, rows[:, _SUMMED].sum(axis=0), features.plan], dtype=np.float32)


def padded_vector(features: Features) -> Float32:
    """Float32 [16 x 63 + 39], zeros where a plan has fewer operators."""
    padded = np.zeros((MOST_OPERATORS, OPERATOR_FEATURES), np.float32)
    operators = features.operators[:MOST_OPERATORS]
    padded[: len(operators)] = operators
    return np.concatenate([padded.ravel(), features.plan])


_LOAD = re.compile(
    r"^wayang\.(?:java|spark)\.([\w.\-]+)\.load = \{(.*?)\n\}", re.DOTALL | re.MULTILINE
)
_CPU = re.compile(r'"cpu":"(?:\$\{)?(.*?)\}?"')
_SETTING = re.compile(r"^wayang\.(?:java|spark)\.([\w.\-]+) = ([\d.]+)$", re.MULTILINE)

_AS: Mapping[OperatorKind, tuple[str, ...]] = {
    OperatorKind.FILE_SOURCE: ("objectfilesource",),
    OperatorKind.TABLE_SOURCE: ("objectfilesource",),
    OperatorKind.MAP: ("map",),
    OperatorKind.FILTER: ("filter",),
    OperatorKind.FLATMAP: ("flatmap",),
    OperatorKind.AGGREGATE: ("reduceby",),
    OperatorKind.GLOBAL_AGGREGATE: ("globalreduce",),
    OperatorKind.DISTINCT: ("distinct",),
    OperatorKind.SORT: ("sort",),
    OperatorKind.TOPK: ("sort",),
    OperatorKind.JOIN: ("cogroup",),
    OperatorKind.UNION: ("union",),
    OperatorKind.GRAPH_ITERATE: ("cogroup", "reduceby"),
    OperatorKind.ML_TRAIN: ("map", "reduceby"),
    OperatorKind.ML_PREDICT: ("map",),
    OperatorKind.WINDOW: ("groupby", "sort"),
    OperatorKind.SINK: ("localcallbacksink",),
}

Cycles = Callable[[Mapping[str, float]], float]
"""Rows by name (`in0`, `in1`, `out0`) -> processor cycles."""


class InvalidWayangCostsError(InvalidInputError):
    """The property files are not those that Wayang ships."""


@dataclass(frozen=True, slots=True)
class PlatformCosts:
    """One platform's loads.

    Attributes:
        cycles: of one execution of each operator.
        cycles_per_second: of one core.
        start_seconds: before its first operator.
    """

    cycles: Mapping[str, Cycles]
    cycles_per_second: float
    start_seconds: float

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the loads of one property file. Raises the errors of `WayangCosts.read`."""
        try:
            text = path.read_text()
        except OSError as error:
            raise InvalidWayangCostsError(f"{path}: {error.strerror or error}") from error
        settings = dict(_SETTING.findall(text))
        loads = {name: _CPU.search(body) for name, body in _LOAD.findall(text)}
        cycles = {name: _parsed(cpu[1], path) for name, cpu in loads.items() if cpu is not None}
        missing = {name for names in _AS.values() for name in names} - cycles.keys()
        if missing or "cpu.mhz" not in settings:
            missing_names = ", ".join(sorted(missing)) or "cpu.mhz"
            raise InvalidWayangCostsError(f"{path} lacks required entries: {missing_names}")
        milliseconds = float(settings.get("init.ms", 0.0))
        return cls(cycles, 1e6 * float(settings["cpu.mhz"]), milliseconds / 1000)

    def seconds(self, each: Operator, rows: Mapping[str, float], cores: int) -> float:
        """CPU time of one operator, spread over `cores`."""
        once = sum(self.cycles[name](rows) for name in _AS.get(each.kind, ()))
        return max(each.iterations, 1) * once / (self.cycles_per_second * cores)


@dataclass(frozen=True, slots=True)
class WayangCosts:
    """The cost of a plan as the sum of its operators' loads."""

    java: PlatformCosts
    spark: PlatformCosts

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read `wayang-java-defaults.properties` and `wayang-spark-defaults.properties`.

        Raises:
            InvalidWayangCostsError: see the module.
        """
        java, spark = (
            PlatformCosts.read(directory / f"wayang-{name}-defaults.properties")
            for name in ("java", "spark")
        )
        return cls(java, spark)

    def seconds(self, plan: Plan, cluster: ClusterConfig) -> float:
        """Estimated run time. A switch between Java and Spark collects and distributes rows."""
        operators = plan.workflow.operators
        total = self.spark.start_seconds if Platform.SPARK in plan.platforms else 0.0
        for each, platform in zip(operators, plan.platforms, strict=True):
            inputs = [operators[parent].output_rows for parent in each.inputs] or [0.0]
            rows = {"in0": inputs[0], "in1": inputs[-1], "out0": each.output_rows}
            total += self._of(platform).seconds(each, rows, cluster.cores)
        for parent, child in plan.workflow.edges:
            ends = [self._of(plan.platforms[position]) for position in (parent, child)]
            if ends[0] is not ends[1]:
                rows = {"in0": operators[parent].output_rows, "out0": operators[parent].output_rows}
                cycles = ends[0].cycles["collect"](rows) + ends[1].cycles["collectionsource"](rows)
                total += cycles / (self.java.cycles_per_second * cluster.cores)
        return total

    def _of(self, platform: Platform) -> PlatformCosts:
        return self.spark if platform is Platform.SPARK else self.java


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}


def _parsed(text: str, path: Path) -> Cycles:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise InvalidWayangCostsError(f"{path}: no sum of products: {text!r}") from error
    for node in ast.walk(tree):
        if not isinstance(
            node, ast.BinOp | ast.Add | ast.Mult | ast.Name | ast.Load | ast.Constant
        ):
            raise InvalidWayangCostsError(f"{path}: no sum of products: {text!r}")
    return lambda rows: _value(tree, rows)


def _value(node: ast.expr, rows: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return rows.get(name, 0.0)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, rows), _value(right, rows))
    raise InvalidWayangCostsError(f"no sum of products: {ast.unparse(node)!r}")


LAYERS, WIDTH = 8, 256
"""Layers of the deep network and their width."""

COLUMNS_PER_SPLIT = 0.4
"""Share of the forest's columns that a split considers."""

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
"""Usual values. No search was made."""

_BATCH = 64
_TOGETHER = 8
"""Samples of the network in a step, and consecutive samples of one query."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The training data of a model: plans and their run times.

    Attributes:
        queries: plans and resources.
        log_seconds: natural log of their run times [queries].
        query_numbers: one per plan, the same for plans of one workflow on one cluster.
    """

    queries: Sequence[PlanOnCluster]
    log_seconds: Floats
    query_numbers: NDArray[np.int64]

    @classmethod
    def of(cls, plans: Sequence[MeasuredPlan]) -> "TrainingPlan":
        """Return the training plan of measured plans."""
        numbers: dict[object, int] = {}
        query_numbers = [
            numbers.setdefault((p.plan.workflow, p.cluster), len(numbers)) for p in plans
        ]
        return cls(
            [PlanOnCluster(each.plan, each.cluster) for each in plans],
            np.array([each.log_seconds for each in plans]),
            np.array(query_numbers, dtype=np.int64),
        )

    @property
    def residuals(self) -> Floats:
        """Training targets: residuals of the analytic cost model, in their units, [queries]."""
        residuals: Floats = (self.log_seconds - analytic_log_seconds(self.queries)) / TARGET_SCALE
        return residuals


def analytic_log_seconds(queries: Sequence[PlanOnCluster]) -> Floats:
    """Return log seconds by the analytic cost model, [queries]."""
    return np.array([each.features.analytic_log_seconds for each in queries])


CostModel = Callable[[TrainingPlan], PredictLog]


def train_ggfn(
    training_plan: TrainingPlan, *, epochs: int, seed: int, on_progress: Progress | None = None
) -> GGFN:
    """A GGFN that has seen the training plan `epochs` times.

    Without dropout, as the mean output of a thinned network is not the output of the whole one.
    That shift between training and use cost 8 points of relative error on the measured set. The
    loss covers the differences between plans of a query as well as their run times. On 54 held-out
    training plans, the chosen platform was within a tenth of the fastest in 93 % instead of 89 %.
    """
    model = GGFN(dropout=0.0, seed=seed)
    fit(
        model,
        zero_constant_inputs(model, _graphs(training_plan.queries)),
        training_plan.log_seconds,
        epochs=epochs,
        seed=seed,
        on_progress=on_progress,
        query_numbers=training_plan.query_numbers,
    )
    return model


def zero_constant_inputs(model: GGFN, graphs: Sequence[Features]) -> list[Features]:
    """Return the graphs and the model without the constant inputs.

    An input that is the same in all graphs keeps its random weights, as no training touches them:
    the prediction for the first plan that differs, by its platform, a kind or several nodes, would
    depend on them. Only one and two cores were measured. Only the analytic model predicts the
    effect of more cores: a network with cores as an input made plans 1.2 to 1.5 times slower on 16
    cores.

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
        return lambda queries: predict(model, _graphs(queries))

    return learn


def forest(*, trees: int, seed: int) -> CostModel:
    """Random forest on Robopt-like vectors."""
    from sklearn.ensemble import RandomForestRegressor

    def learn(training_plan: TrainingPlan) -> PredictLog:
        grown = RandomForestRegressor(
            trees, max_features=COLUMNS_PER_SPLIT, random_state=seed, n_jobs=1
        )
        grown.fit(_stacked(robopt_vector, training_plan.queries), training_plan.log_seconds)
        return lambda queries: np.asarray(grown.predict(_stacked(robopt_vector, queries)))

    return learn


def boosting(*, rounds: int, seed: int) -> CostModel:
    """Boosted trees on the client's flat vectors, by GGFN's loss: level and differences.

    The loss covers the differences between a query's plans as well as each run time
    (`shared.model.fit.huber_within`).
    """
    import lightgbm

    def learn(training_plan: TrainingPlan) -> PredictLog:
        targets = training_plan.residuals
        members = np.unique(training_plan.query_numbers, return_inverse=True)[1]
        sizes = np.bincount(members)

        def apart(values: Floats) -> Floats:
            return values - (np.bincount(members, values) / sizes)[members]

        def slopes(predicted: Floats, _: object) -> tuple[Floats, Floats]:
            errors = predicted - targets
            within = np.clip(apart(errors), -HUBER_DELTA, HUBER_DELTA)
            slope = np.clip(errors, -HUBER_DELTA, HUBER_DELTA) + apart(within)
            return slope, 2 - 1 / sizes[members]

        vectors = lightgbm.Dataset(_stacked(flatten, training_plan.queries), targets)
        trees = lightgbm.train({**BOOSTING, "objective": slopes, "seed": seed}, vectors, rounds)

        def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
            predicted = np.asarray(trees.predict(_stacked(flatten, queries)), np.float64)
            return predicted * TARGET_SCALE + analytic_log_seconds(queries)

        return predict_log

    return learn


def deep_network(*, epochs: int, seed: int) -> CostModel:
    """8 dense layers of 256 on padded plans, by the loss that GGFN has: level and differences."""

    def learn(training_plan: TrainingPlan) -> PredictLog:
        inputs = torch.from_numpy(_stacked(padded_vector, training_plan.queries))
        targets = torch.tensor(training_plan.residuals, dtype=torch.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = _network(inputs.shape[1])
            _descend(
                network,
                inputs,
                targets,
                queries=torch.from_numpy(training_plan.query_numbers),
                epochs=epochs,
            )

        def predict_log(queries: Sequence[PlanOnCluster]) -> Floats:
            with torch.inference_mode():
                output = network(torch.from_numpy(_stacked(padded_vector, queries)))[:, 0]
            values: Floats = (output * TARGET_SCALE).double().numpy()
            return values + analytic_log_seconds(queries)

        return predict_log

    return learn


def analytic() -> CostModel:
    """Return the analytic cost model alone, at the prices that ship."""
    return lambda _: analytic_log_seconds


def wayang(directory: Path) -> CostModel:
    """Wayang's hand-tuned linear costs. Raises the errors of `WayangCosts.read`."""
    costs = WayangCosts.read(directory)

    def learn(training_plan: TrainingPlan) -> PredictLog:
        del training_plan
        return lambda queries: np.array(
            [math.log(costs.seconds(q.plan, q.cluster)) for q in queries]
        )

    return learn


def _network(inputs: int) -> nn.Sequential:
    widths = [inputs, *[WIDTH] * LAYERS]
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1))


def _descend(
    network: nn.Module, inputs: Tensor, targets: Tensor, *, queries: Tensor, epochs: int
) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    steps = epochs * -(-len(inputs) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, max(steps, 2))
    for _ in range(epochs):
        for batch in torch.split(_handfuls(queries), _BATCH):
            predicted, truth = network(inputs[batch])[:, 0], targets[batch]
            apart = huber_within(predicted, truth, queries[batch])
            loss = (huber_per_sample(predicted, truth) + apart).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            schedule.step()


def _handfuls(queries: Tensor) -> Tensor:
    """Return all samples in a random order, with short runs of one query."""
    places = torch.randperm(len(queries))
    places = places[torch.argsort(queries[places], stable=True)]
    _, sizes = torch.unique_consecutive(queries[places], return_counts=True)
    begins = [place % _TOGETHER == 0 for size in sizes.tolist() for place in range(size)]
    handful = torch.cumsum(torch.tensor(begins), 0) - 1
    order = torch.randperm(int(handful[-1]) + 1)
    return places[torch.argsort(order[handful], stable=True)]


def _graphs(queries: Sequence[PlanOnCluster]) -> list[Features]:
    return [each.features for each in queries]


def _stacked(vector: Callable[..., np.ndarray], queries: Sequence[PlanOnCluster]) -> np.ndarray:
    return np.stack([vector(each.features) for each in queries])
