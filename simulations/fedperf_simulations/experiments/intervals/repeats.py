"""The next run of a job that ran k times, predicted from its own runs and others' repeats.

A job is a configuration: of C3O one of a slice, of TOKIO a probe of one size on one platform, of
our own a configuration of a campaign or a plan of the comparison set that ran three times in a row.
Its runs are drawn at random; those of TOKIO and our own also in their order, later ones from
earlier ones. The home holds what else repeats in the set (of C3O, other slices), or nothing but
this job. The product's predictor is `Repeats`, with an uninformative ensemble, so that own runs
alone determine the level. On C3O it is also `TablePredictor`, given the scatter of other jobs. The
baseline is the pooled empirical spread: the quantiles of the distance of another job's run from the
mean of k others of that job.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_campaigns.campaign.predictions import MOST_FREEDOM
from fedperf_campaigns.tables.predictor import MeasuredTable, TablePredictor
from fedperf_campaigns.tables.prior_slopes import Scatter
from fedperf_client.prediction.ensemble.repeats import Repeats
from fedperf_client.prediction.prediction import MEDIAN, Distribution, Floats, Prediction
from fedperf_client.sources.history_file import executions_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_simulations.data import c3o, tokio
from fedperf_simulations.data.c3o import JobSlice, slices
from fedperf_simulations.data.datasets import CAMPAIGNS, COMPARISONS, measured_files
from fedperf_simulations.experiments.intervals.figures import (
    LEVEL,
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    cover_row,
    least_target,
    most_target,
    where,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

C3O, TOKIO, CAMPAIGN, IN_A_ROW = "C3O", "TOKIO", "own campaigns", "own plans, three in a row"
ANY_ORDER, LATER = "at random", "later from earlier"
OTHERS, ALONE = "a home with other jobs", "a home with nothing else"
POOLED, BY_COLUMNS = "pooled spread of other jobs", "fedperf, by columns"

DRAWS: Mapping[str, int] = {C3O: 20, TOKIO: 40, CAMPAIGN: 10, IN_A_ROW: 1}
QUICK_DRAWS = 1
"""Jobs of each group, for each number of runs. One further run is held out."""

RUNS: Mapping[str, tuple[int, ...]] = {
    C3O: (1, 2, 4),
    TOKIO: (1, 2, 5, 10),
    CAMPAIGN: (1, 2, 4),
    IN_A_ROW: (1, 2),
}
ORDERS: Mapping[str, tuple[str, ...]] = {
    of: (ANY_ORDER,) if of == C3O else (ANY_ORDER, LATER) for of in RUNS
}
"""The repeats in the files of C3O are sorted by what they took."""

POOLED_DRAWS = 5
"""Draws of runs of each other job, for the pooled spread."""

LEAST: Mapping[str, float] = {C3O: 0.88, TOKIO: 0.85, CAMPAIGN: 0.85}
MOST: Mapping[str, float] = {TOKIO: 0.95, CAMPAIGN: 0.97}
"""Shares covered in a home with other jobs."""
MOST_RATIO: Mapping[str, tuple[float, ...]] = {C3O: (1.25, 1.2, 1.2), TOKIO: (7.0, 5.0, 4.5, 4.0)}
LEAST_ALONE = 0.85

NO_MIX = 1e9
"""Mean square of the errors of an uninformative ensemble."""

NOTES = (
    "repeats: campaigns and plans of our own were measured on a machine that others kept busy at "
    "times; nothing that ships was chosen by them",
)


ByColumns = Callable[[Floats, Scatter], Prediction]
"""A prediction from the log seconds of own runs and the scatter of other jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedJob:
    """One job and its runs.

    Attributes:
        name: of it.
        group: of jobs that have much in common, for bootstraps.
        kin: jobs that a home with other jobs does not hold.
        kind: of its platforms.
        runs: log seconds, in the order in which they ended, or as the set lists them.
        by_columns: the prediction of the predictor of tables; None where there is no table.
    """

    name: str
    group: str
    kin: str
    kind: bytes
    runs: Floats
    by_columns: ByColumns | None = None


def jobs_of(data: Path | None, of: str) -> list[RepeatedJob]:
    """Return the jobs of a set that ran more often than once. Raises the errors of its reader."""
    return [each for each in _READERS[of](data) if len(each.runs) > 1]


def _of_c3o(data: Path | None) -> Iterator[RepeatedJob]:
    for one in slices(data):
        for place, seconds in enumerate(one.repeats):
            name, by_columns = f"{one.name} {place}", partial(_by_columns, one, place)
            yield RepeatedJob(name, one.name, one.name, b"", np.log(seconds), by_columns)


def _by_columns(one: JobSlice, place: int, own: Floats, elsewhere: Scatter) -> Prediction:
    rows = one.rows(np.full(len(own), place))
    home = TablePredictor(MeasuredTable(one.layout, rows, np.exp(own)), elsewhere=elsewhere)
    [prediction] = home.predict(one.rows(np.array([place])))
    return prediction


def _of_tokio(data: Path | None) -> Iterator[RepeatedJob]:
    probes = tokio.load(data)
    order = np.argsort(probes.ended, kind="stable")
    points, walls = probes.point[order], probes.log_wall[order]
    for point, platform in enumerate(probes.points.platforms.tolist()):
        name = f"point {point}"
        yield RepeatedJob(name, platform, name, b"", walls[points == point])


def _of_campaigns(_: Path | None) -> Iterator[RepeatedJob]:
    for path in measured_files(CAMPAIGNS):
        runs: dict[tuple[object, ...], list[float]] = defaultdict(list)
        ended = [each for each in executions_of(path) if each.is_ok]
        for each in sorted(ended, key=lambda each: each.finished_at):
            # How fast the machine was found to be differs from run to run.
            where_it_ran = each.cluster.nodes, each.cluster.cores
            runs[each.plan, *where_it_ran].append(_log_seconds(each))
        for number, seconds in enumerate(runs.values()):
            name = f"{path.stem} {number}"
            yield RepeatedJob(name, name, name, b"", np.array(seconds))


def _of_comparisons(_: Path | None) -> Iterator[RepeatedJob]:
    from pyarrow import parquet

    most = max(RUNS[IN_A_ROW]) + 1
    for path in measured_files(COMPARISONS):
        runs = parquet.read_table(path, columns=["run_seconds"])["run_seconds"].to_pylist()
        for each, seconds in zip(executions_of(path), runs, strict=True):
            if len(seconds) == most:
                kind = bytes(sorted(set(each.plan.platforms)))
                name, workload = each.execution_id, each.workload
                yield RepeatedJob(name, workload, workload, kind, np.log(seconds))


def _log_seconds(execution: Execution) -> float:
    return float(np.log(execution.measurement.runtime_seconds)) if execution.measurement else 0.0


_READERS: Mapping[str, Callable[[Path | None], Iterator[RepeatedJob]]] = {
    C3O: _of_c3o,
    TOKIO: _of_tokio,
    CAMPAIGN: _of_campaigns,
    IN_A_ROW: _of_comparisons,
}


def situation(of: str, runs: int, order: str, *, home: str) -> str:
    """Return the situation, named by the own runs and how they were drawn."""
    return f"{of}, ran {runs} {'time' if runs == 1 else 'times'}, {order}, {home}"


def all_cases(settings: Settings, sets: Sequence[str]) -> list[Row]:
    """Return a row per set, number of runs, order, job that was drawn, home and predictor."""
    cell = partial(_cell, settings)
    by_set = computed(cell, sets, "sets of repeated jobs", jobs=settings.jobs)
    return [row for rows in by_set for row in rows]


def _public_files(data: Path | None) -> list[Path]:
    return [*c3o.files(data), *tokio.data_files(data)]


def _own_files(_: Path | None) -> list[Path]:
    return [*measured_files(CAMPAIGNS), *measured_files(COMPARISONS)]


def _cell(settings: Settings, of: str) -> Cases:
    draws = QUICK_DRAWS if settings.quick else DRAWS[of]
    key = f"repeats-{of.replace(',', '').replace(' ', '-')}"
    return settings.cases(
        key,
        lambda: list(repeat_cases(jobs_of(settings.data, of), of, draws=draws, seed=settings.seed)),
    )


def repeat_cases(jobs: Sequence[RepeatedJob], of: str, *, draws: int, seed: int) -> Iterator[Row]:
    """Yield a row per number of runs, order, draw, home and predictor."""
    rng = np.random.default_rng([seed, len(jobs)])
    groups: dict[str, list[RepeatedJob]] = defaultdict(list)
    for job in jobs:
        groups[job.group].append(job)
    for runs in RUNS[of]:
        for order in ORDERS[of]:
            spread = PooledSpread.of(jobs, runs, order, rng=rng)
            for members in groups.values():
                able = [each for each in members if len(each.runs) > runs]
                for place in rng.integers(len(able), size=draws if able else 0).tolist():
                    own, query = _drawn(able[place], runs, order, rng=rng)
                    for home in (OTHERS, ALONE):
                        others = jobs if home == OTHERS else ()
                        words = situation(of, runs, order, home=home)
                        pooled = spread if home == OTHERS else None
                        yield from _prediction_rows(words, able[place], own, query, others, pooled)


def _drawn(
    job: RepeatedJob, runs: int, order: str, *, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Return log seconds of so many runs, and of a further one."""
    if order == LATER:
        first = int(rng.integers(len(job.runs) - runs))
        sample = job.runs[first : first + runs + 1]
    else:
        sample = job.runs[rng.permutation(len(job.runs))[: runs + 1]]
    return sample[:runs], float(sample[runs])


@dataclass(frozen=True, slots=True)
class _Ends(Distribution):
    """An interval of `LEVEL` around 0, uniform on either side."""

    low: float
    high: float

    def quantile(self, share: float) -> float:
        """See `Distribution`."""
        return (self.high if share > MEDIAN else -self.low) * (share - MEDIAN) / (LEVEL / 2)

    def cdf(self, log_seconds: float) -> float:
        """See `Distribution`."""
        end = self.high if log_seconds > 0 else -self.low
        return min(1.0, max(0.0, MEDIAN + log_seconds / end * LEVEL / 2)) if end else MEDIAN


@dataclass(frozen=True, slots=True, eq=False)
class PooledSpread:
    """Distances of runs from the mean of their job's other runs, log seconds."""

    kin: Sequence[str]
    apart: Floats

    @classmethod
    def of(
        cls, jobs: Sequence[RepeatedJob], runs: int, order: str, *, rng: np.random.Generator
    ) -> "PooledSpread":
        """Take equally many draws of every job that ran often enough."""
        kin, apart = [], []
        for job in jobs:
            for _ in range(POOLED_DRAWS if len(job.runs) > runs else 0):
                own, query = _drawn(job, runs, order, rng=rng)
                kin.append(job.kin)
                apart.append(query - own.mean())
        return cls(kin, np.array(apart))

    def predict(self, job: RepeatedJob, own: Floats) -> Prediction:
        """Its quantiles around the mean of own runs, that job's kin left out."""
        others = self.apart[np.array(self.kin) != job.kin]
        low, high = np.quantile(others, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        level = float(own.mean())
        ends = _Ends(min(float(low), 0.0), max(float(high), 0.0))
        return Prediction(level, ends, LEVEL)


def _prediction_rows(
    words: str,
    job: RepeatedJob,
    own: Floats,
    query: float,
    others: Sequence[RepeatedJob],
    pooled: PooledSpread | None,
) -> Iterator[Row]:
    unrelated = [each for each in others if each.kin != job.kin]
    predictions: dict[str, Prediction] = {OURS: _by_repeats(job, own, unrelated)}
    if job.by_columns is not None:
        predictions[BY_COLUMNS] = job.by_columns(own, _scatter(unrelated))
    if pooled is not None:
        predictions[POOLED] = pooled.predict(job, own)
    for name, prediction in predictions.items():
        yield PredictionLabel(words, name, job.group).predicted(
            float(np.exp(query)), prediction, job=job.name
        )


def _by_repeats(job: RepeatedJob, own: Floats, others: Sequence[RepeatedJob]) -> Prediction:
    """Return the product's prediction for a configuration with these runs."""
    each_of = [*others, job]
    runs = [*(each.runs for each in others), own]
    of_run = np.repeat(np.arange(len(runs)), [len(each) for each in runs])
    kinds = np.unique([each.kind for each in each_of], return_inverse=True)[1][of_run]
    prediction = Repeats.from_runs(of_run, kinds, np.concatenate(runs)).predict(
        len(others), 0.0, NO_MIX
    )
    if prediction is None:
        raise InvalidInputError(f"{job.name} never ran")
    return prediction


def _scatter(others: Sequence[RepeatedJob]) -> Scatter:
    """Return how other jobs scatter, as far as the product counts it."""
    squares = sum(float(((each.runs - each.runs.mean()) ** 2).sum()) for each in others)
    freedom = float(sum(len(each.runs) - 1 for each in others))
    share = min(1.0, MOST_FREEDOM / freedom) if freedom else 0.0
    return Scatter(squares * share, freedom * share)


def rows_of(cases: Cases) -> list[Row]:
    """Coverage, ratio and interval score of each situation and predictor."""
    return [
        {SITUATION: of, PREDICTOR: name, **cover_row(group)}
        for (of, name), group in by(cases, SITUATION, PREDICTOR).items()
    ]


def targets_of(_: Cases, rows: Sequence[Row], *, sets: Sequence[str]) -> list[Target]:
    """Return the targets in homes with other jobs and with nothing else, for both predictors."""
    return [
        target
        for of in sets
        if of in LEAST
        for runs in RUNS[of]
        for order in ORDERS[of]
        for who in (OURS, BY_COLUMNS)
        for target in _targets_of_one(rows, of, runs, order=order, who=who)
    ]


def _targets_of_one(
    rows: Sequence[Row], of: str, runs: int, *, order: str, who: str
) -> Iterator[Target]:
    """Return None without a prediction: only jobs of C3O have columns."""
    words = situation(of, runs, order, home=OTHERS)
    for row in where(rows, situation=words, predictor=who):
        what = f"{words}, {who}"
        yield least_target(f"{what}: covered", row, "covered", LEAST[of])
        if of in MOST:
            yield most_target(f"{what}: covered", row, "covered", MOST[of])
        if of in MOST_RATIO:
            limit = MOST_RATIO[of][RUNS[of].index(runs)]
            yield most_target(f"{what}: median of upper / lower", row, "upper / lower", limit)
    words = situation(of, runs, order, home=ALONE)
    for row in where(rows, situation=words, predictor=who):
        yield least_target(f"{words}, {who}: covered", row, "covered", LEAST_ALONE)


def _part(
    name: str,
    files: Callable[[Path | None], Sequence[Path]],
    *sets: str,
    notes: tuple[str, ...] = (),
) -> EvaluationPart:
    cases, targets = partial(all_cases, sets=sets), partial(targets_of, sets=sets)
    return EvaluationPart(name, files, cases, rows_of, targets, notes)


PUBLIC = _part("repeats of C3O and TOKIO", _public_files, C3O, TOKIO)
OWN = _part("repeats of our own", _own_files, CAMPAIGN, IN_A_ROW, notes=NOTES)
