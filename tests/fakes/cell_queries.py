"""Linear queries of directed slots, for tests of client and server."""

import numpy as np
from numpy.typing import NDArray

from fedperf_shared.releases.basis import BASIS_VERSION, CELLS
from fedperf_shared.releases.linear_queries import QUERY_DIRECTIONS, CellQuery, public_design
from fedperf_shared.releases.release import ReleaseKind, SlotKey

DIRECTED = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 1)


def make_cell_query(
    slot: SlotKey = DIRECTED,
    *,
    version: int = 1,
    reference_version: int = 1,
    clip: float = 1.5,
    center: float = 0.0,
    seed: int = 0,
) -> CellQuery:
    """Return a query with random directions that use the full norm in every cell."""
    clips = np.full(CELLS, clip)
    return CellQuery(
        slot=slot,
        version=version,
        basis_version=BASIS_VERSION,
        reference_version=reference_version,
        center=np.full(CELLS, center),
        design=public_design(random_directions(clips, seed), clips),
    )


def random_directions(clips: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    drawn = np.random.default_rng(seed).standard_normal((QUERY_DIRECTIONS, CELLS))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=0) / clips * (1 - 1e-9))
