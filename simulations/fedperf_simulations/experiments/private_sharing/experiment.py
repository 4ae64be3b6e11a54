"""Experiment: the cost of sharing few runs privately, for predictors that only see what is shared.

Runs, splits, predictors (Ernest; gradient boosting of 100 trees) and error (MAPE) are those of the
paper on private sharing of run times, with its 736 runs. Its published figures stand beside. Its
data synthesizer ran at its epsilon 0, which there switches the noise off, so those rows are not
private. Ours have finite epsilon at delta 1e-5 against adding or removing one run, configuration
included (`shared_jobs`). What the noise of epsilon 1 is worth against replacing one run is printed
beside. Predictors of ours and of the public starts are trained on synthetic rows on the job's
public grid. They are judged on the same test rows as predictors trained on the original data.

n near 10 is the mean of n = 9 and n = 12, fixed before any look. The number of stages was chosen on
splits of another seed; the features of the priors with all five jobs in sight.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedperf_memory.paired import PairedComparison
from fedperf_memory.seeded_noise import SeededNoise
from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.data.shared_runs import (
    JOBS,
    REPEATS,
    SMALL_SIZES,
    Floats,
    JobRuns,
    Mode,
    PublishedKey,
    Split,
    files,
    load_elsewhere,
    load_runs,
    published,
    split,
)
from fedperf_simulations.experiments.private_sharing.priors import (
    prior_from_other_jobs,
    prior_from_same_job,
)
from fedperf_simulations.experiments.private_sharing.shared_jobs import (
    replace_one_epsilon,
    shared_belief,
    synthetic_seconds,
)
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.charts import Line, lines_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target, Value
from fedperf_simulations.harness.side_by_side import computed

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
        name: original data, a public start, or what was shared.
        prior: that it starts from; None for original data.
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
        """One row per predictor, prior and size: means over the jobs; each has its own cell."""
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
        found: by predictor, training (name, prior, epsilon) and n, [cases].
        jobs: of the same cases; they come in the same order for everyone.
    """

    found: Mapping[tuple[Value, ...], Floats]
    jobs: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, cases: Sequence[Row]) -> "_Errors":
        found: dict[tuple[Value, ...], list[float]] = {}
        jobs: dict[str, list[str]] = {}
        for case in cases:
            found.setdefault(tuple(case[name] for name in KEY), []).append(number(case[MAPE]))
            if (case["predictor"], case["trained on"]) == (BOOSTING, ORIGINAL):
                jobs.setdefault(str(case["n"]), []).append(str(case["job"]))
        return cls({key: np.array(values) for key, values in found.items()}, jobs)

    def of_training(self, predictor: str, training: SharedTraining, size: int | None) -> Floats:
        """Of every job and split."""
        return self.found[predictor, training.name, training.prior, training.epsilon, _named(size)]

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
    return lambda asked: np.asarray(_ernest_terms(asked) @ weights)


def boosting(inputs: Floats, seconds: Floats, *, seed: int) -> Predict:
    """Gradient boosting as in the paper's code, where scaling comes first: trees do not mind."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(n_estimators=TREES, random_state=seed)
    model.fit(inputs, seconds)
    return lambda asked: np.asarray(model.predict(asked))


def _job_cases(settings: Settings, sizes: Sequence[int | None], job: int) -> Sequence[Row]:
    return settings.cases(f"job{job}", lambda: list(_computed(settings, sizes, job)))


def _computed(settings: Settings, sizes: Sequence[int | None], job: int) -> Iterator[Row]:
    """MAPE in percent: a row per size, split, training and predictor."""
    everything = load_runs(settings.data)
    runs = everything[job]
    others = [each for place, each in enumerate(everything) if place != job]
    starts = {
        OTHER_JOBS: prior_from_other_jobs(runs.grid, others),
        SAME_JOB: prior_from_same_job(runs.grid, others, load_elsewhere(settings.data, runs.grid)),
    }
    asker = _Asker(runs, starts, [settings.seed, job])
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
    """Judges predictors of one job; those of a public start are trained once."""

    def __init__(
        self, runs: JobRuns, starts: Mapping[str, GaussianPosterior], seed: Sequence[int]
    ) -> None:
        self._runs = runs
        self._starts = starts
        self._seed = seed
        self._of_starts = {
            name: self._predictors(runs.grid.inputs, synthetic_seconds(belief))
            for name, belief in starts.items()
        }

    def errors(self, training: SharedTraining, repeat: int, parts: Split) -> Mapping[str, float]:
        """MAPE on the test rows, in percent, by predictor."""
        inputs, seconds = self._runs.grid.inputs, self._runs.seconds
        if training.prior is None:
            predictors = self._predictors(inputs[parts.train], seconds[parts.train])
        elif training.epsilon is None:
            predictors = self._of_starts[training.prior]
        else:
            belief = self._shared(training.prior, training.epsilon, repeat, parts)
            predictors = self._predictors(inputs, synthetic_seconds(belief))
        asked, truth = inputs[parts.test], seconds[parts.test]
        return {
            name: 100 * float(np.mean(np.abs(predict(asked) / truth - 1)))
            for name, predict in predictors.items()
        }

    def _shared(self, prior: str, epsilon: float, repeat: int, parts: Split) -> GaussianPosterior:
        place = PRIORS.index(prior) * len(EPSILONS) + EPSILONS.index(epsilon)
        return shared_belief(
            self._starts[prior],
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
    asked: list[tuple[str, float, str, Sequence[int]]] = [
        (f"{lost}, n near 10, prior from other jobs", MOST_POINTS_LOST, OTHER_JOBS, NEAR_TEN),
        (f"stretch: {lost}, n near 10, prior from the same job", 0.0, SAME_JOB, NEAR_TEN),
    ]
    if NEAR_THIRTY in sizes:
        what = f"stretch: {lost}, n near 30, prior from the same job"
        asked.append((what, 0.0, SAME_JOB, (NEAR_THIRTY,)))
    targets = []
    for what, limit, prior, near in asked:
        paired = errors.lost(BOOSTING, prior, near)
        targets.append(Target(what, limit, paired.mean, paired=paired))
    return targets


def _lines(rows: Sequence[Row]) -> list[Line]:
    """The mean of the jobs over the number of training rows."""
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
