"""Memory caps of engines that have a memory setting."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from fedperf_engines.platforms.duckdb_engine import DuckDbEngine, DuckDbQuery
from fedperf_engines.platforms.engine import open_engine
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform

SETTINGS = DuckDbQuery(
    "SELECT current_setting('memory_limit'), current_setting('temp_directory')", ("limit", "place")
)


def test_duckdb_spills_above_its_share_of_the_cap_and_removes_files() -> None:
    engine = DuckDbEngine(threads=1, memory_bytes=200_000_000)
    ((limit, place),) = engine.fetch(SETTINGS)
    assert limit == "114.4 MiB"  # 120 million bytes
    large = DuckDbQuery(
        "FROM range(20_000_000) SELECT hash(range) AS a, hash(range + 1) AS b", ("a",)
    )
    kept = engine.keep(large)
    assert engine.fetch(kept.select(["count(*)"], ["count"])) == [(20_000_000,)]
    spilled = sum(file.stat().st_size for file in Path(place).iterdir())
    assert spilled > 150_000_000
    engine.close()
    assert not Path(place).exists()


def test_duckdb_without_cap_uses_its_default_directory() -> None:
    engine = DuckDbEngine(threads=1)
    ((_, place),) = engine.fetch(SETTINGS)
    assert place == ".tmp"
    engine.close()


@pytest.mark.parametrize("platform", [Platform.POLARS, Platform.PANDAS, Platform.SKLEARN])
def test_engines_without_memory_setting_accept_a_cap(platform: Platform) -> None:
    open_engine(platform, threads=1, memory_bytes=200_000_000).close()


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra [spark]")
@pytest.mark.parametrize("cap", [1_279_999_999, 0, float("nan")])
def test_spark_with_cap_below_minimum_is_refused(cap: int) -> None:
    from fedperf_engines.platforms.spark_session import SessionResources

    with pytest.raises(InvalidInputError, match="1280000000"):
        SessionResources(1, cap)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra [spark]")
def test_spark_heap_is_part_of_the_memory_cap() -> None:
    from fedperf_engines.platforms.spark_session import MIN_MEMORY_BYTES, SessionResources

    assert SessionResources(1, None).heap_bytes is None
    assert SessionResources(1, 4_500_000_000).heap_bytes == 2_800_000_000
    smallest = SessionResources(1, MIN_MEMORY_BYTES).heap_bytes
    assert smallest is not None
    assert smallest > 450 * 1024**2
