from collections import Counter

import pytest

from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql.session_draws import COUNTS, ROWS, SessionDesign
from fedperf_simulations.corpus.sql.sessions import Outcome, SessionKind, SqlSession
from fedperf_simulations.corpus.sql.tables import Storage


def sessions(kind: SessionKind, seed: int = 1, **options: bool) -> list[SqlSession]:
    return list(SessionDesign(kind, seed, COUNTS[kind], **options).sessions())


@pytest.mark.slow
@pytest.mark.parametrize("kind", SessionKind)
def test_session_design_is_deterministic_in_kind_number_and_seed(kind: SessionKind) -> None:
    drawn = sessions(kind)
    assert sessions(kind) == drawn
    assert [each.number for each in drawn] == list(range(COUNTS[kind]))
    assert list(SessionDesign(kind, 1, 2).sessions()) == drawn[:2]


def test_session_seed_changes_training_sessions_but_not_held_out_sessions() -> None:
    assert sessions(SessionKind.DUCKDB, 2) != sessions(SessionKind.DUCKDB, 1)
    assert sessions(SessionKind.HELD_OUT, 2) == sessions(SessionKind.HELD_OUT, 1)


@pytest.mark.slow
def test_training_sessions_cover_many_query_families_and_every_table_size() -> None:
    for kind, least in ((SessionKind.SPARK, 2_000), (SessionKind.DUCKDB, 1_500)):
        steps = [step for session in sessions(kind) for step in session.steps]
        assert least < len(steps) < 1.3 * least
        families = Counter(step.family for step in steps)
        assert len(families) > 500
        assert {step.tables.rows for step in steps} == set(ROWS)
        assert {step.tables.schema for step in steps} == {"shop"}


def test_held_out_queries_run_three_times_at_two_sizes_in_parquet_and_natively() -> None:
    *on_duckdb, on_spark = sessions(SessionKind.HELD_OUT)
    places = {(s.tables.rows, s.tables.storage) for each in on_duckdb for s in each.steps}
    assert len(places) == 4
    assert {storage for _, storage in places} == {Storage.PARQUET, Storage.NATIVE}
    for each in on_duckdb:
        assert each.engine is Platform.DUCKDB
        assert len(each.steps) == len({step.family for step in each.steps}) == 62
        assert {step.runs for step in each.steps} == {3}
    assert on_spark.engine is Platform.SPARK
    assert {step.tables.storage for step in on_spark.steps} == {Storage.PARQUET}


def test_spark_sessions_vary_in_cores_memory_and_settings() -> None:
    drawn = sessions(SessionKind.SPARK)
    assert len({(each.threads, each.memory_bytes) for each in drawn}) == 6
    assert len({each.settings["spark.sql.shuffle.partitions"] for each in drawn}) == 6
    assert len({tuple(each.settings) for each in drawn}) == 4
    steps = [step for each in drawn for step in each.steps]
    assert {step.outcome for step in steps} == set(Outcome) - {Outcome.TABLE}
    assert {step.tables.storage for step in steps} == set(Storage) - {Storage.NATIVE}


@pytest.mark.slow
def test_quick_sessions_use_the_smallest_tables_only() -> None:
    for kind in SessionKind:
        quick = sessions(kind, is_quick=True)
        assert {s.tables.rows for each in quick for s in each.steps} == {ROWS[0]}
