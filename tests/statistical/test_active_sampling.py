"""Two-sided: active sampling beats random sampling on grids that follow a law, and only there."""

import numpy as np
import pytest

from fedperf_campaigns.campaign.sampling import SamplingGrid
from fedperf_campaigns.tables.layout import Table
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.prediction import Floats, QueryRegime
from fedperf_simulations.baselines.table_mixture import mixed_for
from tests.unit.client.profiling.grids import NONE_FAILED, made

pytestmark = pytest.mark.statistical

SEEDS = 8
COUNT = 14


def job(seed: int) -> Table:
    """Return 240 configurations, of which few are large or make many passes."""
    rng = np.random.default_rng([7, seed])
    rows = 240
    return {
        "machines": rng.choice([2.0, 4, 6, 8, 10, 12], rows).tolist(),
        "size": (1000 * 2 ** (5 * rng.beta(0.6, 2.0, rows))).tolist(),
        "passes": rng.choice([1.0, 5, 25, 100], rows, p=[0.5, 0.3, 0.15, 0.05]).tolist(),
        "type": rng.choice(["c4", "m4"], rows).tolist(),
    }


def lawful(table: Table) -> Floats:
    machines, size, passes = (np.array(table[e], float) for e in ("machines", "size", "passes"))
    slower = np.where(np.array(table["type"]) == "m4", 1.3, 1.0)
    return np.asarray(30 + slower * size * (1 + passes / 10) / machines / 20 + 2 * machines)


def error(table: Table, truth: Floats, strategy: str, seed: int) -> float:
    """Return the mean error over the whole grid after `COUNT` configurations."""
    choosing = made(table, strategy, seed=seed)
    measured: dict[int, float] = {}
    for _ in range(COUNT):
        row = choosing.next(measured, NONE_FAILED)
        assert row is not None
        measured[row] = float(truth[row])
    grid = SamplingGrid.of(table, scale="machines", size="size")
    rows = np.array(list(measured), np.int64)
    known = TrainingSet(
        grid.samples.take(rows),
        np.log(truth[rows]),
        type(grid.places)(grid.places.scale[rows], grid.places.size[rows]),
        np.arange(len(rows)),
    )
    _, fitted = mixed_for(QueryRegime.SEEN, known.places, known, grid.learners)
    return float(np.mean(np.abs(np.exp(fitted(grid.samples)) / truth - 1)))


@pytest.mark.slow
def test_active_sampling_has_lower_error_than_random_on_structured_jobs() -> None:
    active, random = (
        np.array([error(job(seed), lawful(job(seed)), each, seed) for seed in range(SEEDS)])
        for each in ("active", "random")
    )
    assert active.mean() < 0.8 * random.mean()
    assert np.sum(active < random) >= SEEDS - 2


@pytest.mark.slow
def test_active_sampling_matches_random_on_jobs_without_structure() -> None:
    chance = [np.random.default_rng([1, seed]).lognormal(4, 0.5, 240) for seed in range(SEEDS)]
    active, random = (
        np.array([error(job(seed), chance[seed], each, seed) for seed in range(SEEDS)])
        for each in ("active", "random")
    )
    assert 0.75 < active.mean() / random.mean() < 1.33
