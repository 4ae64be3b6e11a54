"""Sequences of segments in which what runs cost drifts: TOKIO's probes and C3O's jobs.

* fleet: an organization replaces its platform five times, by real platforms of TOKIO; the target is
  the bandwidth of a run, or its wall time.
* cori3: one system, Cori, with its servers' statistics, cut at two maintenance dates.
* c3o-job: another job of C3O in each segment. The inputs are machine, slots, megabytes and
  up to three parameters that mean something else in each job; its name is not among them.

A record is one run. That is NOT what fedperf promises, whose unit is the workload; every row about
these sequences states it (`UNIT`).

Public, and constants of this module: lists of categories, bounds of numbers, the dates, and the
scaling of targets. They come from general knowledge of such systems, not from the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_simulations.data import c3o, tokio
from fedperf_simulations.data.public_table import Columns, Floats, PublicTable, code_of, scaled

UNIT = "run: not our promise"

FLEET = (
    "mira",
    "edison-scratch1",
    "edison-scratch2",
    "edison-scratch3",
    "cori-haswell",
    "cori-knl",
)
"""The platforms in the order in which they replace each other."""

PROCESSES: Mapping[str, int] = {
    "cori-haswell": 512,
    "cori-knl": 4096,
    "edison-scratch1": 2048,
    "edison-scratch2": 2048,
    "edison-scratch3": 2048,
    "mira": 16384,
}
"""Processes of every probe on a platform, as published."""

LOG2_PROCESSES, LOG2_GIB = (6, 16), (3, 15)
"""Jobs of 64 to 65,536 processes that move 8 GiB to 32 TiB."""

CUTS = (datetime(2017, 3, 24, tzinfo=UTC), datetime(2017, 8, 10, tzinfo=UTC))
"""Maintenance of Cori."""

START_TIME = "darshan_start_time"
TELEMETRY: Mapping[str, float] = {
    "fs_ave_oss_cpu": 100,
    "fs_ave_mds_cpu": 100,
    "fs_tot_gibs_read": 1e6,
    "fs_tot_gibs_written": 1e6,
    "jobsdb_concurrent_jobs": 1e4,
    "fshealth_ost_avg_full_pct": 100,
    "fs_tot_mkdir_ops": 1e7,
    "fs_tot_rename_ops": 1e7,
    "fs_tot_rmdir_ops": 1e7,
    "fs_tot_unlink_ops": 1e7,
}
"""Columns of a file system's server statistics, and the largest plausible values.

Scaled from 0 by log(1 + value).
"""

PROBES = ("ior", "hacc", "vpicio", "dbscan")

JOB_ORDER = ("grep", "sort", "pagerank", "kmeans", "sgd")
FAMILIES, SIZES = ("c4", "m4", "r4"), ("large", "xlarge", "2xlarge", "4xlarge")
"""Machine types on offer when C3O was measured."""

LOG_BANDWIDTH, LOG_WALL, LOG_RUNTIME = (
    (np.log(1e2), np.log(1e6)),
    (np.log(1.0), np.log(3600.0)),
    (np.log(10.0), np.log(10_000.0)),
)
"""100 MiB/s to 1 TB/s. A second to an hour. Ten seconds to three hours."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Records between two drifts.

    Attributes:
        name: of the platform, the job or the time.
        table: what was run.
        targets: natural log of what it took or reached, scaled by the sequence, [records].
    """

    name: str
    table: PublicTable
    targets: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DriftSequence:
    """Segments in the order in which they are learned.

    Attributes:
        name: of the sequence.
        columns: of every table.
        segments: at least one.
        unit: of the targets, in natural log; a target of 1 is that much off their middle.
    """

    name: str
    columns: Columns
    segments: tuple[Segment, ...]
    unit: float

    @property
    def marks(self) -> list[str]:
        """The segments' names, for axes."""
        return [each.name for each in self.segments]


@cache
def load(name: str, data: Path | None) -> DriftSequence:
    """Return the sequence of that name.

    Raises:
        MissingDataError: its data are not there.
        InvalidInputError: a row is of an unknown kind.
    """
    return _LOADERS[name](data)


def data_files(data: Path | None) -> tuple[Path, ...]:
    """Everything that is read.

    Raises:
        MissingDataError: some of it is not there.
    """
    return (*tokio.data_files(data), *c3o.data_files(data))


def _fleet(
    data: Path | None,
    *,
    name: str,
    target: str,
    bounds: tuple[float, float],
    platforms: Sequence[str] = FLEET,
) -> DriftSequence:
    runs = _runs(data)
    measured, unit = _targets(runs.measured(target), bounds)
    return DriftSequence(
        name,
        Columns((len(tokio.APPLICATIONS), 2, 2), 2),
        tuple(_platform(runs, each, measured) for each in platforms),
        unit,
    )


def _platform(runs: tokio.ProbeRuns, platform: str, measured: Floats) -> Segment:
    mine = runs.of(platform)
    points, place = runs.points, runs.point[mine]
    applications = points.applications[place].tolist()
    codes = [
        code_of("application", applications, tokio.APPLICATIONS),
        points.writes[place],
        points.many_files[place],
    ]
    processes = np.full(len(mine), np.log2(PROCESSES[platform]))
    log2_gib = points.log_gib[place] / np.log(2)
    numbers = [scaled(processes, *LOG2_PROCESSES), scaled(log2_gib, *LOG2_GIB)]
    return Segment(platform, _table(codes, numbers), measured[mine])


@cache
def _runs(data: Path | None) -> tokio.ProbeRuns:
    return tokio.load(data)


def _cori(data: Path | None) -> DriftSequence:
    probes = tokio.read_probes(tokio.data_files(data)[0], [START_TIME, *TELEMETRY])
    probes = probes.dropna(subset=list(TELEMETRY))
    codes = [
        code_of("application", [str(each).split("_")[0] for each in probes["application"]], PROBES),
        probes["writes"].to_numpy(),
        probes["many_files"].to_numpy(),
    ]
    numbers = [
        scaled(np.log1p(probes[name].to_numpy(dtype=np.float64)), 0.0, np.log1p(most))
        for name, most in TELEMETRY.items()
    ]
    bandwidth = probes[tokio.BANDWIDTH].to_numpy(dtype=np.float64)
    measured, unit = _targets(np.log(bandwidth), LOG_BANDWIDTH)
    table = _table(codes, numbers)
    period = np.searchsorted([each.timestamp() for each in CUTS], probes[START_TIME], side="right")
    segments = []
    for place, name in enumerate(("until March", "until August", "since")):
        there = np.flatnonzero(period == place)
        segments.append(Segment(name, table.at(there), measured[there]))
    return DriftSequence(
        "cori3", Columns((len(PROBES), 2, 2), len(TELEMETRY)), tuple(segments), unit
    )


def _c3o(data: Path | None) -> DriftSequence:
    files = dict(zip(c3o.JOBS, c3o.data_files(data), strict=True))
    segments, unit = [], 1.0
    for name in JOB_ORDER:
        runs = c3o.read_job(files[name], c3o.JOBS[name], is_median=False)
        families, sizes = zip(*(each.split(".") for each in runs.machines.tolist()), strict=True)
        codes = [
            code_of("machine family", families, FAMILIES),
            code_of("machine size", sizes, SIZES),
        ]
        measured, unit = _targets(runs.log_seconds, LOG_RUNTIME)
        segments.append(Segment(name, _table(codes, list(runs.features.T)), measured))
    columns = Columns((len(FAMILIES), len(SIZES)), c3o.FEATURES)
    return DriftSequence("c3o-job", columns, tuple(segments), unit)


def _table(codes: Sequence[NDArray[np.generic]], numbers: Sequence[Floats]) -> PublicTable:
    return PublicTable(
        np.stack([each.astype(np.int64) for each in codes], axis=1), np.stack(numbers, 1)
    )


def _targets(values: Floats, bounds: tuple[float, float]) -> tuple[Floats, float]:
    """Scaled targets, and what one of them is in natural log."""
    unit = (bounds[1] - bounds[0]) / 4
    return (values - (bounds[0] + bounds[1]) / 2) / unit, unit


FLEET_PERF, FLEET_REVERSED, FLEET_WALL = "fleet-perf", "fleet-perf reversed", "fleet-wall"
CORI, C3O_JOB = "cori3", "c3o-job"

_LOADERS: Mapping[str, Callable[[Path | None], DriftSequence]] = {
    FLEET_PERF: lambda data: _fleet(
        data, name=FLEET_PERF, target=tokio.BANDWIDTH, bounds=LOG_BANDWIDTH
    ),
    FLEET_REVERSED: lambda data: _fleet(
        data,
        name=FLEET_REVERSED,
        target=tokio.BANDWIDTH,
        bounds=LOG_BANDWIDTH,
        platforms=FLEET[::-1],
    ),
    FLEET_WALL: lambda data: _fleet(data, name=FLEET_WALL, target=tokio.WALL, bounds=LOG_WALL),
    CORI: _cori,
    C3O_JOB: _c3o,
}

SEQUENCES: tuple[str, ...] = tuple(_LOADERS)
