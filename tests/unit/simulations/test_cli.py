import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedperf_shared.programs.command_line import EXIT_CODES, INCOMPLETE
from fedperf_simulations import cli, experiments
from fedperf_simulations.data import datasets
from fedperf_simulations.demo import demo
from fedperf_simulations.experiments import Entry, ExperimentKind, UnknownExperimentError, find
from fedperf_simulations.harness.experiment import ExperimentOutcome, Settings
from tests.unit.simulations.findings import SUMMARY

ENTRIES = (
    Entry("drift", ExperimentKind.EXPERIMENT, __name__),
    Entry("engine", ExperimentKind.BENCH, __name__),
)


class _Counting:
    name = "drift"
    claim = "things change"

    def run(self, settings: Settings) -> ExperimentOutcome:
        return ExperimentOutcome(rows=[{"seed": settings.seed, "quick": settings.quick}])


EXPERIMENT = _Counting()


def test_an_unknown_experiment_names_the_known_ones_of_its_kind() -> None:
    with pytest.raises(UnknownExperimentError) as caught:
        find(ExperimentKind.EXPERIMENT, "nothing", ENTRIES)
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


@pytest.mark.parametrize("json", [(), ("--json",)])
@pytest.mark.parametrize(("promoted", "code"), [(True, 0), (False, INCOMPLETE)])
def test_a_demo_in_which_nothing_was_promoted_ends_with_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    json: tuple[str, ...],
    *,
    promoted: bool,
    code: int,
) -> None:
    start, made = SUMMARY.versions
    versions = (start, replace(made, standing="promoted" if promoted else "rejected"))
    summary = replace(SUMMARY, versions=versions, rounds=SUMMARY.rounds[:1])
    monkeypatch.setattr(datasets, "measured_executions", lambda: ())
    monkeypatch.setattr(demo, "run_demo", lambda world, executions, stages: summary)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "demo"), *json])
    assert result.exit_code == code, result.output
    said = [line for line in result.stderr.splitlines() if line.startswith("incomplete: ")]
    assert len(said) == (0 if promoted else 1)
    readme = Path(__file__).parents[3] / "README.md"
    assert f"{INCOMPLETE} {EXIT_CODES[INCOMPLETE]}" in readme.read_text(encoding="utf-8")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from fedperf_simulations import cli\n"
        "heavy = {'torch', 'flwr', 'sdv', 'pandas', 'duckdb', 'polars', 'matplotlib', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
