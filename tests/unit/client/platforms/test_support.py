"""Installed platforms and their operator kinds. Random draws exclude Spark unless it is named."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from fedperf_engines.platforms import engine
from fedperf_engines.platforms.engine import (
    EMBEDDED_PLATFORMS,
    ENGINES,
    could_run,
    installed_platforms,
    supporting,
    supports,
)
from fedperf_engines.workloads.families import (
    Family,
    draw_platforms,
    draw_program,
    single_platforms,
)
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform


@pytest.fixture
def with_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: ModuleSpec(name, None))


def java_in(directory: Path) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return program


@pytest.mark.usefixtures("with_every_library")
def test_spark_is_installed_only_with_java_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert Platform.SPARK not in installed_platforms()
    java_in(tmp_path)
    assert installed_platforms() == tuple(ENGINES)
    assert installed_platforms(EMBEDDED_PLATFORMS) == EMBEDDED_PLATFORMS


@pytest.mark.usefixtures("with_every_library")
def test_java_home_takes_precedence_over_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_in(tmp_path / "path")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert Platform.SPARK not in installed_platforms()
    java_in(tmp_path / "home")
    assert installed_platforms() == tuple(ENGINES)


def test_java_without_pyspark_does_not_install_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_in(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    here = dict.fromkeys(["duckdb", "polars", "pandas", "sklearn"], ModuleSpec("", None))
    monkeypatch.setattr(engine, "find_spec", here.get)
    assert installed_platforms() == EMBEDDED_PLATFORMS


def test_spark_is_a_candidate_only_when_named() -> None:
    assert supporting(OperatorKind.JOIN, Platform.__members__.values())[-1] is Platform.SPARK
    assert Platform.SPARK not in supporting(OperatorKind.JOIN)
    rng = np.random.default_rng(0)
    for family in Family:
        program = draw_program(family, rng=rng, rows=1_000)
        assert Platform.SPARK not in single_platforms(program)
        assert Platform.SPARK in single_platforms(program, (Platform.SPARK,))
        for _ in range(20):
            assert set(draw_platforms(program, rng=rng)) <= set(EMBEDDED_PLATFORMS)


def test_could_run_decides_for_operator_kinds_of_other_engines() -> None:
    assert could_run(OperatorKind.TABLE_SOURCE, Platform.DUCKDB)
    assert could_run(OperatorKind.EXCHANGE, Platform.POLARS)
    assert not could_run(OperatorKind.CROSS, Platform.SKLEARN)
    for kind in (OperatorKind.OTHER, OperatorKind.COMMAND):
        assert not any(could_run(kind, platform) for platform in Platform)
    for platform in EMBEDDED_PLATFORMS:
        assert could_run(OperatorKind.SINK, platform) is supports(OperatorKind.SINK, platform)
