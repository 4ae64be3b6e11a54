"""Tests of the synthetic batch: it is computed from released reports, and SDV reads only it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_client.contributions.local_sums import label_executions, workload_residuals
from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server import cli
from fedperf_server.config import load_config
from fedperf_server.inference.corrections import ReceivedReport
from fedperf_server.rehearsal import synthetic_batch
from fedperf_server.rehearsal.synthetic_batch import (
    MAX_ROWS,
    CellCondition,
    SyntheticBatch,
    cross_clusters,
    sample_rows,
)
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_shared.errors import InvalidInputError, PrivacyRefusedError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.public_plans import load_public_plans
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.releases.public_table import COLUMNS, TableRow
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, SlotKey
from fedperf_shared.wire.codec import encode_synthetic_rows
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.fakes.corrections import correct
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.server.controllers.simulated_reports import simulated_report
from tests.unit.shared.console_programs import run

AT = datetime(2027, 1, 20, tzinfo=UTC)
PARAMETERS = ReportParameters(1.4, 3.0)
SLOT = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
ENTRIES = [PlanOnCluster(each.plan, each.cluster) for each in load_public_plans()]
CATALOGUE = cross_clusters(ENTRIES)
CLUSTER = ENTRIES[0].cluster
POLARS_ML = CellCondition(Platform.POLARS, OperatorClass.ML)


def predict(entries: Sequence[PlanOnCluster]) -> NDArray[np.float64]:
    return np.array([math.log1p(len(entry.plan.platforms)) for entry in entries])


def batch_of(reports: Sequence[ReceivedReport], *, seed: int = 0) -> SyntheticBatch:
    correction = correct(reports, reference_version=1)
    return SyntheticBatch.from_reports(
        reports, correction, CATALOGUE, rows=200, predict=predict, seed=seed
    )


def released(workloads: Sequence[WorkloadResiduals], *, noise: int = 0) -> ReceivedReport:
    """Return the release of an organization's own mechanism with this noise seed."""
    report = residual_report(
        workloads, SeededNoise(noise), slot=SLOT, parameters=PARAMETERS, reference_version=1
    )
    return ReceivedReport("one", report, PARAMETERS)


def history(count: int) -> list[WorkloadResiduals]:
    rng = np.random.default_rng(5)
    return [
        WorkloadResiduals(rng.choice([*CATALOGUE], size=3), rng.normal(0.4, 0.3, size=3))
        for _ in range(count)
    ]


def unions() -> tuple[SyntheticRow, ...]:
    """Return plans with one source fewer than operators."""
    table = Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), 100.0, 8.0)
    plans = [
        Workflow(
            (*(table,) * count, replace(table, kind=OperatorKind.UNION, inputs=(0, count - 1)))
        )
        for count in range(2, 12)
    ]
    return tuple(
        SyntheticRow(Plan.on_one_platform(each, Platform.POLARS), CLUSTER, 0.1, Platform.POLARS)
        for each in plans
    )


@pytest.fixture(scope="module")
def batch() -> SyntheticBatch:
    rng = np.random.default_rng(0)
    truth = np.linspace(0.0, 1.5, CELLS)
    return batch_of([simulated_report(rng, truth, cells=CELLS, noise_multiplier=0.3)])


@pytest.fixture(scope="module")
def drawn(batch: SyntheticBatch) -> tuple[TableRow, ...]:
    return sample_rows(batch, POLARS_ML, rows=80, seed=1)


def test_synthetic_rows_are_public_plans_crossed_with_public_clusters(
    batch: SyntheticBatch,
) -> None:
    plans = {entry.plan for entry in ENTRIES}
    clusters = {entry.cluster for entry in ENTRIES}
    assert len(batch.rows) == 200
    assert {row.plan for row in batch.rows} <= plans
    assert {row.cluster for row in batch.rows} <= clusters
    pairs = {(row.plan, row.cluster) for row in batch.rows}
    assert not pairs <= {(entry.plan, entry.cluster) for entry in ENTRIES}  # they are crossed


@pytest.mark.slow
def test_synthetic_batch_is_determined_by_released_values() -> None:
    """The batch is post-processing: neighbours differ in the report and in nothing else."""
    whole = released(history(200))
    neighbour = released(history(200)[1:])
    assert not np.array_equal(whole.report.values, neighbour.report.values)
    assert batch_of([whole]) != batch_of([neighbour])
    as_if = replace(neighbour, report=replace(neighbour.report, values=whole.report.values))
    assert encode_synthetic_rows(batch_of([as_if]).rows) == encode_synthetic_rows(
        batch_of([whole]).rows
    )
    asked = CellCondition(Platform.DUCKDB, size=1)
    assert sample_rows(batch_of([as_if]), asked, rows=20, seed=3) == sample_rows(
        batch_of([whole]), asked, rows=20, seed=3
    )


def test_synthetic_batch_depends_on_public_seed() -> None:
    report = released(history(40))
    assert batch_of([report], seed=1) == batch_of([report], seed=1)
    assert batch_of([report], seed=1) != batch_of([report], seed=2)


def test_synthetic_batch_without_reports_is_empty() -> None:
    assert batch_of([]).rows == ()


@pytest.mark.slow
def test_synthetic_batch_and_samples_contain_no_text_of_a_history() -> None:
    own = [
        replace(each, execution_id=f"CANARY-{at}", workload=f"/secret/CANARY_{at}")
        for at, each in enumerate(executions_of_world(0, 40, "own"))
    ]
    reference = GgfnArrays.of(seeded_checkpoint())
    batch = batch_of([released(workload_residuals(reference, label_executions(own)))])
    found = sample_rows(batch, CellCondition(size=1), rows=50, seed=0)
    text = json.dumps([row.as_record() for row in found])
    for canary in ("CANARY", "secret"):
        assert canary not in text
        assert canary.encode() not in encode_synthetic_rows(batch.rows)


@pytest.mark.slow
def test_sampled_rows_match_requested_cell_condition(drawn: tuple[TableRow, ...]) -> None:
    assert len(drawn) == 80
    kinds = {(row.cell.platform, row.cell.operator_class) for row in drawn}
    assert kinds == {(Platform.POLARS, OperatorClass.ML)}


@pytest.mark.slow
def test_sampled_rows_have_public_columns_and_satisfy_constraints(
    batch: SyntheticBatch, drawn: tuple[TableRow, ...]
) -> None:
    any_kind = sample_rows(batch, CellCondition(), rows=150, seed=4)
    assert max(row.sources for row in any_kind) > 1
    cells = {cell_of(row.plan) for row in batch.rows}
    clusters = {row.cluster for row in batch.rows}
    for row in (*drawn, *any_kind):
        assert tuple(row.as_record()) == COLUMNS
        assert row.cell in cells
        assert row.cluster in clusters
        assert 1 <= row.sources <= row.operators
        assert TableRow.from_record(row.as_record()) == row


def test_sampled_rows_have_at_most_as_many_sources_as_operators() -> None:
    found = sample_rows(SyntheticBatch(unions()), CellCondition(), rows=300, seed=0)
    assert all(row.sources <= row.operators for row in found)


def test_sampled_run_times_have_the_mean_of_their_cell(
    batch: SyntheticBatch, drawn: tuple[TableRow, ...]
) -> None:
    real = [row.log_seconds for row in batch.table() if POLARS_ML.matches(row.cell)]
    assert np.mean([row.log_seconds for row in drawn]) == pytest.approx(np.mean(real), abs=0.3)


@pytest.mark.slow
def test_sampled_rows_depend_on_seed_and_leave_global_generator_unchanged(
    batch: SyntheticBatch, drawn: tuple[TableRow, ...]
) -> None:
    before = np.random.get_state(legacy=False)["state"]["key"]  # the global generator is unchanged
    assert sample_rows(batch, POLARS_ML, rows=80, seed=1) == drawn
    other = sample_rows(batch, POLARS_ML, rows=80, seed=2)
    labels = {row.log_seconds for row in drawn}
    assert len(labels & {row.log_seconds for row in other}) < 8
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)


@pytest.mark.parametrize("kind", ["table", "rows", "nothing"])
def test_sample_rows_of_other_input_than_a_synthetic_batch_is_refused(
    batch: SyntheticBatch, kind: str
) -> None:
    raw: Any = {"table": batch.table(), "rows": batch.rows, "nothing": None}[kind]
    with pytest.raises(PrivacyRefusedError, match="released reports") as refused:
        sample_rows(raw, CellCondition(), rows=5, seed=0)
    assert refused.value.exit_code == 5


def test_sample_rows_without_matching_rows_is_refused(batch: SyntheticBatch) -> None:
    with pytest.raises(InvalidInputError, match="0 of them match platform spark"):
        sample_rows(batch, CellCondition(Platform.SPARK), rows=5, seed=0)
    with pytest.raises(InvalidInputError, match="no synthetic batch is published yet"):
        sample_rows(SyntheticBatch(()), CellCondition(), rows=5, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("found", [0, 1])
def test_sample_rows_of_a_too_rare_cell_is_refused(
    batch: SyntheticBatch, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_rows(batch, POLARS_ML, rows=1, seed=0)  # imports SDV as the product does
    from sdv.single_table import GaussianCopulaSynthesizer

    monkeypatch.setattr(
        GaussianCopulaSynthesizer,
        "_filter_conditions",
        staticmethod(lambda sampled, conditions, tolerance: sampled.head(found)),
    )
    monkeypatch.setattr(synthetic_batch, "SAMPLED_AT_ONCE", 5)
    with pytest.raises(InvalidInputError, match=f"only {found} of"):
        sample_rows(batch, POLARS_ML, rows=5, seed=0)


@pytest.mark.parametrize("rows", [0, -1, MAX_ROWS + 1])
def test_sample_rows_with_invalid_row_count_is_refused(batch: SyntheticBatch, rows: int) -> None:
    with pytest.raises(InvalidInputError, match="rows must be"):
        sample_rows(batch, CellCondition(), rows=rows, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_sample_rows_of_smallest_batches_returns_requested_rows(
    batch: SyntheticBatch, count: int
) -> None:
    few = SyntheticBatch((batch.rows[0],) * (count - 1) + batch.rows[:1])
    found = sample_rows(few, CellCondition(), rows=7, seed=0)
    assert {row.cell for row in found} == {cell_of(batch.rows[0].plan)}
    different = SyntheticBatch(batch.rows[:count])
    assert len(sample_rows(different, CellCondition(), rows=7, seed=0)) == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"platform": "flink", "size": None}, "platform must be one of duckdb"),
        ({"operator_class": "sql", "size": None}, "relational, text, graph, ml"),
        ({"size": 4}, "size must be 0 to 3"),
    ],
)
def test_cell_condition_with_unknown_values_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CellCondition.parse(**words)


@pytest.mark.slow
def test_sdv_is_imported_on_use_without_output_files_or_connections(tmp_path: Path) -> None:
    """No file, connection or output appears in a separate process with an empty home directory."""
    program = """
import socket, sys
def refuse(*arguments): raise OSError("a connection was tried")
socket.socket.connect = socket.getaddrinfo = refuse
from fedperf_server.rehearsal.synthetic_batch import CellCondition, SyntheticBatch, sample_rows
assert "sdv" not in sys.modules
from fedperf_shared.wire.codec import decode_synthetic_rows
batch = SyntheticBatch(decode_synthetic_rows(sys.stdin.buffer.read()))
assert len(sample_rows(batch, CellCondition(), rows=5, seed=0)) == 5
assert "sdv" in sys.modules
"""
    rows = encode_synthetic_rows(batch_of([released(history(40))]).rows)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=rows,
        capture_output=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert [*tmp_path.rglob("*")] == []


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "server"
    assert run(cli.main, "--directory", path, "init", "--host", "127.0.0.1").code == 0
    return path


def publish(directory: Path, rows: Sequence[SyntheticRow]) -> None:
    database = Database(load_config(directory).database_url)
    with database.transaction() as session:
        registry.publish_synthetic_rows(session, rows, at=AT)
    database.close()


def test_synthesize_command_prints_rows_of_the_requested_platform(
    directory: Path, batch: SyntheticBatch
) -> None:
    command = ("--directory", directory, "synthesize", "--platform", "polars", "--rows", 6)
    ended = run(cli.main, *command, "--json")
    assert ended.code == 3
    assert "no synthetic batch is published yet" in ended.complaint()
    publish(directory, batch.rows)
    found = run(cli.main, *command, "--json")
    assert found.code == 0
    rows = found.rows()
    assert len(rows) == 6
    assert all(tuple(row) == COLUMNS and row["platform"] == "polars" for row in rows)
