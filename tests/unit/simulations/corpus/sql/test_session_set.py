import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_client.sources.history_file import executions_of
from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.execution import Execution
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform
from fedperf_simulations.corpus.sql.session_draws import SessionDesign
from fedperf_simulations.corpus.sql.session_set import (
    SessionSummary,
    join_sessions,
    measure_sessions,
    session_of,
    sessions_in,
)
from fedperf_simulations.corpus.sql.sessions import SessionKind, read_session
from tests.fakes.history_metadata import read_metadata

DUCKDB = SessionDesign(SessionKind.DUCKDB, 1, 1, is_quick=True)


def joined(design: SessionDesign, out: Path) -> tuple[SessionSummary, list[Execution]]:
    path = out.parent / "joined.parquet"
    summary = join_sessions(design, out, path, provenance={"commit": "abc"})
    return summary, list(executions_of(path))


@pytest.mark.slow
def test_duckdb_session_yields_one_execution_per_step_and_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "duckdb"
    measure_sessions(DUCKDB, out)
    summary, executions = joined(DUCKDB, out)
    session = read_session(out / "duckdb-000")
    assert summary.executions == len(executions) >= len(session.steps) - 2
    assert (summary.sessions, summary.failed, summary.failed_steps) == (1, 0, {})
    assert summary.executions + sum(summary.skipped.values()) == len(session.steps)
    assert {session_of(each) for each in executions} == {session.name}
    assert {each.workload for each in executions} <= {step.family for step in session.steps}
    assert len({each.execution_id for each in executions}) == len(executions)
    for each in executions:
        assert each.is_ok
        assert set(each.plan.platforms) == {Platform.DUCKDB}
        assert (each.cluster.cores, each.cluster.memory_bytes) == (
            session.threads,
            session.memory_bytes,
        )
    metadata = read_metadata(tmp_path / "joined.parquet")
    assert metadata["commit"] == "abc"
    assert '"kind":"duckdb"' in metadata["settings"]

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a finished session was measured again")

    monkeypatch.setattr(subprocess, "run", refuse)
    measure_sessions(DUCKDB, out)
    elsewhere = tmp_path / "elsewhere"
    measure_sessions(DUCKDB, elsewhere, measured=sessions_in(tmp_path / "joined.parquet"))
    assert not list(elsewhere.glob("duckdb-*"))


@pytest.mark.slow
def test_join_sessions_keeps_sessions_measured_on_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "joined.parquet"
    two = SessionDesign(SessionKind.DUCKDB, 1, 2, is_quick=True)
    for place, count in (("here", 1), ("there", 2)):
        out, design = tmp_path / place, replace(two, count=count)
        measure_sessions(design, out, measured=sessions_in(path))
        found = join_sessions(design, out, path, provenance={})
        assert found.failed == 0
    assert sessions_in(path) == {"duckdb-000", "duckdb-001"}
    executions = list(executions_of(path))
    assert {session_of(each) for each in executions} == sessions_in(path)
    assert len({each.execution_id for each in executions}) == len(executions)


@pytest.mark.slow
def test_session_with_failed_process_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "duckdb", subprocess.run

    def failing(command: Sequence[str], **options: object) -> object:
        del options
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", failing)
    measure_sessions(DUCKDB, out)
    with pytest.raises(InvalidInputError, match="no session"):
        joined(DUCKDB, out)
    monkeypatch.setattr(subprocess, "run", whole)
    measure_sessions(DUCKDB, out)
    assert joined(DUCKDB, out)[0].failed == 0
    assert not list(out.glob("*.unfinished"))


def test_measure_sessions_into_directory_of_another_design_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1)
    )
    out = tmp_path / "duckdb"
    measure_sessions(DUCKDB, out)
    measure_sessions(SessionDesign(SessionKind.DUCKDB, 1, 2, is_quick=True), out)
    with pytest.raises(ConfigurationError, match="another design"):
        measure_sessions(SessionDesign(SessionKind.DUCKDB, 2, 1, is_quick=True), out)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="needs Java and the extra [spark]",
)
@pytest.mark.timeout(900)
def test_spark_session_yields_executions_of_its_steps(tmp_path: Path) -> None:
    design = SessionDesign(SessionKind.SPARK, 1, 1, is_quick=True)
    out = tmp_path / "spark"
    measure_sessions(design, out)
    summary, executions = joined(design, out)
    session = read_session(out / "spark-000")
    assert (summary.failed, summary.failed_steps) == (0, {})
    asked = {step.family for step in session.steps if step.family.startswith("shop/")}
    assert {each.workload for each in executions} >= asked
    assert {each.cluster.cores for each in executions} == {session.threads}
    kinds = {op.kind for each in executions for op in each.plan.workflow.operators}
    assert {OperatorKind.EXCHANGE, OperatorKind.FILE_SOURCE, OperatorKind.JOIN} <= kinds
    heap = {each.cluster.memory_bytes for each in executions}
    assert all(0.4 * session.memory_bytes < each <= session.memory_bytes for each in heap)
