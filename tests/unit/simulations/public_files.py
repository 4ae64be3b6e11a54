"""Synthetic files in the formats of public data sets: small, with known laws."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fedperf_simulations.data import tokio
from fedperf_simulations.data.c3o import FOLDER, JOBS, PublicJob

NODES = (2, 4, 6, 8, 10, 12)
REPEATS = 5
NOISE = 0.03
"""Standard deviation of repeats, in log seconds."""


def with_c3o(data: Path, *, machine: str = "m4") -> Path:
    """Write two slices of 24 configurations for four jobs, the published ones and `sort`."""
    rng = np.random.default_rng(0)
    (data / FOLDER).mkdir(parents=True)
    for name, job in JOBS.items():
        head = ["instance_count", "machine_type", "slots", "memory", "data_size_MB"]
        lines = ["\t".join([*head, *job.parameters, "gross_runtime"])]
        for values in _configurations(job, machine):
            nodes, megabytes = float(values[0]), float(values[4])
            seconds = 40 + 2.0 * megabytes / nodes ** (0.9 if name == "grep" else 0.7)
            for repeat in sorted(seconds * np.exp(NOISE * rng.standard_normal(REPEATS))):
                lines.append("\t".join([*values, f"{repeat:.3f}"]))
        (data / FOLDER / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return data


def _configurations(job: PublicJob, machine: str) -> Iterator[list[str]]:
    low, high = job.megabytes
    middle = (low + high) / 2
    others = {name: np.linspace(*bounds, 4) for name, bounds in job.parameters.items()}
    cut = job.cut or next(iter(others))
    varied = [name for name in others if name != cut][-1]

    def row(nodes: int, where: str, megabytes: float, **chosen: float) -> list[str]:
        values = {name: others[name][-1] for name in others} | chosen
        told = [str(nodes), where, str(8 * nodes), "64000", f"{megabytes:.0f}"]
        return [*told, *(f"{each:g}" for each in values.values())]

    for size, megabytes in ((others[cut][0], low), (others[cut][-1], middle)):
        for nodes, value in product(NODES, others[varied].tolist()):
            yield row(nodes, machine, megabytes, **{cut: size, varied: value})
    for nodes in NODES:  # a published configuration
        yield row(nodes, "r4", high)


def with_tokio(data: Path, *, days: int = 40) -> Path:
    """Write one probe per day of two sizes and directions on each platform."""
    rng = np.random.default_rng(1)
    (data / tokio.FOLDER).mkdir(parents=True)
    platforms = {
        0: [("scratch", 512), ("scratch", 4096)],
        1: [(f"scratch{each}", 256) for each in (1, 2, 3)],
        2: [("fs", 16384)],
    }
    for place, name in enumerate(tokio.FILES):
        rows = [
            {
                "darshan_total_gibs_posix": gib,
                "darshan_biggest_write_api": api,
                "darshan_biggest_write_api_files": 1,
                "darshan_biggest_read_api_files": 100,
                "darshan_app": "bin/hacc_io_read",
                "_datetime_end": 86_400 * day + hour,
                tokio.WALL: float(gib * np.exp(0.4 * rng.standard_normal())),
                tokio.BANDWIDTH: 1000.0,
                "darshan_nprocs": processes,
                "_file_system": system,
            }
            for day in range(days)
            for hour, ((system, processes), gib, api) in enumerate(
                product(platforms[place], (64, 1024), ("posix", "none"))
            )
        ]
        pd.DataFrame(rows).to_csv(data / tokio.FOLDER / name, index=False, compression="gzip")
    return data
