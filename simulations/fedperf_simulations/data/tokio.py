"""One year of I/O probes on six platforms: six organizations that share what files cost.

A run is an application that reads or writes so many bytes on a platform, into one file or many.
Runs of the same application, direction, layout and size are at one public point: which probes run
is public, their run times are secret. A run is a workload here, which is NOT what fedperf promises.
Rows on workload level take the mean over all runs of a point as one workload.

Public, and constants of this module: the platforms' peak bandwidths, the physics prior and the
kernel. The kernel's numbers were set by hand, after looking at the errors of platforms that are
evaluated here. These are development figures.

Source: NERSC/tokio-abcutils (BSD); Lockwood et al., "A Year in the Life of a Parallel File
System", SC18, whose filter (more than 1 GiB) is applied.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedperf_server.inference.gaussian_process import GaussianPosterior
from fedperf_simulations.data.datasets import public_files

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Texts = NDArray[np.str_]

FOLDER = "tokio-abc"
FILES = (
    "cori-summaries_2017-02-14-2018-02-15.csv.gz",
    "edison-summaries_2017-02-14-2018-02-15.csv.gz",
    "mira-summaries_2017-02-14_2018-02-15.csv.gz",
)

PEAKS: Mapping[str, float] = {
    "cori-haswell": 700.0,
    "cori-knl": 700.0,
    "edison-scratch1": 48.0,
    "edison-scratch2": 48.0,
    "edison-scratch3": 72.0,
    "mira": 90.0,
}
"""Platforms and their published peak bandwidth, GB/s."""

APPLICATIONS = ("dbscan_read", "hacc_io_read", "hacc_io_write", "ior", "vpicio_uni")

WALL, BANDWIDTH = "darshan_walltime", "darshan_agg_perf_by_slowest_posix"
"""The predicted quantities: seconds, and MiB/s."""

START_SECONDS, USABLE = 20.0, 0.25
"""The physics prior: startup, and the share of the peak that a job gets."""

RECORD_VARIANCE = 0.2
"""(log)^2 by which runs of one point differ."""

LEVEL, PLATFORM, LINE, KIND, OWN_KIND, SMOOTH, OWN_SMOOTH, POINT = (
    0.5,
    0.4,
    0.1,
    0.15,
    0.2,
    0.1,
    0.2,
    0.1,
)
"""Variances of the kernel, (log)^2: one for all, per platform, slopes over size and peak, per
kind of access, per kind and platform, smooth over size, the same per platform, per point."""

_SIZE_STEP = 0.1
"""Step in log2 GiB. Closer sizes are one point."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Probes that were run, one row each.

    Attributes:
        platforms: names, [points].
        applications: names, [points].
        writes: direction, bool [points].
        many_files: layout, bool [points].
        log_gib: natural log of the GiB moved, [points].
    """

    platforms: Texts
    applications: Texts
    writes: NDArray[np.bool_]
    many_files: NDArray[np.bool_]
    log_gib: Floats

    def __len__(self) -> int:
        return len(self.platforms)

    @property
    def log_peak(self) -> Floats:
        """Natural log of the platform's peak, GiB/s, [points]."""
        return np.log([PEAKS[each] for each in self.platforms.tolist()])

    def features(self) -> Floats:
        """Features for predictors: application (one-hot), direction, layout, log GiB."""
        applications = self.applications[:, None] == np.array(APPLICATIONS)
        return np.column_stack([applications, self.writes, self.many_files, self.log_gib]).astype(
            np.float64
        )

    def physics(self, target: str) -> Floats:
        """Return the physics prior, log seconds or log MiB/s, [points]."""
        if target == WALL:
            reading = np.exp(self.log_gib - self.log_peak) / USABLE
            return np.asarray(np.log(START_SECONDS + reading))
        return self.log_peak + math.log(1024 * USABLE)

    def covariance(self) -> Floats:
        """Return the kernel, [points, points]."""
        size = (self.log_gib - math.log(1000)) / math.log(8)
        share = (self.log_gib - self.log_peak - math.log(20)) / math.log(8)
        peak = (self.log_peak - math.log(150)) / math.log(4)
        platform = _same(self.platforms)
        access = _same(self.writes) * _same(self.many_files)
        kind = access * _same(self.applications)
        lines = sum(np.outer(each, each) for each in (size, share, peak))
        kinds = _same(self.applications) + _same(self.writes) + _same(self.many_files)
        near = np.exp(-(_squares(share) + _squares(size)) / 2)
        return np.asarray(
            LEVEL
            + PLATFORM * platform
            + LINE * lines
            + KIND * (kinds + access + kind)
            + OWN_KIND * platform * (kind + access + _same(self.applications))
            + SMOOTH * near * (1 + kind) / 2
            + OWN_SMOOTH * platform * np.exp(-_squares(size) / 2)
            + POINT * np.eye(len(self))
        )

    def prior(self, target: str) -> GaussianPosterior:
        """Return the public prior over all points: physics and kernel, without private data."""
        return GaussianPosterior(self.physics(target), self.covariance())


@dataclass(frozen=True, slots=True, eq=False)
class ProbeRuns:
    """All runs of all platforms.

    Attributes:
        points: what was run.
        point: of each run, int64 [runs].
        log_wall: natural log seconds, [runs].
        log_bandwidth: natural log MiB/s, [runs].
        ended: seconds since 1970, [runs].
        files: what was read.
    """

    points: Points
    point: Positions
    log_wall: Floats
    log_bandwidth: Floats
    ended: Floats
    files: tuple[Path, ...]

    def measured(self, target: str) -> Floats:
        """Return the measured target, natural log, [runs]."""
        return self.log_wall if target == WALL else self.log_bandwidth

    def of(self, platform: str) -> Positions:
        """Return the runs of one platform, [its runs]."""
        return np.flatnonzero(self.points.platforms[self.point] == platform).astype(np.int64)


def load(data: Path | None) -> ProbeRuns:
    """Read the runs from the folder of public data sets.

    Raises:
        MissingDataError: there is no folder, or the files are not in it.
    """
    files = data_files(data)
    table = pd.concat([read_probes(path) for path in files], ignore_index=True)
    keys = ["platform", "application", "writes", "many_files", "log2_gib"]
    groups = table.groupby(keys)
    distinct = groups.size().reset_index()
    points = Points(
        distinct["platform"].to_numpy(dtype=str),
        distinct["application"].to_numpy(dtype=str),
        distinct["writes"].to_numpy(),
        distinct["many_files"].to_numpy(),
        distinct["log2_gib"].to_numpy() * math.log(2),
    )
    return ProbeRuns(
        points,
        np.asarray(groups.ngroup(), np.int64),
        np.log(table[WALL].to_numpy(dtype=np.float64)),
        np.log(table[BANDWIDTH].to_numpy(dtype=np.float64)),
        table["ended"].to_numpy(dtype=np.float64),
        files,
    )


def data_files(data: Path | None) -> tuple[Path, ...]:
    """Return the files of the runs in the folder of public data sets, Cori's first.

    Raises:
        MissingDataError: there is no folder, or the files are not in it.
    """
    return public_files(data, *(f"{FOLDER}/{name}" for name in FILES))


def read_probes(path: Path, more: Sequence[str] = ()) -> pd.DataFrame:
    """Return the runs of one file that moved enough, one row each.

    Args:
        path: of the file.
        more: columns of it that are wanted as they are.
    """
    raw = pd.read_csv(path, low_memory=False)
    raw = raw[raw["darshan_total_gibs_posix"] > 1]
    writes = raw["darshan_biggest_write_api"] == "posix"
    most = raw["darshan_biggest_write_api_files"].where(
        writes, raw["darshan_biggest_read_api_files"]
    )
    return pd.DataFrame(
        {
            "platform": _platforms(raw),
            "application": raw["darshan_app"].str.rsplit("/", n=1).str[-1],
            "writes": writes,
            "many_files": most > 1,
            "log2_gib": (np.log2(raw["darshan_total_gibs_posix"]) / _SIZE_STEP).round()
            * _SIZE_STEP,
            "ended": raw["_datetime_end"],
            WALL: raw[WALL],
            BANDWIDTH: raw[BANDWIDTH],
            **{name: raw[name] for name in more},
        }
    )


def _platforms(raw: pd.DataFrame) -> list[str]:
    """Cori by its kind of node, for all file systems. Edison by file system."""
    nodes = {512: "cori-haswell", 4096: "cori-knl", 16384: "mira"}
    return [
        nodes.get(int(processes), f"edison-{system}")
        for processes, system in zip(raw["darshan_nprocs"], raw["_file_system"], strict=True)
    ]


def _same(values: NDArray[np.generic]) -> Floats:
    return np.asarray(values[:, None] == values, dtype=np.float64)


def _squares(values: Floats) -> Floats:
    return np.asarray((values[:, None] - values) ** 2)
