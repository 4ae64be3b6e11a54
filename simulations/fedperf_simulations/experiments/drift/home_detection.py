"""The quality of drift detection at home: false alarms without drift, delays where there is one.

A stream of residuals is shuffled, so that it has no drift but the same spread and the same jobs;
then half of it is shifted. The detector that an organization runs
(`fedperf_client.prediction.ensemble.changes`) is judged on the year of I/O probes, where each
platform is an organization, and on made-up streams of about the same spread.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.ensemble.changes import DriftObservations, StreamDrift, find_streams
from fedperf_simulations.data import tokio
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import Row, Settings, Target
from fedperf_simulations.harness.side_by_side import computed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PART = "home"

SHIFT = 0.4
"""Log seconds: half as long again."""

WITHIN = 150
"""Executions in which it is to be found."""

MOST_FALSE_ALARMS = 0.2
LEAST_FOUND = 0.9
"""The promised share of detections per stream."""

LONGEST = 1200
"""Executions of a stream into which a shift is injected."""

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """One organization's residuals on one platform, in the order of time.

    Attributes:
        name: of the platform.
        log_seconds: measured - predicted, [executions].
        jobs: number of the job of each, [executions].
        inputs: [executions, inputs].
    """

    name: str
    log_seconds: Floats
    jobs: Ints
    inputs: Floats

    def __len__(self) -> int:
        return len(self.jobs)

    def shuffled(self, rng: np.random.Generator, *, most: int | None = None) -> "Residuals":
        """Return the same without drift."""
        rows = rng.permutation(len(self))[:most]
        return Residuals(self.name, self.log_seconds[rows], self.jobs[rows], self.inputs[rows])

    def shifted(self, at: int, by: float) -> "Residuals":
        """Return the same, longer by that much from an execution on."""
        later = np.arange(len(self)) >= at
        return Residuals(self.name, self.log_seconds + by * later, self.jobs, self.inputs)

    def drifts(self) -> tuple[StreamDrift, ...]:
        """Drifts that an organization finds in it. Execution n finishes in minute n."""
        [stream] = find_streams(
            DriftObservations(
                np.zeros(len(self), np.int64),
                self.jobs,
                self.log_seconds,
                self.inputs,
                [_BEGIN + number * _STEP for number in range(len(self))],
            )
        )
        return stream.drifts


@dataclass(frozen=True, slots=True)
class Detection:
    """The figures of detection on one platform.

    Attributes:
        name: of the platform.
        executions: that it has.
        drifts: found in the stream as it came.
        shuffled: streams without drift that were judged.
        false_alarms: drifts found in them, on average.
        injected: streams with a shift that were judged.
        detected_share: share of them in which it was found in time, as concept drift.
        delay: median of the executions from the shift to the alarm; infinite where most missed it.
        size_error: typical distance of the shift from what was injected, log seconds.
    """

    name: str
    executions: int
    drifts: int
    shuffled: int
    false_alarms: float
    injected: int
    detected_share: float
    delay: float
    size_error: float

    def as_row(self) -> Row:
        """Return the figures by name. None where there is none."""
        return {
            "part": PART,
            "platform": self.name,
            "executions": self.executions,
            "drifts": self.drifts,
            "shuffled": self.shuffled,
            "false alarms": self.false_alarms,
            "injected": self.injected,
            "found": self.detected_share,
            "median delay": self.delay if np.isfinite(self.delay) else None,
            "typical error of the size": self.size_error if np.isfinite(self.size_error) else None,
        }


def judge(
    residuals: Residuals, *, seed: int = 0, shuffled: int = 3, injected: int = 10
) -> Detection:
    """Figures of detection on one platform.

    Args:
        residuals: as they came.
        seed: of the shuffles.
        shuffled: streams without drift.
        injected: streams with a shift in their middle, of `LONGEST` executions at most.
    """
    calm = [
        len(residuals.shuffled(np.random.default_rng([seed, 0, each])).drifts())
        for each in range(shuffled)
    ]
    delays, errors = list[float](), list[float]()
    for each in range(injected):
        stream = residuals.shuffled(np.random.default_rng([seed, 1, each]), most=LONGEST)
        middle = len(stream) // 2
        delay, error = _delay(stream.shifted(middle, SHIFT).drifts(), middle)
        delays.append(delay)
        errors.append(error)
    finite = [error for error in errors if np.isfinite(error)]
    return Detection(
        residuals.name,
        len(residuals),
        len(residuals.drifts()),
        shuffled,
        float(np.mean(calm)),
        injected,
        float(np.mean([delay <= WITHIN for delay in delays])),
        float(np.median(delays)),
        float(np.median(finite)) if finite else float("nan"),
    )


def _delay(drifts: Iterable[StreamDrift], at: int) -> tuple[float, float]:
    """Executions until the alarm, and how far off its size is. Infinite where it was missed."""
    for each in drifts:
        delay = (each.noticed_at - _BEGIN) // _STEP - at
        if delay >= 0 and each.is_concept:
            return float(delay), abs(each.log_shift - SHIFT)
    return np.inf, np.inf


def rows(settings: Settings) -> list[Row]:
    """Return one row per platform: those of the probes, and as many that are made up."""
    streams = probes(settings.data)
    streams += made_up(len(streams), seed=settings.seed)
    compute = partial(_row, settings, streams)
    return list(computed(compute, range(len(streams)), "drift at home", jobs=settings.jobs))


def targets(table: Sequence[Row]) -> list[Target]:
    """Promised and reached figures, over all streams. They follow from `rows`."""
    mine = [row for row in table if row["part"] == PART]
    return [
        Target(
            "home: false alarms per stream without drift",
            MOST_FALSE_ALARMS,
            _mean(mine, "false alarms", weight="shuffled"),
        ),
        Target(
            f"home: share of shifts of {SHIFT} found within {WITHIN} executions",
            LEAST_FOUND,
            _mean(mine, "found", weight="injected"),
            at_most=False,
        ),
    ]


def _row(settings: Settings, streams: Sequence[Residuals], place: int) -> Row:
    def compute() -> Row:
        if settings.quick:
            return judge(streams[place], seed=settings.seed, shuffled=1, injected=1).as_row()
        return judge(streams[place], seed=settings.seed).as_row()

    return settings.cell(f"{PART}-{streams[place].name.replace(' ', '-')}", compute)


def probes(data: Path | None) -> list[Residuals]:
    """Return the year of I/O probes against physics. A point of the public grid is a job.

    Raises:
        MissingDataError: the runs are not there.
    """
    runs = tokio.load(data)
    off = runs.log_wall - runs.points.physics(tokio.WALL)[runs.point]
    inputs = runs.points.features()[:, -3:]
    residuals = []
    for platform in tokio.PEAKS:
        own = runs.of(platform)
        own = own[np.argsort(runs.ended[own], kind="stable")]
        point = runs.point[own]
        residuals.append(Residuals(platform, off[own], point, inputs[point]))
    return residuals


def made_up(
    platforms: int, *, seed: int = 0, executions: int = LONGEST, jobs: int = 20
) -> list[Residuals]:
    """Streams without drift whose jobs differ, and repeat themselves, as the probes do."""
    residuals = []
    for platform in range(platforms):
        rng = np.random.default_rng([seed, 2, platform])
        level, size = rng.normal(0.0, 0.6, jobs), rng.uniform(0.0, 8.0, jobs)
        job = rng.integers(jobs, size=executions)
        noise = rng.standard_t(5, executions) * 0.35
        residuals.append(
            Residuals(f"made up {platform}", level[job] + noise, job, size[job][:, None])
        )
    return residuals


def _mean(table: Sequence[Row], name: str, *, weight: str) -> float:
    values, weights = ([number(row[key]) for row in table] for key in (name, weight))
    return float(np.average(values, weights=weights))
