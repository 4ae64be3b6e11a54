from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedperf_client.sources.history_file import executions_of
from fedperf_simulations import cli
from fedperf_simulations.data import datasets
from tests.fakes.history_metadata import read_metadata


def measure(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["measure", *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "options", [("--large", "--train-only"), ("--sessions", "duckdb", "--comparisons")]
)
def test_measure_with_two_sets_exits_with_2_and_writes_no_files(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    code, said = measure("--out", str(tmp_path), *options)
    assert code == 2
    assert "exclude" in said
    assert not any(tmp_path.iterdir())


def test_measure_with_unknown_session_kind_exits_with_2(tmp_path: Path) -> None:
    code, said = measure("--out", str(tmp_path), "--sessions", "flink")
    assert code == 2
    assert "flink" in said


@pytest.mark.slow
def test_measure_sessions_command_installs_its_own_measured_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MEASURED_DIRECTORY", tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    options = ("--sessions", "duckdb", "--count", "1", "--quick", "--json")
    code, said = measure("--out", str(tmp_path / "out"), *options)
    assert code == 0, said
    (found,) = (tmp_path / "out").glob("*.parquet")
    code, said = measure("--out", str(tmp_path / "out"), *options, "--install")
    assert code == 0, said
    (installed,) = datasets.measured_files(datasets.DUCKDB_SESSIONS)
    assert list(executions_of(installed)) == list(executions_of(found))
    assert "version.duckdb" in read_metadata(installed)
    with pytest.raises(datasets.MissingDataError, match="--sessions judged"):
        datasets.measured_files(datasets.HELD_OUT_SESSIONS)
