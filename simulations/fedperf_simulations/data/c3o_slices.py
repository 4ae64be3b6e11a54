"""The 18 slices of C3O (`c3o`) as tables of their own columns, every repeat in the files' order.

The 48 published runs and the job `sort` are no part of them, so nothing is judged by these.
The data carry no licence: they are read from the folder of public data sets and never part of
the project. Source: dos-group/c3o-experiments (Will et al. 2020).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedperf_campaigns.tables.layout import Table, TableLayout
from fedperf_client.prediction.prediction import Floats
from fedperf_simulations.data.c3o import JOBS, PUBLISHED_SIZE
from fedperf_simulations.data.c3o_scenarios import NODES, SIZE, Executions, medians, of_job

ScaleAndSize = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class JobSlice:
    """One slice.

    Attributes:
        name: as `c3o` calls it: job, machine type, size of its input.
        job: its job.
        configurations: one row each, with the median time of its repeats.
        repeats: seconds of each configuration, in the order of the file.
    """

    name: str
    job: str
    configurations: Executions
    repeats: tuple[Floats, ...]

    def __len__(self) -> int:
        return len(self.repeats)

    @property
    def layout(self) -> TableLayout:
        """Its columns: the configurations are no secret, their run times are."""
        return TableLayout.of(self.configurations.table, scale=NODES, size=SIZE)

    @property
    def nodes(self) -> Floats:
        """Machines of each configuration."""
        return np.array([float(each) for each in self.configurations.table[NODES]])

    def inputs(self) -> list[ScaleAndSize]:
        """The configurations of each input: all columns are the same but the machines."""
        found: dict[tuple[float | str, ...], list[int]] = defaultdict(list)
        table = self.configurations.table
        others = [values for name, values in table.items() if name != NODES]
        for place, row in enumerate(zip(*others, strict=True)):
            found[row].append(place)
        return [np.array(each) for each in found.values()]

    def rows(self, places: ScaleAndSize) -> Table:
        """The columns of those configurations."""
        table = self.configurations.table
        return {name: [values[place] for place in places] for name, values in table.items()}


def slices(data: Path | None) -> tuple[JobSlice, ...]:
    """All slices, sorted by their names.

    Raises:
        MissingDataError: there is no folder, or a file is not in it.
    """
    found = (each for job in JOBS.values() if job.cut for each in _of_job(data, job.name, job.cut))
    return tuple(sorted(found, key=lambda each: each.name))


def _of_job(data: Path | None, job: str, cut: str) -> Iterator[JobSlice]:
    executions = of_job(data, job)
    machines = np.array([str(each) for each in executions.table["machine_type"]])
    sizes = np.array([float(each) for each in executions.table[cut]])
    for machine in dict.fromkeys(machines.tolist()):
        cell = machines == machine
        if len(medians(executions.where(cell)).seconds) <= PUBLISHED_SIZE:
            continue
        for size in dict.fromkeys(sizes[cell].tolist()):
            chosen = executions.where(cell & (sizes == size))
            yield JobSlice(
                f"{job} {machine} {size:.3g}", job, medians(chosen), tuple(_repeats(chosen))
            )


def _repeats(executions: Executions) -> Iterator[Floats]:
    """In the order of `medians`."""
    found: dict[tuple[float | str, ...], list[float]] = defaultdict(list)
    rows = zip(*executions.table.values(), strict=True)
    for row, seconds in zip(rows, executions.seconds.tolist(), strict=True):
        found[row].append(seconds)
    yield from (np.array(each) for each in found.values())
