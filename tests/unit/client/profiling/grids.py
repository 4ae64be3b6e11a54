"""Synthetic grids of configurations and their run times."""

import math
from itertools import product

from fedperf_campaigns.campaign.definition import Strategy
from fedperf_campaigns.campaign.sampling import GridSampler, SamplingGrid
from fedperf_campaigns.tables.layout import Table

MACHINES = (2, 4, 6, 8, 10, 12)
SIZES = (1000.0, 2000.0, 4000.0, 8000.0)
NODE_TYPES = ("c4", "m4", "r4")
NONE_FAILED: frozenset[int] = frozenset()


def grid() -> Table:
    """Return 72 configurations: machines x size x node type."""
    rows = list(product(MACHINES, SIZES, NODE_TYPES))
    machines, sizes, types = zip(*rows, strict=True)
    return {"machines": machines, "size": sizes, "type": types}


def seconds(table: Table, row: int) -> float:
    """Return seconds: start-up plus work divided by machines, with slower node types."""
    machines, size = float(table["machines"][row]), float(table["size"][row])
    return 20 + size / machines / 10 * {"c4": 1.0, "m4": 1.3, "r4": 1.5}[str(table["type"][row])]


def made(
    table: Table,
    strategy: str,
    *,
    target: float | None = None,
    patience: int = 3,
    most: int | None = None,
    seed: int = 0,
) -> GridSampler:
    """Return a sampler for the table."""
    return GridSampler(
        SamplingGrid.of(table, scale="machines", size="size"),
        Strategy(strategy),
        target_mape=target,
        patience=patience,
        max_configurations=most,
        seed=seed,
    )


def campaign(choosing: GridSampler, table: Table, *, most: int = 10**9) -> dict[int, float]:
    """Return all measurements until the sampler stops, or `most` of them."""
    measured: dict[int, float] = {}
    while len(measured) < most and (row := choosing.next(measured, NONE_FAILED)) is not None:
        measured[row] = seconds(table, row)
    return measured


def corner_rows(table: Table) -> list[set[int]]:
    """Return the rows at each of the four corners of machines x size."""
    ends = [(min(MACHINES), max(MACHINES)), (min(SIZES), max(SIZES))]
    return [
        {
            row
            for row in range(len(table["size"]))
            if math.isclose(float(table["machines"][row]), machines)
            and math.isclose(float(table["size"][row]), size)
        }
        for machines, size in product(*ends)
    ]
