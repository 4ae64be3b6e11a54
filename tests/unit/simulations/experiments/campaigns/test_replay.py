"""Tests of the experiment on campaigns: held-out configurations, low errors, rows, targets."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedperf_campaigns.campaign.definition import Strategy
from fedperf_simulations.data.c3o import MOST_TRAINING_MEGABYTES, medians, of_job
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.campaigns import (
    DEVELOPMENT_SEEDS,
    EVERY,
    EXPERIMENT,
    OVERHEAD,
    RATIO,
    SEEDS,
    STAYS,
    ReplayedCampaign,
    campaign_errors,
    divided,
    stays_below,
)
from fedperf_simulations.harness.experiment import Row, Settings, Value
from tests.public_data import public_data

HEAD = "instance_count\tmachine_type\tslots\tmemory\tdata_size_MB\tk\tgross_runtime"


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """Write five synthetic jobs of 60 configurations, each with its own law and two repeats."""
    folder = tmp_path / "c3o-experiments"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for job in MOST_TRAINING_MEGABYTES:
        lines = [HEAD]
        for nodes in (2, 4, 6, 8, 10, 12):
            for size in (1000, 2000, 3000, 4000, 5000):
                for k in (3, 5):
                    for _ in range(2):
                        seconds = (30 + size * k / nodes / 10) * rng.lognormal(0, 0.02)
                        lines.append(f"{nodes}\tm\t{8 * nodes}\t1000\t{size}\t{k}\t{seconds}")
        (folder / f"{job}.tsv").write_text("\n".join(lines))
    return tmp_path


def test_campaign_grids_have_their_published_sizes() -> None:
    data = public_data("c3o-experiments")
    counts = {job: len(medians(of_job(data, job)).seconds) for job in MOST_TRAINING_MEGABYTES}
    assert counts == {"sort": 126, "grep": 162, "sgd": 180, "kmeans": 180, "pagerank": 282}


def test_campaign_medians_merge_repeats_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "c3o-experiments").mkdir()
    lines = [f"2\tm\t16\t1\t{size}\t3\t{took}" for size in (7, 5) for took in (9, 1, size)]
    (tmp_path / "c3o-experiments" / "sort.tsv").write_text("\n".join([HEAD, *lines]))
    found = medians(of_job(tmp_path, "sort"))
    assert list(found.table["data_size_MB"]) == [7.0, 5.0]
    assert found.seconds.tolist() == [7.0, 5.0]


def test_campaign_split_holds_out_a_quarter_disjoint_from_the_grid(made_up: Path) -> None:
    both = divided(made_up, "sort", np.random.default_rng(5))
    grid, asked = (
        set(zip(*part.table.values(), strict=True)) for part in (both.training, both.held_out)
    )
    assert (len(grid), len(asked)) == (45, 15)
    assert not grid & asked


@pytest.mark.slow
def test_campaign_errors_are_reported_at_requested_counts_with_machine_cost(
    made_up: Path,
) -> None:
    both = divided(made_up, "sort", np.random.default_rng(5))
    campaign = ReplayedCampaign.over(both.training, Strategy.ACTIVE, target=None, most=11, seed=0)
    assert len(set(campaign.rows)) == 11
    row = campaign_errors(both, campaign, (5, 11, 50))
    assert {"mape 5", "mape 11", "cost 5", "cost 11"} <= set(row)
    assert "mape 50" not in row
    machines = np.array(both.training.table["instance_count"], dtype=float)[list(campaign.rows[:5])]
    assert row["cost 5"] == pytest.approx(both.training.seconds[list(campaign.rows[:5])] @ machines)
    assert 0 < float(str(row["mape 11"])) < 15


@pytest.mark.parametrize(
    ("errors", "first"),
    [
        ({5: 9.0, 6: 4.0, 7: 4.9}, 6),
        ({5: 4.0, 6: 5.0, 7: 4.9}, 7),
        ({5: 4.0, 6: 4.0, 7: math.nan}, None),
        ({5: 4.0, 6: 4.0, 7: 6.0}, None),
        ({5: 4.0, 6: 4.0}, 5),
    ],
)
def test_stays_below_returns_first_count_without_a_later_rise(
    errors: Mapping[int, float], first: int | None
) -> None:
    assert stays_below(5.0, errors) == first


def test_campaign_experiment_with_missing_data_names_the_job(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="sort"):
        EXPERIMENT.run(Settings(seed=0, out=tmp_path / "out", data=tmp_path, quick=True))


@pytest.mark.slow
def test_quick_campaign_run_has_rows_and_charts_and_is_repeatable(
    made_up: Path, tmp_path: Path
) -> None:
    settings = Settings(seed=3, out=tmp_path / "out", data=made_up, quick=True)
    outcome = EXPERIMENT.run(settings)
    errors = [row for row in outcome.rows if row["what"] == "error"]
    assert len(errors) == 2 * 3 * 3
    assert [path.is_file() for path in outcome.plots] == [True, True]
    assert EXPERIMENT.run(settings).rows == outcome.rows


def kept(settings: Settings, errors: Mapping[tuple[str, Strategy], float]) -> None:
    """Store cells of a whole run in which each configuration lowers the errors by one."""
    for job in MOST_TRAINING_MEGABYTES:
        for strategy in Strategy:
            start = errors.get((job, strategy), 30.0)
            row: dict[str, Value] = {"stopped at": None, "slowest step": 0.1}
            row |= {f"mape {number}": max(start - number, 1.0) for number in EVERY}
            row |= {f"cost {number}": 10.0 * number for number in EVERY}
            if strategy is Strategy.ACTIVE:
                row |= {"stopped at": 20, "mape where stopped": 1.5, "cost where stopped": 200.0}
            for seed in range(max(SEEDS, DEVELOPMENT_SEEDS)):
                settings.cell(f"{job}-{strategy}-{seed}", partial(dict, row))


def test_campaign_targets_use_first_count_with_persistently_low_active_error(
    made_up: Path, tmp_path: Path
) -> None:
    settings = Settings(seed=0, out=tmp_path / "out", data=made_up)
    for part in ("added", "slowdown"):
        settings.cell(part, partial(dict, {"job": part, "what": OVERHEAD, "value": 0.75}))
    kept(settings, {("sort", Strategy.ACTIVE): 20.0, ("grep", Strategy.ACTIVE): 26.0})
    outcome = EXPERIMENT.run(settings)
    found = {target.what.split(":")[0]: (target.value, target.holds) for target in outcome.targets}
    assert found == {"sort": (16.0, True), "grep": (22.0, False), "profiler": (1.5, True)}

    def of_job(what: str) -> Row:
        [row] = [
            row
            for row in outcome.rows
            if row["job"] == "sort"
            and str(row["what"]).startswith(what)
            and row.get("strategy") in {None, "active"}
        ]
        return row

    assert of_job(STAYS)["mape"] == 4.0
    assert of_job(RATIO)["configurations"] == round(16 / 26, 2)
    assert of_job("stopped by the rule, 10 of 10")["mape"] == 1.5
