import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedperf_simulations import cli, experiments
from fedperf_simulations.experiment import Outcome, Settings
from fedperf_simulations.experiments import Entry, Kind, UnknownExperimentError, find

ENTRIES = (Entry("drift", Kind.EXPERIMENT, __name__), Entry("engine", Kind.BENCH, __name__))


class _Counting:
    name = "drift"
    claim = "things change"

    def run(self, settings: Settings) -> Outcome:
        return Outcome(rows=[{"seed": settings.seed, "quick": settings.quick}])


EXPERIMENT = _Counting()


def test_an_unknown_experiment_names_the_known_ones_of_its_kind() -> None:
    with pytest.raises(UnknownExperimentError) as caught:
        find(Kind.EXPERIMENT, "nothing", ENTRIES)
    assert str(caught.value) == "no experiment 'nothing'; known are: drift"


def test_an_unknown_experiment_ends_in_one_line() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("fedperf-sim"), "run", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: no experiment 'nothing'; known are: ")
    assert done.stderr.count("\n") == 1


def test_an_experiment_is_run_with_its_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(experiments, "ENTRIES", ENTRIES[:1])
    monkeypatch.setattr(experiments, "load", lambda entry: EXPERIMENT)
    options = ["run", "drift", "--seed", "4", "--quick", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(cli.app, options)
    assert result.exit_code == 0, result.output
    assert '"seed": 4' in result.output
    assert (tmp_path / "summary.json").exists()
    listed = CliRunner().invoke(cli.app, ["list", "--json"])
    assert "things change" in listed.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from fedperf_simulations import cli\n"
        "heavy = {'torch', 'flwr', 'sdv', 'pandas', 'duckdb', 'polars', 'matplotlib', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
