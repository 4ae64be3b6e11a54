"""Tests of the dependencies of cells: all reached modules and the data files beside them."""

from pathlib import Path

import pytest

from fedperf_simulations.experiments import ENTRIES, load
from fedperf_simulations.harness import dependencies
from fedperf_simulations.harness.dependencies import (
    Dependencies,
    _shipped,
    entry_points,
    package_roots,
    reached,
)

SIMULATIONS = package_roots()["fedperf_simulations"]


def modules_of(name: str) -> set[str]:
    [entry] = [each for each in ENTRIES if each.name == name]
    path = SIMULATIONS.joinpath(*entry.module.split(".")[1:]).with_suffix(".py")
    return set(reached(path, package_roots(), entry_points()))


@pytest.mark.slow
def test_dependencies_include_transitive_and_dynamically_started_modules() -> None:
    modules = modules_of("report_channel")
    assert "fedperf_server.inference.gaussian_process" in modules
    assert "fedperf_shared.releases.release" in modules
    assert not any(name.startswith("fedperf_simulations.harness") for name in modules)
    assert "fedperf_simulations.experiments.optimizer.measurement" in modules_of("optimizer")
    assert "fedperf_client.commands.predict" in modules_of("prediction")
    assert "fedperf_client.sources.spark.event_log" in modules_of("ingest")


@pytest.mark.slow
def test_dependencies_include_data_files_beside_reached_modules_only() -> None:
    load(next(each for each in ENTRIES if each.name == "profiling_models"))
    tables = Dependencies.of("fedperf_simulations.experiments.profiling_models")
    assert "polars/measured.parquet" not in tables.files
    load(next(each for each in ENTRIES if each.name == "intervals"))
    plans = Dependencies.of("fedperf_simulations.experiments.intervals.experiment")
    assert {
        "polars/measured.parquet",
        "model/public_start.safetensors",
    } <= plans.files.keys()
    assert plans.versions.keys() >= {"python", "torch", "numpy", "scikit-learn", "duckdb"}


def test_dependencies_include_data_folders_without_modules(tmp_path: Path) -> None:
    room, inner = tmp_path / "room", tmp_path / "room" / "inner"
    for folder in (room / "logs", inner):
        folder.mkdir(parents=True)
        (folder / "runs.parquet").write_bytes(b"1")
    for package in (room, inner):
        (package / "__init__.py").touch()
    assert list(_shipped({room})) == [room / "logs" / "runs.parquet"]
    assert list(_shipped({inner})) == [inner / "runs.parquet"]


@pytest.mark.slow
def test_dependencies_are_deterministic_and_take_under_three_cpu_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load(next(each for each in ENTRIES if each.name == "intervals"))
    read: list[Path] = []

    def source(path: Path) -> tuple[str, set[str]]:
        read.append(path)
        return digest_of(path)

    digest_of = dependencies._source
    monkeypatch.setattr(dependencies, "_source", source)
    first = Dependencies.of("fedperf_simulations.experiments.intervals.experiment")
    assert len(set(read)) == len(read) > 100  # each module once
    assert first == Dependencies.of("fedperf_simulations.experiments.intervals.experiment")


def test_dependencies_differences_list_each_changed_item() -> None:
    mine = Dependencies("a", {"logs/x": "1"}, {"torch": "2"})
    other = Dependencies("b", {"logs/y": "1"}, {"torch": "3"})
    assert list(mine.differences(other)) == [
        "the code is another one",
        "the data file logs/x is another one",
        "the data file logs/y is another one",
        "the version of torch is another one",
    ]
    assert mine.digest != other.digest
    assert list(mine.differences(mine)) == []


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (("x + 1", "x + 2"), True),
        (('"""Adds."""', '"""Adds one."""'), False),
        (("# why", "# why not"), False),
        (('"""Of it."""', '"""Of all of it, as `package.other` says."""'), False),
        (('"package.other"', '"package.third"'), True),
    ],
)
def test_dependencies_change_with_code_but_not_with_comments_or_docstrings(
    tmp_path: Path, change: tuple[str, str], *, counts: bool
) -> None:
    text = '''"""Adds."""
ONE = 1
"""Of it."""
STARTED = "package.other"
def add(x):
    return x + 1  # why
'''
    package = {"package": tmp_path}
    (tmp_path / "other.py").write_text("TWO = 2\n")
    path = tmp_path / "first.py"
    path.write_text(text)
    before = reached(path, package, {})
    assert set(before) == {"", "package.other"}
    path.write_text(text.replace(*change))
    assert (reached(path, package, {}) != before) == counts
