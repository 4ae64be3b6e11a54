"""Spark compared with the other platforms. All tests of this process share one Spark session."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedperf_engines.platforms.engine import open_engine
from fedperf_engines.platforms.executor import run_plan
from fedperf_engines.workloads.data import prepare
from fedperf_engines.workloads.families import Family, draw_platforms, draw_program
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform
from tests.contract.test_platforms import CASES, SLOW_WITH_SPARK, run_case
from tests.fakes.arrow_tables import tables_equal

pytestmark = SLOW_WITH_SPARK


@pytest.mark.parametrize("family", Family)
def test_generated_program_gives_same_result_on_spark_and_in_mixed_plans(
    family: Family, tmp_path: Path
) -> None:
    rng = np.random.default_rng([5, *family.encode()])
    program = draw_program(family, rng=rng, rows=1_000)
    prepare(program.datasets, tmp_path)
    drawn = draw_platforms(program, rng=rng)
    mixed = tuple(
        Platform.SPARK if number % 2 else platform for number, platform in enumerate(drawn)
    )
    reference, *tables = (
        run_plan(program, plan, data_directory=tmp_path, threads=1).table
        for plan in (drawn, mixed, (Platform.SPARK,) * len(program.steps))
    )
    for table in tables:
        assert tables_equal(reference, table)


def test_spark_reads_file_in_directory_named_like_a_glob_pattern(tmp_path: Path) -> None:
    directory = tmp_path / "100%20 [of] {a,b} * ?"
    directory.mkdir()
    result = run_case(CASES["distinct"], Platform.SPARK, directory, with_rows=True)
    assert result.num_rows == 4


def test_spark_reuses_its_session_and_unpersists_cached_rdds(tmp_path: Path) -> None:
    from pyspark import SparkContext

    run_case(CASES["page rank"], Platform.SPARK, tmp_path, with_rows=True)
    run_case(CASES["regression"], Platform.SPARK, tmp_path, with_rows=True)
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jsc.getPersistentRDDs().size() == 0
    open_engine(Platform.SPARK, threads=1).close()
    assert SparkContext._active_spark_context is context


def test_spark_session_with_other_threads_or_memory_cap_is_refused() -> None:
    open_engine(Platform.SPARK, threads=1).close()
    with pytest.raises(InvalidInputError, match="2 threads"):
        open_engine(Platform.SPARK, threads=2)
    with pytest.raises(InvalidInputError, match="2000000000 bytes"):
        open_engine(Platform.SPARK, threads=1, memory_bytes=2_000_000_000)


OUT_OF_HEAP = """
from fedperf_engines.platforms.spark_session import SessionResources as Resources
from fedperf_engines.platforms.spark_session import SparkNotStartedError, running_spark

spark = running_spark(Resources(1, None))
try:
    with spark.memory_errors():
        raise ValueError("of another kind")
except ValueError as error:
    print(error)
try:
    with spark.memory_errors():
        spark.session.sql("SELECT length(repeat(string(id), 2000000000)) FROM range(9)").collect()
except MemoryError as error:
    print(error)
try:
    running_spark(Resources(1, None))
except SparkNotStartedError as error:
    print(error)
"""


def test_spark_out_of_heap_raises_memory_error_and_ends_the_session() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_HEAP], capture_output=True, text=True, check=True
    )
    another, memory, ended = done.stdout.splitlines()
    assert another == "of another kind"
    assert memory == "Spark ran out of its heap of its default size"
    assert "has ended" in ended
