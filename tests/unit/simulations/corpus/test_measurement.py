from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fedperf_client.sources.history_file import HistoryFile
from fedperf_engines.trials.profiler import Trial
from fedperf_shared.errors import ConfigurationError, InvalidInputError, StorageError
from fedperf_shared.execution import Execution, ExecutionStatus, Measurement
from fedperf_simulations.corpus.measured_log import (
    MeasuringSummary,
    compact,
    provenance,
)
from fedperf_simulations.corpus.measurement import in_a_row, measure, run_order
from fedperf_simulations.corpus.workload_draws import MeasuringSettings
from tests.fakes.history_metadata import read_metadata

SMALL = MeasuringSettings(
    seed=5, workloads=2, comparisons=0, most_rows=1000, two_threads_share=0.0, repeats=0
)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def run(log: Path, *, at_most: int | None = None) -> MeasuringSummary:
    return measure(
        SMALL,
        log=log,
        data_directory=log.parent / "data",
        clock=lambda: NOW,
        console=Console(file=StringIO()),
        at_most=at_most,
    )


def test_run_order_is_a_seeded_permutation_of_all_tasks() -> None:
    tasks = MeasuringSettings(seed=1, workloads=50, comparisons=5).tasks()
    ordered = run_order(tasks, 1)
    assert ordered != tasks
    assert sorted(t.task_id for t in ordered) == sorted(t.task_id for t in tasks)
    assert run_order(tasks, 2) != ordered


@pytest.mark.slow
def test_measurement_resumes_after_truncated_line_and_compacts_to_a_file(tmp_path: Path) -> None:
    log, history = tmp_path / "log.jsonl", tmp_path / "set.parquet"
    first = run(log, at_most=1)
    assert first.done == 1
    whole = log.read_bytes()
    with log.open("ab") as file:
        file.write(b'{"task":"00001","status":"O')  # killed in the middle of a line
    second = run(log)
    assert log.read_bytes().startswith(whole)
    assert second.done == second.tasks == SMALL.workloads
    assert second.failed == 0

    rows = compact(log, history, provenance=provenance(commit="abc", measured_at=NOW))
    executions = list(HistoryFile(history).read())
    assert rows == len(executions) == second.tasks
    assert all(isinstance(each, Execution) for each in executions)
    assert len({each.workload for each in executions if isinstance(each, Execution)}) == 2
    metadata = read_metadata(history)
    assert metadata["commit"] == "abc"
    assert '"seed":5' in metadata["settings"]
    assert "version.duckdb" in metadata


def test_measurement_with_log_of_other_settings_is_refused_and_unchanged(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"format":1,"settings":{"seed":6}}\n')
    with pytest.raises(ConfigurationError, match="other settings"):
        run(log)
    assert log.read_bytes() == b'{"format":1,"settings":{"seed":6}}\n'


@pytest.mark.parametrize("content", [b"", b"no json\n", b"[]\n", b'{"format":7}\n'])
def test_compact_of_invalid_measurement_log_is_refused(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a log of measurements"):
        compact(log, tmp_path / "set.parquet", provenance={})


def test_compact_of_missing_measurement_log_raises_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read or write"):
        compact(tmp_path / "nothing", tmp_path / "set.parquet", provenance={})


def scripted(*seconds: float | None) -> Callable[[], Trial]:
    """Return a trial function with these run times, one after the other. None fails."""
    left = iter(seconds)

    def once() -> Trial:
        each = next(left)
        status = ExecutionStatus.FAILED if each is None else ExecutionStatus.OK
        return Trial((), status, None if each is None else Measurement(each))

    return once


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        ((0.5, 0.1, 0.3), 0.3),
        ((1.9, 0.6), 0.6),  # together more than two seconds
        ((10.0,), 10.0),
    ],
)
def test_short_plan_is_measured_repeatedly_and_its_median_counts(
    seconds: tuple[float, ...], counts: float
) -> None:
    trial, found = in_a_row(scripted(*seconds), at_most=3)
    assert found == list(seconds)
    assert trial.measurement == Measurement(counts)


def test_plan_failing_once_among_repeats_counts_as_failed() -> None:
    trial, found = in_a_row(scripted(0.1, None, 0.1), at_most=3)
    assert (trial.status, found) == (ExecutionStatus.FAILED, [0.1])
    assert in_a_row(scripted(0.1, 0.2), at_most=1)[1] == [0.1]
