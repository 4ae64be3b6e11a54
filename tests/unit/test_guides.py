"""Tests that the examples of the guides do what the guides describe."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedperf_client.sources import SkippedRecord
from fedperf_engines.platforms.operations import Comparison, Distinct, Filter, Order, Sort
from fedperf_shared.execution import Execution
from fedperf_simulations.harness.experiment import Settings, conduct
from tests.unit.client.prediction.synthetic import draw_samples

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def program(page: str) -> str:
    """Return the first program of a guide."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    [first, *_] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(first)


def example(page: str) -> dict[str, Any]:
    """Return the names that the first program of a guide defines."""
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    exec(compile(program(page), page, "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def threads_of_arrow() -> Iterator[None]:
    """Restore the number of Arrow threads."""
    before = pa.cpu_count()
    yield
    pa.set_cpu_count(before)


def test_guide_learner_predicts_the_median_of_each_cell() -> None:
    learner = example("learner.md")["CellMedian"]()
    samples, log_seconds = draw_samples(60)
    nothing, of_nothing = draw_samples(0)
    for cell in np.unique(samples.cells):
        rows = np.flatnonzero(samples.cells == cell)
        answers = learner.fit(samples, log_seconds)(samples.take(rows))
        np.testing.assert_array_equal(answers, np.median(log_seconds[rows]))
    assert learner.fit(nothing, of_nothing)(samples).tolist() == [0.0] * 60


def test_guide_source_reads_the_example_line_of_its_guide(tmp_path: Path) -> None:
    [line] = re.findall(r'`(\{"job".*?\})`', (GUIDES / "source.md").read_text(encoding="utf-8"))
    open_job_log = example("source.md")["open_job_log"]
    (tmp_path / "log").write_text(f"{line}\n{{}}\n{line.replace('2026-11-25', '2026-11-26')}\n")
    (tmp_path / "other").write_text("{}\n")
    first, bad, second = open_job_log(tmp_path / "log").read()
    assert isinstance(first, Execution)
    assert first.cluster.cores == json.loads(line)["cores"]
    assert first.workload == second.workload
    assert first.execution_id != second.execution_id
    assert isinstance(bad, SkippedRecord)
    assert open_job_log(tmp_path / "other") is None


def test_job_log_with_an_overlong_line_skips_it_once_and_reads_the_next(tmp_path: Path) -> None:
    [line] = re.findall(r'`(\{"job".*?\})`', (GUIDES / "source.md").read_text(encoding="utf-8"))
    (tmp_path / "log").write_text(f"{line}\n{line[:-1]}{' ' * 25_000}}}\n{line}\n")
    records = list(example("source.md")["open_job_log"](tmp_path / "log").read())
    assert [isinstance(each, SkippedRecord) for each in records] == [False, True, False]


@pytest.mark.usefixtures("threads_of_arrow")
def test_guide_engine_filters_deduplicates_and_sorts() -> None:
    engine = example("engine.md")["ArrowEngine"](threads=1)
    table = pa.table({"k": [3, 1, 3], "v": [0.5, 2.0, 1.5]})
    kept = engine.apply(Filter("v", Comparison.GREATER, 1.0), [table])
    assert kept.to_pydict() == {"k": [1, 3], "v": [2.0, 1.5]}
    assert sorted(engine.apply(Distinct(("k",)), [table])["k"].to_pylist()) == [1, 3]
    ordered = engine.apply(Sort((Order("v", descending=True),)), [table])
    assert ordered["v"].to_pylist() == [2.0, 1.5, 0.5]


def test_guide_experiment_runs_and_meets_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room_of_the_guide"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "experiment.py").write_text(program("experiment.md"))
    monkeypatch.syspath_prepend(tmp_path)
    experiment = importlib.import_module("room_of_the_guide.experiment").EXPERIMENT
    summary = conduct(experiment, Settings(seed=1, out=tmp_path / "out", quick=True))
    assert [each["holds"] for each in summary["targets"]] == [True]  # type: ignore[attr-defined]
