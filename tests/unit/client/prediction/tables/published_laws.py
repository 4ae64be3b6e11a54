"""Jobs drawn from published laws of run time: Ernest, Universal Scalability Law, a cache.

Configurations are machines x sizes, in some jobs with a categorical or another numeric column.
Noise is 2 to 15 %. Sources of the laws: Venkataraman et al., NSDI 2016 (Ernest); Gunther 1993
(USL, which includes Amdahl's law).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from fedperf_campaigns.tables.layout import Table, TableLayout
from fedperf_campaigns.tables.predictor import MeasuredTable
from fedperf_client.prediction.prediction import Floats

MACHINES = ((2, 4, 6, 8, 10, 12), (1, 2, 4, 8, 16, 32), (4, 8, 12, 16, 24, 32, 48, 64))
MOST_ROWS = 72
WORDS = ("a", "b", "c")


@dataclass(frozen=True, slots=True, eq=False)
class DrawnJob:
    """A job with one execution of each of its configurations.

    Attributes:
        table: columns `workers`, `rows` and possibly one more.
        seconds: wall time of each row.
    """

    table: Table
    seconds: Floats

    @property
    def layout(self) -> TableLayout:
        """Layout of all configurations, as a campaign declares them."""
        return TableLayout.of(self.table, scale="workers", size="rows")

    def part(self, rows: list[int]) -> Table:
        """Return these rows of the table."""
        return {name: [values[row] for row in rows] for name, values in self.table.items()}

    def measured(self, rows: list[int]) -> MeasuredTable:
        """Return these rows with their measured times."""
        return MeasuredTable(self.layout, self.part(rows), self.seconds[rows])


def drawn_job(seed: int) -> DrawnJob:
    """Return the job that belongs to a seed."""
    rng = np.random.default_rng([25, seed])
    further = rng.integers(4)  # machines alone; with sizes; with categories; with numbers
    steps = rng.choice([1.5, 2.0, 4.0], rng.integers(2, 6)) if further else np.ones(0)
    rows = 10 ** rng.uniform(3, 8) * np.cumprod([1.0, *steps])
    more: tuple[float | str, ...] = (1.0,)
    if further > 1:
        more = WORDS if further == 2 else (1.0, 2.0, 4.0)
    grid = list(product(MACHINES[rng.integers(len(MACHINES))], rows.tolist(), more))
    grid = [grid[row] for row in sorted(rng.permutation(len(grid))[:MOST_ROWS])]
    machines, size = (np.array([float(each[place]) for each in grid]) for place in (0, 1))
    log_seconds = np.log(_law(machines, size, rng)) + _third(grid, rng)
    log_seconds += np.log(rng.uniform(5, 2000))
    noise = np.exp(rng.uniform(np.log(0.02), np.log(0.15)))
    table: dict[str, list[float | str]] = {"workers": machines.tolist(), "rows": size.tolist()}
    if further > 1:
        table["machine_type" if further == 2 else "k"] = [each[2] for each in grid]
    seconds = np.exp(log_seconds + noise * rng.standard_normal(len(grid)))
    return DrawnJob(table, seconds)


def _law(machines: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
    """Return relative seconds, about 1 at the middle of machines and rows."""
    size = (rows / np.exp(np.log(rows).mean())) ** np.clip(rng.normal(0.95, 0.15), 0.4, 1.6)
    apart = machines / np.exp(np.log(machines).mean())
    work = rng.uniform(0.5, 0.98)
    fixed, gathered, crosstalk = (1 - work) * rng.dirichlet([1, 1, 1])
    logs = np.log(machines) / max(np.log(machines).mean(), 0.3)
    match rng.integers(3):
        case 0:
            return np.asarray(fixed + work * size / apart + gathered * logs + crosstalk * apart)
        case 1:
            serial, kappa = np.exp(rng.uniform(np.log([3e-3, 1e-5]), np.log([0.4, 5e-3])))
            return np.asarray(size * (serial + (1 - serial) / machines + kappa * (machines - 1)))
        case _:
            load = np.log(rows / machines)
            edge, more = rng.uniform(*np.quantile(load, [0.2, 0.8])), rng.uniform(0.5, 3.0)
            spilled = 1 + more / (1 + np.exp((edge - load) / 0.2))
            return np.asarray(fixed + work * size / apart * spilled + gathered * logs)


def _third(grid: list[tuple[int, float, float | str]], rng: np.random.Generator) -> Floats:
    speeds = dict(zip(WORDS, rng.normal(0, 0.3, len(WORDS)).tolist(), strict=True))
    power = rng.uniform(-0.2, 1.0)
    return np.array(
        [speeds[each] if isinstance(each, str) else power * np.log(each) for *_, each in grid]
    )
