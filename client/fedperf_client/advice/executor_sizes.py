"""The number of executors for a Spark application: the cheapest that is fast or keeps a deadline.

Every executor keeps its cores and its memory, so no task has less than was measured. Only the
number of executors changes; in local mode, the cores of the one process. Queries are assumed to be
slow together: a quantile of the application's time is the sum of its queries' quantiles. That
promises too little rather than too much. The time beside queries stays as it was. No size is said
to be faster than its slots can do the work of the tasks that ran.

Sizes are asked about one by one, each with a spread of its own. Where the medians say that more
executors are no slower, so do all quantiles: what ran is known best, so fewer executors promise no
more than it does, and more of them no less.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedperf_client.advice.spark_application import SparkApplication
from fedperf_client.prediction.prediction import SURE, USUAL_DEGREES, Prediction, StudentT
from fedperf_client.prediction.serving.reconfiguration import moved
from fedperf_client.prediction.serving.what_if import HOLDS
from fedperf_client.sources.spark.settings import memory_setting
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, PlanOnCluster
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import RUNS_PYTHON, OperatorKind, Platform

WORTH = 0.10
"""Slower by so much is no reason to pay for more."""

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Levels of the quantiles of an application's time; between them it is interpolated."""

ENGINES_HERE = (Platform.DUCKDB, Platform.POLARS)
"""Engines of this machine that may do instead, since they read what Spark reads."""

Estimates = Callable[[Sequence[PlanOnCluster]], Sequence[Prediction]]
Cost = Callable[[ClusterConfig, float], float]
CouldRun = Callable[[OperatorKind, Platform], bool]


@dataclass(frozen=True, slots=True)
class ApplicationRuntime:
    """The run time of a whole application on some cluster.

    Attributes:
        cluster: where.
        executors: how many these are.
        seconds: at each of `SHARES`.
        error_correlation: share of its squared error that it has in common with other clusters.
        extrapolating: an answer about one of its queries is no more than a guess.
        cost: of its median time.
        is_promise: whether a deadline may be said to hold, see `Basis.is_promise`.
    """

    cluster: ClusterConfig
    executors: int
    seconds: tuple[float, ...]
    error_correlation: float
    extrapolating: bool
    cost: float
    is_promise: bool = True

    @property
    def median_seconds(self) -> float:
        """P50."""
        return self.seconds[SHARES.index(0.5)]

    @property
    def p90_seconds(self) -> float:
        """P90."""
        return self.seconds[SHARES.index(0.9)]

    @property
    def deviation(self) -> float:
        """Standard deviation of log seconds, from P25 and P75 as if they were normal."""
        quarters = self.seconds[SHARES.index(0.25)], self.seconds[SHARES.index(0.75)]
        return max(1e-6, math.log(quarters[1] / quarters[0]) / (2 * 0.6745))

    def chance_within(self, seconds: float) -> float:
        """Chance to be done in so long; 0 below the first of `SHARES`."""
        most = 1.0 if self.is_promise else 0.5
        logs = np.log(self.seconds)
        if seconds <= 0 or math.log(seconds) < logs[0]:
            return 0.0
        return min(most, float(np.interp(math.log(seconds), logs, SHARES)))

    def chance_faster_than(self, other: "ApplicationRuntime") -> float:
        """Chance that it takes less time, see `comparison.chance_faster`."""
        return self._chance_below(other, other.median_seconds / self.median_seconds)

    def chance_cheaper_than(self, other: "ApplicationRuntime") -> float:
        """Chance that it costs less, a rate times the time; 0 where the two cost nothing."""
        if not (self.cost > 0 and other.cost > 0):
            return float(self.cost < other.cost)
        return self._chance_below(other, other.cost / self.cost)

    def _chance_below(self, other: "ApplicationRuntime", ratio: float) -> float:
        first, second = self.deviation, other.deviation
        common = 2 * min(self.error_correlation, other.error_correlation) * first * second
        apart = math.sqrt(max(first**2 + second**2 - common, 1e-12))
        return StudentT(apart, USUAL_DEGREES).cdf(math.log(ratio))


@dataclass(frozen=True, slots=True)
class ExecutorAdvice:
    """The number of executors to have, and the alternatives that were compared.

    Attributes:
        application: that was asked about.
        times: of every number of executors, few first.
        today: of these, as it ran.
        best: the right one; where none keeps the deadline, the likeliest to, or the fastest.
        deadline_seconds: None without one.
        memory_bytes: of an executor.
        queries_today: as `today`, without the time beside queries.
        elsewhere: its queries on this machine, by engine; empty where they do not fit.
        rival: the right one by medians, where no difference to `today` can be told and `today` is
            taken; else None.
    """

    application: SparkApplication
    times: tuple[ApplicationRuntime, ...]
    today: ApplicationRuntime
    best: ApplicationRuntime
    deadline_seconds: float | None
    memory_bytes: int
    queries_today: ApplicationRuntime
    elsewhere: dict[Platform, ApplicationRuntime]
    rival: ApplicationRuntime | None = None

    @property
    def chance(self) -> float | None:
        """That `best` keeps the deadline."""
        if self.deadline_seconds is None:
            return None
        return self.best.chance_within(self.deadline_seconds)

    @property
    def keeps_deadline(self) -> bool | None:
        """Whether `best` keeps it with a chance of 90 %; None without a deadline."""
        return None if self.chance is None else self.chance >= HOLDS

    @property
    def conf(self) -> tuple[str, ...]:
        """Options of `spark-submit`; none where the machines of a cluster decide.

        Memory that the log does not tell, and nobody asked for, is not set.
        """
        settings, best = self.application.settings, self.best
        if settings.is_databricks:
            return ()
        is_told = settings.memory_name in settings.properties
        is_set = is_told or self.memory_bytes != settings.memory_bytes
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
    home: ClusterConfig | None = None,
    could_run: CouldRun = lambda kind, platform: False,
) -> ExecutorAdvice:
    """The number of executors that an application should have.

    Args:
        application: as it ran.
        estimates: who predicts.
        cost: of a cluster for some seconds.
        deadline_seconds: that is to be kept.
        memory_bytes: of an executor; what it had by default.
        is_cost_first: without a deadline the cheapest is right, however long it takes.
        home: this machine, whose engines are asked about as well; None asks about none.
        could_run: whether an engine runs a kind of operator.

    Raises:
        InvalidInputError: what was measured does not fit into `memory_bytes`.
    """
    memory = application.settings.memory_bytes if memory_bytes is None else memory_bytes
    if memory < application.least_memory_bytes:
        spilled = "; it spilled with that already" if application.spilled_bytes else ""
        least = memory_setting(math.ceil(application.least_memory_bytes))
        raise InvalidInputError(
            f"--memory {memory_setting(memory)} for an executor of {application.name} is less than "
            f"the {least} that its tasks need{spilled}"
        )
    time = partial(_time, application, estimates, cost)
    today, beside = application.cluster, application.beside_seconds
    times = {cluster: time(cluster, count, beside) for count, cluster in _sizes(application)}
    times = _ordered(times, today)
    elsewhere = {
        engine: time(home, 1, 0.0, platform=engine)
        for engine in ENGINES_HERE
        if home is not None and _fits(application, engine, home, could_run)
    }
    now = times[today]
    right = _best(list(times.values()), now, deadline_seconds, is_cost_first=is_cost_first)
    is_kept = right is not now and _is_open(
        right, now, deadline_seconds=deadline_seconds, is_cost_first=is_cost_first
    )
    return ExecutorAdvice(
        application,
        tuple(times.values()),
        now,
        now if is_kept else right,
        deadline_seconds,
        memory,
        time(today, application.executors, 0.0),
        elsewhere,
        right if is_kept else None,
    )


def better_engine(advice: ExecutorAdvice) -> tuple[Platform, ApplicationRuntime, float] | None:
    """The fastest engine on this machine, its time, and the chance that it beats today's.

    Returns:
        None where none was asked about.
    """
    if not advice.elsewhere:
        return None
    engine, time = min(advice.elsewhere.items(), key=lambda each: each[1].median_seconds)
    return engine, time, time.chance_faster_than(advice.queries_today)


def is_better(chance: float) -> bool:
    """Whether a chance to be faster is worth a change."""
    return chance >= SURE


def _sizes(application: SparkApplication) -> list[tuple[int, ClusterConfig]]:
    """Powers of two up to twice what there was, and what there was, with their number."""
    cluster, settings = application.cluster, application.settings
    now = cluster.cores if settings.is_local else application.executors
    counts = sorted({now, *(1 << power for power in range((2 * now).bit_length()))})
    found = []
    for count in counts:
        if count == now:
            found.append((application.executors, cluster))
            continue
        part = count / now
        nodes = 1 if settings.is_local else max(1, min(count, round(cluster.nodes * part)))
        cores = max(nodes, round(cluster.cores * part))
        memory = cluster.memory_bytes if settings.is_local else cluster.memory_bytes * part
        sized = replace(cluster, nodes=nodes, cores=cores, memory_bytes=max(1, round(memory)))
        found.append((1 if settings.is_local else count, sized))
    return found


def _time(
    application: SparkApplication,
    estimates: Estimates,
    cost: Cost,
    cluster: ClusterConfig,
    executors: int,
    beside: float,
    *,
    platform: Platform | None = None,
) -> ApplicationRuntime:
    questions = []
    for each in application.queries:
        there = replace(cluster, queries_before=each.cluster.queries_before)
        plan, job = each.plan, KnownJob.of(each)
        if platform is not None:
            plan, job = Plan.on_one_platform(plan.workflow, platform), job.elsewhere()
        questions.append(moved(plan, each.cluster, there, job).question)
    found = estimates(questions)
    seconds = tuple(
        beside + application.overlap * sum(each.seconds_at(share) for each in found)
        for share in SHARES
    )
    if platform is None:
        seconds = _at_least(application.least_seconds(cluster.cores), seconds)
    return ApplicationRuntime(
        cluster,
        executors,
        seconds,
        min(each.evidence.error_correlation for each in found),
        any(each.extrapolating for each in found),
        cost(cluster, seconds[SHARES.index(0.5)]),
        all(each.evidence.supports_deadlines for each in found),
    )


def _at_least(least: float, seconds: tuple[float, ...]) -> tuple[float, ...]:
    """Times at each of `SHARES`, the median and all others no less; as far apart above it."""
    factor = max(1.0, least / seconds[SHARES.index(0.5)])
    return tuple(max(least, factor * each) for each in seconds)


def _ordered(
    times: Mapping[ClusterConfig, ApplicationRuntime], today: ClusterConfig
) -> dict[ClusterConfig, ApplicationRuntime]:
    """The times, few executors first, ordered at every quantile where their medians are."""
    sizes, found = list(times), dict(times)
    at = sizes.index(today)
    for line, tighter in ((sizes[at + 1 :], np.minimum), (sizes[:at][::-1], np.maximum)):
        known = times[today]
        for size in line:
            told = times[size].seconds
            ordered = tuple(tighter(told, known.seconds).tolist())
            if math.isclose(ordered[SHARES.index(0.5)], times[size].median_seconds, rel_tol=1e-6):
                known = found[size] = replace(times[size], seconds=ordered)
    return found


def _best(
    times: Sequence[ApplicationRuntime],
    now: ApplicationRuntime,
    deadline_seconds: float | None,
    *,
    is_cost_first: bool,
) -> ApplicationRuntime:
    if deadline_seconds is not None:
        able = [each for each in times if each.chance_within(deadline_seconds) >= HOLDS]
        if not able:
            surest = max(
                times,
                key=lambda each: (each.chance_within(deadline_seconds), -each.median_seconds),
            )
            return surest if surest.chance_within(deadline_seconds) > 0 else now
    elif is_cost_first:
        able = list(times)
    else:
        fastest = min(each.median_seconds for each in times)
        able = [each for each in times if each.median_seconds <= (1 + WORTH) * fastest]
    return min(able, key=lambda each: (each.cost, each.median_seconds))


def _is_open(
    right: ApplicationRuntime,
    now: ApplicationRuntime,
    *,
    deadline_seconds: float | None,
    is_cost_first: bool,
) -> bool:
    """Whether there is no telling that `right` beats what one has, which does what is asked."""
    if deadline_seconds is not None and now.chance_within(deadline_seconds) < HOLDS:
        return False
    wants_time = deadline_seconds is None and not is_cost_first
    chances = [right.chance_cheaper_than(now)]
    chances += [right.chance_faster_than(now)] if wants_time else []
    return not any(is_better(each) for each in chances)


def _fits(
    application: SparkApplication, engine: Platform, home: ClusterConfig, could_run: CouldRun
) -> bool:
    """Whether the engine runs all operators, and no output is larger than this machine's memory.

    Of a query whose rows are unknown there is no telling. Python that Spark calls for each row is
    a program of its own, which nobody else can run.
    """
    operators = [each for query in application.queries for each in query.plan.workflow.operators]
    has_rows = all(KnownJob.of(each).has_rows for each in application.queries)
    return has_rows and all(
        could_run(each.kind, engine)
        and each.code_steps != RUNS_PYTHON
        and each.output_bytes <= home.memory_bytes
        for each in operators
    )
