"""A synthetic tabular job with a known law, for tests of table predictors."""

import numpy as np

from fedperf_campaigns.tables.layout import Table, TableLayout
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.training_data import ScaleAndSize
from fedperf_client.prediction.prediction import Floats

NODES = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
MEGABYTES = (1000.0, 1500.0, 2000.0, 3000.0, 4000.0)
MACHINES = ("slow", "fast")
_SPEED = {"slow": 1.0, "fast": 2.0}


def grid() -> Table:
    """Return 60 rows: every number of nodes with every size on both machine types."""
    rows = [(n, m, t) for n in NODES for m in MEGABYTES for t in MACHINES]
    return {
        "nodes": [row[0] for row in rows],
        "megabytes": [row[1] for row in rows],
        "machine": [row[2] for row in rows],
    }


def law(table: Table) -> Floats:
    """Return log seconds: start-up, work divided by nodes, and overhead per node."""
    nodes = np.array(table["nodes"], dtype=np.float64)
    megabytes = np.array(table["megabytes"], dtype=np.float64)
    speed = np.array([_SPEED[str(each)] for each in table["machine"]])
    return np.asarray(np.log(20 + 0.3 * megabytes / (nodes * speed) + 1.5 * nodes))


def layout() -> TableLayout:
    """Return the layout of the grid."""
    return TableLayout.of(grid(), scale="nodes", size="megabytes")


def samples() -> EncodedQueries:
    """Return the encoded grid."""
    return layout().samples(grid())


def places(of: EncodedQueries) -> ScaleAndSize:
    """Return scale and size of queries in that layout."""
    found = layout()
    return ScaleAndSize(of.features[:, found.scale_feature], of.features[:, found.size_feature])


def noisy(seed: int = 0, sd: float = 0.03) -> Floats:
    """Return log seconds of one measurement of the grid."""
    truth = law(grid())
    return truth + sd * np.random.default_rng(seed).standard_normal(len(truth))
