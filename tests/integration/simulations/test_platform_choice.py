"""The experiment on platform choice, on a small comparison set measured by the test."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedperf_simulations.corpus.comparison_set import ComparisonSettings
from fedperf_simulations.corpus.comparisons import FOLDS, read_cases
from fedperf_simulations.corpus.measured_log import Role, compact
from fedperf_simulations.corpus.measurement import measure
from fedperf_simulations.corpus.workload_draws import MeasuringSettings
from fedperf_simulations.data import datasets
from fedperf_simulations.experiments.platform_choice.experiment import EXPERIMENT
from fedperf_simulations.experiments.platform_choice.models import CHOICE, ROBUST
from fedperf_simulations.harness.experiment import Settings, conduct
from fedperf_simulations.harness.verification import differences

SMALL = ComparisonSettings(  # seed whose exhaustive cases have few assignments
    seed=19, workloads=6, mixed=1, capped_share=0.0, spark_share=0.0, series=1, exhaustive=1,
    most_rows=1_000, repeats=0,
)  # fmt: skip
FURTHER = replace(SMALL, seed=5, series=0, exhaustive=0)
HISTORY = MeasuringSettings(seed=4, workloads=8, comparisons=0, most_rows=1_000, repeats=0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory laid out like those of the measured corpus."""
    directory = tmp_path_factory.mktemp("measured")
    for design, path in (
        (HISTORY, directory / "measured.parquet"),
        (SMALL, directory / datasets.COMPARISONS / "measured.parquet"),
        (FURTHER, directory / datasets.TRAINING / "measured.parquet"),
    ):
        path.parent.mkdir(exist_ok=True)
        log = path.with_suffix(".jsonl")
        found = measure(
            design, log=log, data_directory=directory / "data", clock=lambda: datetime.now(UTC)
        )
        assert (found.done, found.failed) == (found.tasks, 0)
        compact(log, path, provenance={})
    return directory


@pytest.mark.slow
def test_platform_choice_fills_every_part_and_repeats_from_cached_cells(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MEASURED_DIRECTORY", measured)
    monkeypatch.setattr(datasets, "MEASURED_RUNS", measured / "measured.parquet")
    settings = Settings(seed=0, out=tmp_path, quick=True)
    summary = conduct(EXPERIMENT, settings)
    rows = summary["rows"]
    assert isinstance(rows, list)
    parts = {row["part"] for row in rows}
    told = {"accuracy", "paired", "fastest", "one platform", "mixed", "chosen", "labels"}
    assert parts == {*told, "chosen, mixed"}
    choosers = {row["chooser"] for row in rows if row["part"] == "mixed"}
    ours = {
        f"{name}{given}"
        for name in (CHOICE, ROBUST, "boosting", "GGFN")
        for given in ("", ", estimated cardinalities")
    }
    assert {*ours, "always polars", "best rule per class"} <= choosers
    given = {row["information"] for row in rows if row["part"] in ("accuracy", "paired", "chosen")}
    assert given == {"actual cardinalities", "estimated cardinalities"}
    assert all(row["mean regret"] >= 0 for row in rows if row["part"] == "mixed")
    plots = summary["plots"]
    assert isinstance(plots, list)
    assert {path.name for path in tmp_path.glob("sizes_*.svg")} == set(plots)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("cells/*.json")}
    assert len(kept) == 5 * FOLDS + 1
    assert list(differences(EXPERIMENT, tmp_path, data=None)) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("cells/*.json")} == kept


@pytest.mark.slow
def test_exhaustive_case_measures_27_to_243_assignments(measured: Path) -> None:
    cases = read_cases(measured / datasets.COMPARISONS / "measured.parquet")
    exhaustive = [case for case in cases if case.role is Role.EXHAUSTIVE]
    assert len(exhaustive) == 6
    assert all(27 <= len(case.seconds) <= 243 for case in exhaustive)
