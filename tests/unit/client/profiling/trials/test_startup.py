from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedperf_client.platforms.engine import UnsupportedOperationError
from fedperf_client.platforms.support import EMBEDDED_PLATFORMS
from fedperf_client.profiling.trials.startup import EngineNotStartedError, startup_seconds
from fedperf_shared.workflow.vocabulary import Platform


@cache
def started(platform: Platform) -> float:
    return startup_seconds(platform, threads=1)


def marks_of(platform: Platform) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if platform is Platform.SKLEARN else []


@pytest.mark.parametrize(
    "platform", [pytest.param(each, marks=marks_of(each)) for each in EMBEDDED_PLATFORMS]
)
def test_every_embedded_platform_starts_in_seconds(platform: Platform) -> None:
    assert 0.001 < started(platform) < 30


def test_the_import_of_a_library_is_part_of_its_start() -> None:
    assert started(Platform.PANDAS) > 0.05


def test_an_engine_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(EngineNotStartedError, match=r"DUCKDB .* stopped after 0\.01 s"):
        startup_seconds(Platform.DUCKDB, threads=1, timeout_seconds=0.01)


def test_an_engine_that_cannot_start_says_why() -> None:
    with pytest.raises(EngineNotStartedError, match=r"DUCKDB did not start: .* thread"):
        startup_seconds(Platform.DUCKDB, threads=-5)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra [spark]")
def test_a_spark_without_java_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(EngineNotStartedError, match=r"SPARK did not start: .*java"):
        startup_seconds(Platform.SPARK, threads=1)
    assert not list(tmp_path.iterdir())


def test_a_platform_without_an_engine_is_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="FLINK"):
        startup_seconds(Platform.FLINK, threads=1)
