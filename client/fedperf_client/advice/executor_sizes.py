"""The number of executors for a Spark application: the cheapest that is fast or meets a deadline.

Every executor keeps its cores and its memory, so no task has less than in the measured run. Only
the number of executors changes; in local mode, the cores of the one process. The slow cases of
queries are assumed to coincide: a quantile of the application's time is the sum of its queries'
quantiles, which is pessimistic. The time outside of queries stays as it was. No size is predicted
to be faster than its slots can do the work of the measured tasks.

Each size is predicted separately, with an error distribution of its own. If more executors are
no slower by the medians, they are no slower by any quantile: the current size is measured, so fewer
executors are never faster at any quantile, and more are never slower.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedperf_client.advice.spark_application import SparkApplication
from fedperf_client.prediction.prediction import SURE, USUAL_DEGREES, Prediction, StudentT
from fedperf_client.prediction.serving.reconfiguration import reconfigure
from fedperf_client.prediction.serving.what_if import ON_TIME
from fedperf_client.sources.spark.settings import memory_setting
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import RUNS_PYTHON, OperatorKind, Platform

WORTH = 0.10  # A size that is slower by no more than this share is chosen if it is cheaper
# Levels of the quantiles of an application's time, which is interpolated in between.
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)

# Engines of this machine that read what Spark reads.
LOCAL_ENGINES = (Platform.DUCKDB, Platform.POLARS)

Estimates = Callable[[Sequence[PlanOnCluster]], Sequence[Prediction]]
Cost = Callable[[ClusterConfig, float], float]
CouldRun = Callable[[OperatorKind, Platform], bool]


@dataclass(frozen=True, slots=True)
class ApplicationRuntime:
    """The predicted run time of a whole application on a cluster."""

    cluster: ClusterConfig
    executors: int
    seconds: tuple[float, ...]  # quantiles at `SHARES`
    error_correlation: float  # share of its squared error in common with other clusters
    extrapolating: bool  # whether the prediction of a query is an extrapolation
    cost: float  # cost of the median time
    is_promise: bool = True  # whether it may meet a deadline, see `Basis.is_promise`

    @property
    def median_seconds(self) -> float:
        """The P50 of the time."""
        return self.seconds[SHARES.index(0.5)]

    @property
    def p90_seconds(self) -> float:
        """The P90 of the time."""
        return self.seconds[SHARES.index(0.9)]

    @property
    def log_deviation(self) -> float:
        """Standard deviation of log seconds, from P25 and P75 as if they were normal."""
        quarters = self.seconds[SHARES.index(0.25)], self.seconds[SHARES.index(0.75)]
        return max(1e-6, math.log(quarters[1] / quarters[0]) / (2 * 0.6745))

    def probability_within(self, seconds: float) -> float:
        """Return the probability of at most that many seconds, 0 below the first of `SHARES`."""
        most = 1.0 if self.is_promise else 0.5
        logs = np.log(self.seconds)
        if seconds <= 0 or math.log(seconds) < logs[0]:
            return 0.0
        return min(most, float(np.interp(math.log(seconds), logs, SHARES)))

    def probability_faster(self, other: "ApplicationRuntime") -> float:
        """Return the probability of taking less time than `other`."""
        return self._probability_below(other, other.median_seconds / self.median_seconds)

    def probability_cheaper(self, other: "ApplicationRuntime") -> float:
        """Return the probability of costing less than `other`, at a rate times the time."""
        if not (self.cost > 0 and other.cost > 0):
            return float(self.cost < other.cost)
        return self._probability_below(other, other.cost / self.cost)

    def _probability_below(self, other: "ApplicationRuntime", ratio: float) -> float:
        first, second = self.log_deviation, other.log_deviation
        common = 2 * min(self.error_correlation, other.error_correlation) * first * second
        deviation = math.sqrt(max(first**2 + second**2 - common, 1e-12))
        return StudentT(deviation, USUAL_DEGREES).cdf(math.log(ratio))


@dataclass(frozen=True, slots=True)
class ExecutorAdvice:
    """The recommended number of executors and the compared alternatives."""

    application: SparkApplication
    runtimes: tuple[ApplicationRuntime, ...]  # one for every number of executors, ascending
    current: ApplicationRuntime  # the one as it ran
    # The recommended one. If none meets the deadline, the most probable or the fastest.
    best: ApplicationRuntime
    deadline_seconds: float | None  # None without a deadline
    memory_bytes: int  # memory of an executor
    current_queries: ApplicationRuntime  # `current` without the time outside of queries
    # Its queries on engines of this machine, empty if they do not fit.
    engines: dict[Platform, ApplicationRuntime]
    # The best one by medians, if it is not distinguishable from `current`, which is then
    # recommended.
    rival: ApplicationRuntime | None = None

    @property
    def probability(self) -> float | None:
        """The probability that `best` meets the deadline."""
        if self.deadline_seconds is None:
            return None
        return self.best.probability_within(self.deadline_seconds)

    @property
    def meets_deadline(self) -> bool | None:
        """True if `best` meets the deadline with a probability of 90 %."""
        return None if self.probability is None else self.probability >= ON_TIME

    @property
    def conf(self) -> tuple[str, ...]:
        """Options of `spark-submit`, none if the machines of a cluster decide.

        The memory is set only if the log or the user names it.
        """
        settings, best = self.application.settings, self.best
        if settings.is_databricks:
            return ()
        is_logged = settings.memory_name in settings.properties
        is_set = is_logged or self.memory_bytes != settings.memory_bytes
        memory = [f"{settings.memory_name}={memory_setting(self.memory_bytes)}"] if is_set else []
        if settings.is_local:
            return (f"--master local[{best.cluster.cores}]", *(f"--conf {each}" for each in memory))
        number = (
            "spark.dynamicAllocation.maxExecutors"
            if settings.has_dynamic_executors
            else "spark.executor.instances"
        )
        cores = f"spark.executor.cores={self.application.executor_cores}"
        return tuple(f"--conf {each}" for each in (f"{number}={best.executors}", cores, *memory))


def executor_advice(
    application: SparkApplication,
    estimates: Estimates,
    cost: Cost,
    *,
    deadline_seconds: float | None = None,
    memory_bytes: int | None = None,
    is_cost_first: bool = False,
    local_cluster: ClusterConfig | None = None,
    could_run: CouldRun = lambda kind, platform: False,
) -> ExecutorAdvice:
    """Recommend a number of executors for an application.

    Args:
        application: the application as it ran.
        estimates: the predictor.
        cost: cost of a cluster for some seconds.
        deadline_seconds: the deadline, if any.
        memory_bytes: memory of an executor, unchanged by default.
        is_cost_first: without a deadline, recommend the cheapest size, however slow.
        local_cluster: this machine, whose engines are compared as well; None compares none.
        could_run: whether an engine can run a kind of operator.

    Raises:
        InvalidInputError: `memory_bytes` is less than the tasks needed.
    """
    memory = application.settings.memory_bytes if memory_bytes is None else memory_bytes
    if memory < application.least_memory_bytes:
        spilled = "; they spilled even with that" if application.spilled_bytes else ""
        least = memory_setting(math.ceil(application.least_memory_bytes))
        raise InvalidInputError(
            f"--memory {memory_setting(memory)} for an executor of {application.name} is less than "
            f"the {least} that its tasks need{spilled}"
        )
    predict = partial(_predict, application, estimates, cost)
    cluster, other_seconds = application.cluster, application.non_query_seconds
    runtimes = _monotonic(
        {size: predict(size, count, other_seconds) for count, size in _sizes(application)}, cluster
    )
    current = runtimes[cluster]
    best = _best(list(runtimes.values()), current, deadline_seconds, is_cost_first=is_cost_first)
    meets_deadline = (
        deadline_seconds is None or current.probability_within(deadline_seconds) >= ON_TIME
    )
    probabilities = [best.probability_cheaper(current)]
    if deadline_seconds is None and not is_cost_first:
        probabilities.append(best.probability_faster(current))
    is_kept = best is not current and meets_deadline and not any(map(is_better, probabilities))
    return ExecutorAdvice(
        application,
        tuple(runtimes.values()),
        current,
        current if is_kept else best,
        deadline_seconds,
        memory,
        predict(cluster, application.executors, 0.0),
        {
            engine: predict(local_cluster, 1, 0.0, platform=engine)
            for engine in LOCAL_ENGINES
            if local_cluster is not None and _fits(application, engine, local_cluster, could_run)
        },
        best if is_kept else None,
    )


def better_engine(advice: ExecutorAdvice) -> tuple[Platform, ApplicationRuntime, float] | None:
    """Return the fastest local engine, its time, and the probability that it is faster.

    Returns:
        None if no engine was compared.
    """
    if not advice.engines:
        return None
    engine, runtime = min(advice.engines.items(), key=lambda each: each[1].median_seconds)
    return engine, runtime, runtime.probability_faster(advice.current_queries)


def is_better(probability: float) -> bool:
    """Return whether a probability of being better is high enough for a change."""
    return probability >= SURE


def _sizes(application: SparkApplication) -> list[tuple[int, ClusterConfig]]:
    """Return the current size, and powers of two up to twice of it, with numbers of executors."""
    cluster, settings = application.cluster, application.settings
    current = cluster.cores if settings.is_local else application.executors
    counts = sorted({current, *(1 << power for power in range((2 * current).bit_length()))})
    sizes = []
    for count in counts:
        if count == current:
            sizes.append((application.executors, cluster))
            continue
        ratio = count / current
        nodes = 1 if settings.is_local else max(1, min(count, round(cluster.nodes * ratio)))
        cores = max(nodes, round(cluster.cores * ratio))
        memory = cluster.memory_bytes if settings.is_local else cluster.memory_bytes * ratio
        sized = replace(cluster, nodes=nodes, cores=cores, memory_bytes=max(1, round(memory)))
        sizes.append((1 if settings.is_local else count, sized))
    return sizes


def _predict(
    application: SparkApplication,
    estimates: Estimates,
    cost: Cost,
    cluster: ClusterConfig,
    executors: int,
    other_seconds: float,
    *,
    platform: Platform | None = None,
) -> ApplicationRuntime:
    queries = []
    for each in application.queries:
        target = replace(cluster, queries_before=each.cluster.queries_before)
        plan, job = each.plan, KnownJob.of(each)
        if platform is not None:
            plan, job = Plan.on_one_platform(plan.workflow, platform), job.elsewhere()
        queries.append(reconfigure(plan, each.cluster, target, job).query)
    predictions = estimates(queries)
    seconds = tuple(
        other_seconds + application.overlap * sum(each.seconds_at(share) for each in predictions)
        for share in SHARES
    )
    if platform is None:
        least = application.least_seconds(cluster.cores)
        factor = max(1.0, least / seconds[SHARES.index(0.5)])  # widths above the bound are kept
        seconds = tuple(max(least, factor * each) for each in seconds)
    return ApplicationRuntime(
        cluster,
        executors,
        seconds,
        min(each.evidence.error_correlation for each in predictions),
        any(each.extrapolating for each in predictions),
        cost(cluster, seconds[SHARES.index(0.5)]),
        all(each.evidence.supports_deadlines for each in predictions),
    )


def _monotonic(
    runtimes: Mapping[ClusterConfig, ApplicationRuntime], current: ClusterConfig
) -> dict[ClusterConfig, ApplicationRuntime]:
    """Order every quantile over ascending sizes wherever the medians are ordered."""
    sizes, ordered = list(runtimes), dict(runtimes)
    middle, at = SHARES.index(0.5), sizes.index(current)
    for line, bound in ((sizes[at + 1 :], np.minimum), (sizes[:at][::-1], np.maximum)):
        previous = runtimes[current]
        for size in line:
            seconds = tuple(bound(runtimes[size].seconds, previous.seconds).tolist())
            if math.isclose(seconds[middle], runtimes[size].median_seconds, rel_tol=1e-6):
                previous = ordered[size] = replace(runtimes[size], seconds=seconds)
    return ordered


def _best(
    runtimes: Sequence[ApplicationRuntime],
    current: ApplicationRuntime,
    deadline_seconds: float | None,
    *,
    is_cost_first: bool,
) -> ApplicationRuntime:
    if deadline_seconds is not None:
        able = [each for each in runtimes if each.probability_within(deadline_seconds) >= ON_TIME]
        if not able:
            likeliest = max(
                runtimes,
                key=lambda each: (each.probability_within(deadline_seconds), -each.median_seconds),
            )
            return likeliest if likeliest.probability_within(deadline_seconds) > 0 else current
    elif is_cost_first:
        able = list(runtimes)
    else:
        fastest = min(each.median_seconds for each in runtimes)
        able = [each for each in runtimes if each.median_seconds <= (1 + WORTH) * fastest]
    return min(able, key=lambda each: (each.cost, each.median_seconds))


def _fits(
    application: SparkApplication, engine: Platform, local: ClusterConfig, could_run: CouldRun
) -> bool:
    """Return whether the engine runs all operators, and memory holds every output.

    Queries with unknown cardinalities never fit. Neither does Python code that Spark calls for
    each row, which no other engine can run.
    """
    operators = [each for query in application.queries for each in query.plan.workflow.operators]
    has_rows = all(KnownJob.of(each).has_rows for each in application.queries)
    return has_rows and all(
        could_run(each.kind, engine)
        and each.code_steps != RUNS_PYTHON
        and each.output_bytes <= local.memory_bytes
        for each in operators
    )
