"""Experiment: the cost of sharing few runs privately, for predictors that only see what is shared.

Runs, splits, predictors (Ernest; gradient boosting of 100 trees) and error (MAPE) are those of the
paper on private sharing of run times, with its 736 runs. The tables include its published figures.
Its data synthesizer ran at its epsilon 0, which there switches the noise off, so those rows are not
private. Ours have finite epsilon at delta 1e-5 against adding or removing one run, configuration
included. The epsilon of the same noise against replacing one run is also printed. Predictors of
ours and of the public priors are trained on synthetic rows on the job's public grid. They are
judged on the same test rows as predictors trained on the original data.

n near 10 is the mean of n = 9 and n = 12, fixed before any look. The number of stages was chosen on
splits of another seed; the features of the priors with all five jobs in sight.

Sharing (`SharedJob`). The runs of an organization lie on the public grid of a job, one workload
each. In each stage the server queries a few directions over the whole grid, the organization
replies with a directed report (clipped log residuals, one Gaussian), and the posterior is updated.
How many stages there are follows from the declared number of runs and epsilon alone, never from a
private fit. In the end all participants label the public grid by the posterior: these synthetic
rows are post-processing, as many as the grid has, and cost nothing more.

Adjacency is add or remove one run, its configuration included: the design spans the whole grid, so
what is sent shows neither run time nor place of a single run beyond epsilon. Grid and number of
runs are declared; that the runs lie evenly on the grid is assumed in the posterior update, never
needed for privacy. The epsilon of the same noise against the replacement of one run by another is
also printed.

Priors. There are two public ones over the grid of a job, as Gaussian posteriors of log seconds:

* from the other jobs: a job at the middle of its grid takes what the others take at the middle of
  theirs. Run time falls with machines as it does for them, and crossing an argument's range from
  least to most work adds what it adds for them. A line through the other jobs gives all three, and
  a kernel fitted to them the distance of jobs from it.
* the same, after runs of the same job on other machine types, which determine nearly everything but
  the machine type's own share.

The target job enters by its grid alone: no function here receives its run times, so the line and
the kernel never see them. A person with all five jobs in sight, though, chose the features and the
centre of the kernel's hyperprior.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedperf_client.contributions.mechanisms import NoiseSource, PointResiduals
from fedperf_client.release import accountant
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.cell_directions import STAGES, Stage
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, SlotKey
from fedperf_simulations.data.shared_runs import (
    JOBS,
    REPEATS,
    SMALL_SIZES,
    Floats,
    Integers,
    JobRuns,
    Mode,
    PublicConfigurations,
    PublishedKey,
    RunsElsewhere,
    Split,
    files,
    load_elsewhere,
    load_runs,
    published,
    split,
)
from fedperf_simulations.federation.channel import directed_report
from fedperf_simulations.federation.grid_points import design_grid_query, learn_on_grid
from fedperf_simulations.federation.job_kernel import (
    RECORD_VARIANCE,
    JobKernel,
    JobPoints,
    fit_kernel,
)
from fedperf_simulations.federation.point_queries import condition, marginal, stage_noise
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.paired import PairedComparison
from fedperf_simulations.harness.side_by_side import computed

if TYPE_CHECKING:
    from dp_accounting import DpEvent

DELTA = 1e-5

ONE_STAGE = (Stage(1.0, 1.0),)
TWO_STAGES = (Stage(0.4, 1.5), Stage(0.6, 1.0))

ONE_STAGE_BELOW = 6.0
TWO_STAGES_BELOW = 20.0
"""Declared runs per unit of noise. Chosen like the stages on splits that no default run uses."""

DIRECTIONS = 4


def planned_stages(declared: int, epsilon: float) -> tuple[Stage, ...]:
    """Return the stages of `declared` runs at `epsilon`: the more there is to learn, the more."""
    strength = declared / noise_multiplier(ONE_STAGE, epsilon)
    if strength < ONE_STAGE_BELOW:
        return ONE_STAGE
    return TWO_STAGES if strength < TWO_STAGES_BELOW else STAGES


@lru_cache
def noise_multiplier(stages: tuple[Stage, ...], epsilon: float) -> float:
    """Noise of one release as costly as all stages, which cost (epsilon, `DELTA`) together."""
    budget = accountant.PrivacyBudget(epsilon, DELTA)
    return accountant.calibrate(partial(_events, stages), budget)


def replace_one_epsilon(epsilon: float) -> float:
    """Return the epsilon of releases at `epsilon` against the replacement of one run by another.

    Gaussians compose exactly, so it does not depend on the stages.
    """
    events = _events(ONE_STAGE, noise_multiplier(ONE_STAGE, epsilon))
    return accountant.replace_one_epsilon(events, DELTA)


def shared_posterior(
    prior: GaussianPosterior,
    rows: Integers,
    log_seconds: Floats,
    *,
    declared: int,
    epsilon: float,
    noise: NoiseSource,
) -> GaussianPosterior:
    """Return the public posterior after an organization has shared its runs at `epsilon`.

    Args:
        prior: public posterior over the grid.
        rows: where on the grid the runs lie, each at another point, [runs].
        log_seconds: what they took, [runs].
        declared: number of runs that the organization declared.
        epsilon: of all stages together.
        noise: of the releases.
    """
    stages = planned_stages(declared, epsilon)
    whole = noise_multiplier(stages, epsilon)
    posterior = prior
    for index, stage in enumerate(stages):
        multiplier = stage_noise(stage, whole)
        design = design_grid_query(
            posterior,
            declared,
            kappa=stage.kappa,
            noise_multiplier=multiplier,
            record_variance=RECORD_VARIANCE,
            directions=DIRECTIONS,
        )
        report = directed_report(
            _workloads(rows, log_seconds - posterior.mean[rows]),
            design,
            noise,
            slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, index),
            noise_multiplier=multiplier,
            design_version=index + 1,
        )
        posterior = learn_on_grid(
            posterior,
            design,
            [report],
            [declared],
            noise_multiplier=multiplier,
            record_variance=RECORD_VARIANCE,
        ).posterior
    return posterior


def synthetic_seconds(posterior: GaussianPosterior) -> Floats:
    """Labels of the grid, seconds: those with the least expected relative error.

    Under a log-normal posterior |label / truth - 1| is least in expectation at
    exp(mean - variance). Higher variance gives a smaller label.
    """
    return np.asarray(np.exp(posterior.mean - posterior.variances()), dtype=np.float64)


def _workloads(rows: Integers, residuals: Floats) -> list[PointResiduals]:
    """Return every run as a workload of one execution."""
    return [PointResiduals(rows[at : at + 1], residuals[at : at + 1]) for at in range(len(rows))]


def _events(stages: Sequence[Stage], whole: float) -> "list[DpEvent]":
    """A clip does not matter for the cost."""
    return [
        accountant.to_event(ReportParameters(stage_noise(stage, whole), 1.0)) for stage in stages
    ]


FEATURES = 4
"""Log machines, and up to three arguments. 0 where a job has fewer."""

LESS_IS_MORE_WORK = frozenset({"convergence_criterion"})
"""Arguments of which a smaller one means more work."""

KERNEL_ROWS = 60
"""Most rows of a job that the kernel is fitted to, so that small jobs count as well."""

KERNEL_START = JobKernel(
    level=0.01,
    slots=0.01,
    machine=0.02,
    job_and_machine=0.02,
    job=0.2,
    job_slots=0.05,
    job_size=0.02,
    job_parameters=0.02,
    single=0.01,
    pair=0.003,
    joint=0.003,
)
"""Centre of the hyperprior: jobs differ by a level and slopes around the common line."""


def features(grid: PublicConfigurations, inputs: Floats) -> Floats:
    """Features of `inputs` [rows, columns] on the scale of a public grid, [rows, FEATURES].

    Log machines, 0 in the mean of the grid; arguments from -1 (least work) to 1 (most
    work), linear in the log unless the grid touches 0.
    """
    scaled = np.zeros((len(inputs), FEATURES))
    scaled[:, 0] = np.log(inputs[:, 0]) - np.log(grid.inputs[:, 0]).mean()
    for position, name in enumerate(grid.columns[1:], start=1):
        grid_values, values = grid.inputs[:, position], inputs[:, position]
        if grid_values.min() > 0:
            grid_values, values = np.log(grid_values), np.log(values)
        share = (values - grid_values.min()) / (grid_values.max() - grid_values.min())
        scaled[:, position] = (2 * share - 1) * (-1 if name in LESS_IS_MORE_WORK else 1)
    return scaled


def prior_from_other_jobs(
    target: PublicConfigurations, others: Sequence[JobRuns]
) -> GaussianPosterior:
    """The posterior over the grid of `target`, [rows of the grid], from the runs of other jobs."""
    return _prior(target, others, None)


def prior_from_same_job(
    target: PublicConfigurations, others: Sequence[JobRuns], elsewhere: RunsElsewhere
) -> GaussianPosterior:
    """Return the posterior from other jobs, updated with the same job on other machine types."""
    return _prior(target, others, elsewhere)


def _prior(
    target: PublicConfigurations, others: Sequence[JobRuns], elsewhere: RunsElsewhere | None
) -> GaussianPosterior:
    line, kernel = _common_line(others), _kernel(others)
    grids = _joined([_points(each.grid) for each in others])
    values = np.concatenate([np.log(each.seconds) for each in others])
    if elsewhere is not None:
        titles = np.full(len(elsewhere.seconds), target.job.title)
        same_job = JobPoints(titles, elsewhere.machine_types, features(target, elsewhere.inputs))
        grids = grids.joined(same_job)
        values = np.concatenate([values, np.log(elsewhere.seconds)])
    points = _points(target).joined(grids)
    target_places, grid_places = np.arange(len(target)), np.arange(len(target), len(points))
    prior = GaussianPosterior(_regressors(points.features) @ line, kernel.covariance(points))
    return marginal(condition(prior, grid_places, values, RECORD_VARIANCE), target_places)


def _common_line(jobs: Sequence[JobRuns]) -> Floats:
    """Level, slope over machines, slope over every argument. Each job counts the same."""
    weights = [np.full(len(each), len(each) ** -0.5) for each in jobs]
    rows = [_regressors(features(each.grid, each.grid.inputs)) for each in jobs]
    weight = np.concatenate(weights)
    values = np.concatenate([np.log(each.seconds) for each in jobs])
    line, *_ = np.linalg.lstsq(np.concatenate(rows) * weight[:, None], values * weight)
    return np.asarray(line, dtype=np.float64)


def _kernel(jobs: Sequence[JobRuns]) -> JobKernel:
    """Return how far jobs lie from their common line."""
    line = _common_line(jobs)
    points, residuals = [], []
    for each in jobs:
        places = np.unique(np.linspace(0, len(each) - 1, KERNEL_ROWS).astype(np.int64))
        points.append(_points(each.grid, places))
        expected = _regressors(points[-1].features) @ line
        residuals.append(np.log(each.seconds[places]) - expected)
    return fit_kernel(_joined(points), np.concatenate(residuals), start=KERNEL_START)


def _points(grid: PublicConfigurations, rows: Integers | None = None) -> JobPoints:
    """Return all rows of a grid, or some."""
    inputs = grid.inputs if rows is None else grid.inputs[rows]
    return JobPoints(
        np.full(len(inputs), grid.job.title),
        np.full(len(inputs), grid.job.machine_type),
        features(grid, inputs),
    )


def _regressors(inputs: Floats) -> Floats:
    return np.column_stack([np.ones(len(inputs)), inputs[:, 0], inputs[:, 1:].sum(axis=1)])


def _joined(parts: Sequence[JobPoints]) -> JobPoints:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.joined(part)
    return whole


EPSILONS = (0.5, 1.0, 3.0, 10.0)
PROMISED = 1.0
NEAR_TEN = (9, 12)
NEAR_THIRTY = 30
SIZES: tuple[int | None, ...] = (*SMALL_SIZES, None)
QUICK_REPEATS, QUICK_SIZES = 1, NEAR_TEN

MOST_POINTS_LOST = 5.0

TREES = 100
DECIMALS = 2

ORIGINAL = "original"
OTHER_JOBS, SAME_JOB = "other jobs", "same job"
PRIORS = (OTHER_JOBS, SAME_JOB)
START = "public start"
OURS = "ours"
PUBLISHED = {
    Mode.ORIGINAL: "published original",
    Mode.SYNTHETIC: "published synthetic (their epsilon 0: no noise)",
}
REPLACE_ONE = "epsilon 1 if one run is replaced"

ERNEST, BOOSTING = "Ernest", "boosting"
PUBLISHED_NAMES = {ERNEST: "ErnestModel", BOOSTING: "GradientBoosting"}

MAPE = "MAPE"
KEY = ("predictor", "trained on", "prior", "epsilon", "n")
PLOT = "private_sharing.svg"

NOTES = (
    "the features of the public priors were chosen with all five jobs in sight",
    "intervals resample splits of five fixed jobs, and splits share runs, so they are too narrow; "
    "one left out is a job",
    "the published synthetic data were made with the noise switched off (their epsilon 0)",
)

Predict = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class SharedTraining:
    """The training data of predictors.

    Attributes:
        name: original data, a public prior, or shared rows.
        prior: before sharing; None for original data.
        epsilon: of what was shared; None where nothing private is released, or everything.
    """

    name: str
    prior: str | None = None
    epsilon: float | None = None


TRAININGS = (
    SharedTraining(ORIGINAL),
    *(SharedTraining(START, prior) for prior in PRIORS),
    *(SharedTraining(OURS, prior, epsilon) for prior in PRIORS for epsilon in EPSILONS),
)


class PrivateSharing:
    """The experiment."""

    name = "private_sharing"
    claim = "few runs are shared at epsilon 1 at a cost of at most 5 points of MAPE near n = 10"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """One row per predictor, prior and size: means over the jobs. Each has its own cell."""
        sizes = QUICK_SIZES if settings.quick else SIZES
        table = published(settings.data)
        compute = partial(_job_cases, settings, sizes)
        by_job = list(computed(compute, range(len(JOBS)), "jobs", jobs=settings.jobs))
        errors = _Errors.of([case for cases in by_job for case in cases])
        rows = [
            _row(predictor, prior, size, errors, table)
            for predictor in (BOOSTING, ERNEST)
            for prior in PRIORS
            for size in sizes
        ]
        chart = lines_chart(_lines(rows), "training rows", "MAPE, gradient boosting, %")
        path = settings.out / PLOT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(chart, encoding="utf-8")
        return ExperimentOutcome(
            rows,
            _targets(errors, sizes),
            self.public_files(settings.data),
            [path],
            [case for cases in by_job for case in cases],
            NOTES,
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of the shared runs, and of the same jobs elsewhere."""
        return files(data)


@dataclass(frozen=True, slots=True)
class _Errors:
    """MAPE of the cases.

    Attributes:
        by_key: by predictor, training (name, prior, epsilon) and n, [cases].
        jobs: of the same cases; they come in the same order for everyone.
    """

    by_key: Mapping[tuple[Value, ...], Floats]
    jobs: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, cases: Sequence[Row]) -> "_Errors":
        grouped: dict[tuple[Value, ...], list[float]] = {}
        jobs: dict[str, list[str]] = {}
        for case in cases:
            grouped.setdefault(tuple(case[name] for name in KEY), []).append(number(case[MAPE]))
            if (case["predictor"], case["trained on"]) == (BOOSTING, ORIGINAL):
                jobs.setdefault(str(case["n"]), []).append(str(case["job"]))
        return cls({key: np.array(values) for key, values in grouped.items()}, jobs)

    def of_training(self, predictor: str, training: SharedTraining, size: int | None) -> Floats:
        """Return the errors of every job and split."""
        return self.by_key[predictor, training.name, training.prior, training.epsilon, _named(size)]

    def lost(self, predictor: str, prior: str, sizes: Sequence[int | None]) -> PairedComparison:
        """Points of MAPE between what is shared at the promised epsilon and original data.

        Jobs are fixed; splits are resampled.
        """
        ours, original = (
            np.concatenate([self.of_training(predictor, each, size) for size in sizes])
            for each in (SharedTraining(OURS, prior, PROMISED), SharedTraining(ORIGINAL))
        )
        strata = [job for size in sizes for job in self.jobs[_named(size)]]
        return PairedComparison.points(ours, original, strata)


def ernest(inputs: Floats, seconds: Floats) -> Predict:
    """Ernest: not negative weights of 1, size / machines, log machines and machines.

    Args:
        inputs: machines, size, and columns that are not used, [rows, columns].
        seconds: run times, [rows].
    """
    from scipy.optimize import nnls

    weights, _ = nnls(_ernest_terms(inputs), seconds)
    return lambda queries: np.asarray(_ernest_terms(queries) @ weights)


def boosting(inputs: Floats, seconds: Floats, *, seed: int) -> Predict:
    """Gradient boosting as in the paper's code, where scaling comes first: trees do not mind."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(n_estimators=TREES, random_state=seed)
    model.fit(inputs, seconds)
    return lambda queries: np.asarray(model.predict(queries))


def _job_cases(settings: Settings, sizes: Sequence[int | None], job: int) -> Sequence[Row]:
    return settings.cases(f"job{job}", lambda: list(_computed(settings, sizes, job)))


def _computed(settings: Settings, sizes: Sequence[int | None], job: int) -> Iterator[Row]:
    """MAPE in percent: a row per size, split, training and predictor."""
    everything = load_runs(settings.data)
    runs = everything[job]
    others = [each for place, each in enumerate(everything) if place != job]
    priors = {
        OTHER_JOBS: prior_from_other_jobs(runs.grid, others),
        SAME_JOB: prior_from_same_job(runs.grid, others, load_elsewhere(settings.data, runs.grid)),
    }
    asker = _Asker(runs, priors, [settings.seed, job])
    for size in sizes:
        for repeat in range(QUICK_REPEATS if settings.quick else REPEATS):
            parts = split(job, len(runs), size, repeat, seed=settings.seed)
            about: Row = {"job": JOBS[job].title, "n": _named(size), "split": repeat}
            for training in TRAININGS:
                for predictor, error in asker.errors(training, repeat, parts).items():
                    yield {
                        **about,
                        "trained on": training.name,
                        "prior": training.prior,
                        "epsilon": training.epsilon,
                        "predictor": predictor,
                        MAPE: error,
                    }


class _Asker:
    """Judges predictors of one job. Those of a public prior are trained once."""

    def __init__(
        self, runs: JobRuns, priors: Mapping[str, GaussianPosterior], seed: Sequence[int]
    ) -> None:
        self._runs = runs
        self._priors = priors
        self._seed = seed
        self._of_priors = {
            name: self._predictors(runs.grid.inputs, synthetic_seconds(posterior))
            for name, posterior in priors.items()
        }

    def errors(self, training: SharedTraining, repeat: int, parts: Split) -> Mapping[str, float]:
        """MAPE on the test rows, in percent, by predictor."""
        inputs, seconds = self._runs.grid.inputs, self._runs.seconds
        if training.prior is None:
            predictors = self._predictors(inputs[parts.train], seconds[parts.train])
        elif training.epsilon is None:
            predictors = self._of_priors[training.prior]
        else:
            posterior = self._shared(training.prior, training.epsilon, repeat, parts)
            predictors = self._predictors(inputs, synthetic_seconds(posterior))
        queries, truth = inputs[parts.test], seconds[parts.test]
        return {
            name: 100 * float(np.mean(np.abs(predict(queries) / truth - 1)))
            for name, predict in predictors.items()
        }

    def _shared(self, prior: str, epsilon: float, repeat: int, parts: Split) -> GaussianPosterior:
        place = PRIORS.index(prior) * len(EPSILONS) + EPSILONS.index(epsilon)
        return shared_posterior(
            self._priors[prior],
            parts.train,
            np.log(self._runs.seconds[parts.train]),
            declared=len(parts.train),
            epsilon=epsilon,
            noise=SeededNoise([*self._seed, len(parts.train), repeat, place]),
        )

    def _predictors(self, inputs: Floats, seconds: Floats) -> Mapping[str, Predict]:
        return {
            ERNEST: ernest(inputs, seconds),
            BOOSTING: boosting(inputs, seconds, seed=self._seed[0]),
        }


def _ernest_terms(inputs: Floats) -> Floats:
    machines, size = inputs[:, 0], inputs[:, 1]
    return np.column_stack([np.ones(len(inputs)), size / machines, np.log(machines), machines])


def _row(
    predictor: str,
    prior: str,
    size: int | None,
    errors: _Errors,
    table: Mapping[PublishedKey, float],
) -> Row:
    """Means over the jobs, and at the promised epsilon what is lost, case by case."""

    def mean(training: SharedTraining) -> float:
        return _rounded(errors.of_training(predictor, training, size))

    name = PUBLISHED_NAMES[predictor]
    lost = errors.lost(predictor, prior, [size])
    low, high = lost.interval or (None, None)
    return {
        "predictor": predictor,
        "prior": prior,
        "n": _named(size),
        ORIGINAL: mean(SharedTraining(ORIGINAL)),
        **{
            label: _rounded(np.array([table[name, job.title, mode, size] for job in JOBS]))
            for mode, label in PUBLISHED.items()
        },
        START: mean(SharedTraining(START, prior)),
        **{_of(epsilon): mean(SharedTraining(OURS, prior, epsilon)) for epsilon in EPSILONS},
        "points lost at epsilon 1": round(lost.mean, DECIMALS),
        "low": low,
        "high": high,
        "median lost": round(lost.median, DECIMALS),
        "better": f"{lost.wins}/{lost.cases}",
        REPLACE_ONE: round(replace_one_epsilon(PROMISED), DECIMALS),
    }


def _rounded(errors: Floats) -> float:
    return round(float(errors.mean()), DECIMALS)


def _of(epsilon: float) -> str:
    return f"epsilon {epsilon:g}"


def _named(size: int | None) -> str:
    return "80 %" if size is None else str(size)


def _targets(errors: _Errors, sizes: Sequence[int | None]) -> list[Target]:
    lost = "points lost at epsilon 1"
    specifications: list[tuple[str, float, str, Sequence[int]]] = [
        (f"{lost}, n near 10, prior from other jobs", MOST_POINTS_LOST, OTHER_JOBS, NEAR_TEN),
        (f"stretch: {lost}, n near 10, prior from the same job", 0.0, SAME_JOB, NEAR_TEN),
    ]
    if NEAR_THIRTY in sizes:
        what = f"stretch: {lost}, n near 30, prior from the same job"
        specifications.append((what, 0.0, SAME_JOB, (NEAR_THIRTY,)))
    targets = []
    for what, limit, prior, near in specifications:
        paired = errors.lost(BOOSTING, prior, near)
        targets.append(Target(what, limit, paired.mean, paired=paired))
    return targets


def _lines(rows: Sequence[Row]) -> list[Line]:
    """Return the mean of the jobs over the number of training rows."""
    other, same = (_boosting_rows(rows, prior) for prior in PRIORS)
    return [
        _line("original data", other, ORIGINAL, dashed=True),
        _line("published, no noise", other, PUBLISHED[Mode.SYNTHETIC], dashed=True),
        _line("public start, other jobs", other, START, dashed=True),
        _line("epsilon 1, other jobs", other, _of(PROMISED)),
        _line("public start, same job", same, START, dashed=True),
        _line("epsilon 1, same job", same, _of(PROMISED)),
    ]


def _line(label: str, rows: Sequence[Row], column: str, *, dashed: bool = False) -> Line:
    small = [row for row in rows if row["n"] != _named(None)]
    across = [int(str(row["n"])) for row in small]
    return Line(label, across, [number(row[column]) for row in small], dashed)


def _boosting_rows(rows: Sequence[Row], prior: str) -> list[Row]:
    return [row for row in rows if (row["predictor"], row["prior"]) == (BOOSTING, prior)]


EXPERIMENT = PrivateSharing()
