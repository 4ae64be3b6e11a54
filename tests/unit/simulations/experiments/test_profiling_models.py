"""Tests of the experiment on configurations that never ran: scenarios, rows and targets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from fedperf_simulations.data.c3o import (
    MOST_TRAINING_MEGABYTES,
    NODES,
    SCENARIOS,
    SIZE,
    RequestedRange,
    Scenario,
    files,
    parts,
)
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.profiling_models import (
    EXPERIMENT,
    ORIGINAL,
    ORIGINAL_ERRORS,
    OURS,
    RULE,
    SEEDS,
)
from fedperf_simulations.harness.experiment import Row, Settings, conduct
from fedperf_simulations.harness.verification import differences
from tests.public_data import public_data


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """Write five synthetic jobs, each with its own law and two repeats."""
    folder = tmp_path / "c3o-experiments"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for job, limit in MOST_TRAINING_MEGABYTES.items():
        lines = ["instance_count\tmachine_type\tslots\tmemory\tdata_size_MB\tk\tgross_runtime"]
        for nodes in (2, 4, 6, 8, 10, 12):
            for share in (0.5, 0.7, 1.0, 1.5, 2.0):
                for repeat in range(2):
                    size, k = share * limit, 3 + (nodes + repeat) % 3
                    seconds = (30 + size * k / nodes / 10) * rng.lognormal(0, 0.02)
                    lines.append(f"{nodes}\tm\t{8 * nodes}\t1000\t{size}\t{k}\t{seconds}")
        (folder / f"{job}.tsv").write_text("\n".join(lines))
    return tmp_path


def test_profiling_scenarios_are_fifteen_with_a_published_error_each() -> None:
    assert len({each.key for each in SCENARIOS}) == len(SCENARIOS) == 15
    assert all(ORIGINAL_ERRORS[each.requested][each.job] > 0 for each in SCENARIOS)


@pytest.mark.parametrize("asked", list(RequestedRange))
def test_profiling_held_out_configurations_are_disjoint_from_training(
    made_up: Path, asked: RequestedRange
) -> None:
    both = parts(made_up, Scenario("sort", asked))
    column = SIZE if asked is RequestedRange.SIZE_BEYOND else NODES
    known, held = (set(part.table[column]) for part in (both.training, both.held_out))
    assert min(len(known), len(held)) > 0
    assert not known & held
    assert len(both.training.seconds) + len(both.held_out.seconds) == 60
    assert {"slots", "memory", "gross_runtime"}.isdisjoint(both.training.table)


def test_profiling_scenarios_have_their_published_training_sizes() -> None:
    data = public_data("c3o-experiments")
    known = [len(parts(data, each).training.seconds) // 5 for each in SCENARIOS]
    assert known == [84, 84, 72, 108, 108, 102, 120, 120, 108, 120, 120, 84, 188, 188, 162]


def test_profiling_experiment_with_missing_data_names_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        files(None)
    with pytest.raises(MissingDataError, match="sort"):
        files(tmp_path)


@pytest.mark.slow
def test_quick_profiling_run_has_one_job_and_targets_from_its_rows(
    made_up: Path, tmp_path: Path
) -> None:
    settings = Settings(seed=3, out=tmp_path / "out", data=made_up, quick=True)
    outcome = EXPERIMENT.run(settings)
    assert [row["asked"] for row in outcome.rows] == [each.value for each in RequestedRange]
    assert all(0 < float(str(row[OURS])) < 15 for row in outcome.rows)
    values = {target.what: target.value for target in outcome.targets}
    assert values["mean of all, MAPE %"] == pytest.approx(
        np.mean([float(str(row[OURS])) for row in outcome.rows])
    )
    assert values["scenarios of 3 better than the original's figures"] == sum(
        float(str(row[OURS])) < float(str(row[ORIGINAL])) for row in outcome.rows
    )
    assert EXPERIMENT.run(replace(settings, stored_results=settings.out)).rows == outcome.rows


@pytest.mark.slow
def test_verification_detects_an_edited_number_in_a_cell(made_up: Path, tmp_path: Path) -> None:
    settings = Settings(seed=3, out=tmp_path / "out", data=made_up, quick=True)
    summary = conduct(EXPERIMENT, settings)
    assert list(differences(EXPERIMENT, settings.out, data=made_up)) == []
    path = min((settings.out / "cells").iterdir())
    figure = orjson.loads(path.read_bytes())["rows"][0][OURS]
    path.write_text(path.read_text().replace(str(figure), "12.3"))
    [line] = differences(EXPERIMENT, settings.out, data=made_up)
    assert line == f"cell {path.stem}: edited: its content is not what was written"
    cases = summary["cases"]
    assert isinstance(cases, list)
    assert [case["draw"] for case in cases] == [0, 0, 0]


def test_profiling_experiment_reuses_finished_cells(made_up: Path, tmp_path: Path) -> None:
    settings = Settings(seed=0, out=tmp_path / "out", data=made_up)
    kept: Row = {OURS: 5.0, RULE: 9.0, "mixed": "m", "rule chose": "c", "cpu seconds": 1.0}
    for scenario in SCENARIOS:
        for seed in range(SEEDS):
            settings.cell(f"{scenario.key}-{seed}", lambda: kept)
    outcome = EXPERIMENT.run(settings)
    assert len(outcome.rows) == 15
    assert [row[RULE] for row in outcome.rows] == [9.0] * 15
    holds = {target.what: target.holds for target in outcome.targets}
    assert holds["scenarios of 15 better than the published rule"]
    assert all(holds.values())
