import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from fedperf_shared.runtime.command_line import DIFFERENT, EXIT_CODES, INCOMPLETE
from fedperf_simulations import cli, experiments
from fedperf_simulations.data import datasets
from fedperf_simulations.demo import demo
from fedperf_simulations.experiments import Entry, ExperimentKind, UnknownExperimentError, find
from fedperf_simulations.harness import reproduction
from fedperf_simulations.harness.experiment import ExperimentOutcome, Settings
from fedperf_simulations.harness.reproduction import Claim, ClaimStatus
from tests.pages import REFERENCE, RESEARCHER
from tests.unit.shared.console_programs import commands
from tests.unit.simulations.demo_summary import SUMMARY, YEAR

COMMANDS = [name for name, _ in commands(typer.main.get_command(cli.app))]
ENTRIES = (
    Entry("drift", ExperimentKind.EXPERIMENT, __name__),
    Entry("engine", ExperimentKind.BENCH, __name__),
)


class _Counting:
    name = "drift"
    claim = "things change"

    def run(self, settings: Settings) -> ExperimentOutcome:
        about = {"seed": settings.seed, "quick": settings.quick}
        return ExperimentOutcome(rows=[settings.cell("all", lambda: about)])


EXPERIMENT = _Counting()


def test_find_of_unknown_experiment_lists_the_known_ones_of_its_kind() -> None:
    with pytest.raises(UnknownExperimentError) as caught:
        find(ExperimentKind.EXPERIMENT, "nothing", ENTRIES)
    assert str(caught.value) == "no experiment 'nothing'; available: drift"


def test_run_of_unknown_experiment_prints_one_line_and_exits_with_3() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("fedperf-sim"), "run", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: no experiment 'nothing'; available: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_run_command_passes_settings_and_writes_the_summary(
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
def test_demo_command_without_promotion_exits_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    json: tuple[str, ...],
    *,
    promoted: bool,
    code: int,
) -> None:
    summary = replace(SUMMARY, year=replace(YEAR, promoted=int(promoted)))
    monkeypatch.setattr(datasets, "measured_executions", lambda: ())
    monkeypatch.setattr(demo, "run_demo", lambda world, executions, stages: summary)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "demo"), *json])
    assert result.exit_code == code, result.output
    said = [line for line in result.stderr.splitlines() if line.startswith("incomplete: ")]
    assert len(said) == (0 if promoted else 1)
    assert f"{INCOMPLETE} {EXIT_CODES[INCOMPLETE]}" in REFERENCE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_verify_command_detects_an_edited_value_with_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(experiments, "ENTRIES", ENTRIES[:1])
    monkeypatch.setattr(experiments, "load", lambda entry: EXPERIMENT)
    ran = CliRunner().invoke(cli.app, ["run", "drift", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    good = CliRunner().invoke(cli.app, ["verify", str(tmp_path)])
    assert (good.exit_code, good.output) == (0, "drift: what 1 kept cells give\n")
    summary = tmp_path / "summary.json"
    summary.write_bytes(summary.read_bytes().replace(b'"seed": 0', b'"seed": 1', 1))
    bad = CliRunner().invoke(cli.app, ["verify", str(tmp_path)])
    assert bad.exit_code == DIFFERENT
    assert bad.output == "rows 0, seed: the summary has 1, the cells give 0\n"
    as_json = CliRunner().invoke(cli.app, ["verify", str(tmp_path), "--json"])
    assert as_json.exit_code == DIFFERENT
    assert len(orjson.loads(as_json.output)["differences"]) == 1


@pytest.mark.parametrize(("standing", "code"), [("verified", 0), ("failed", DIFFERENT)])
def test_reproduce_command_prints_a_table_writes_a_page_and_sets_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, standing: str, code: int
) -> None:
    claim = Claim("drift", "things change", ClaimStatus(standing), "as told")
    monkeypatch.setattr(experiments, "ENTRIES", ENTRIES[:1])
    monkeypatch.setattr(experiments, "load", lambda entry: EXPERIMENT)
    monkeypatch.setattr(reproduction, "reproduced", lambda *_, announce: [claim])
    options = ["reproduce", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.app, options)
    assert result.exit_code == code, result.output
    assert standing in result.output
    assert "things change" in (tmp_path / "claims.html").read_text()
    missing = CliRunner().invoke(cli.app, ["reproduce", "--out", str(tmp_path)])
    assert missing.exit_code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_simulation_command_is_documented_on_the_researcher_page(name: str) -> None:
    assert f"fedperf-sim {name}" in RESEARCHER.read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", experiments.ENTRIES, ids=lambda entry: entry.name)
def test_experiment_is_documented_on_the_researcher_page(entry: Entry) -> None:
    assert f"fedperf-sim {entry.command} {entry.name}" in RESEARCHER.read_text(encoding="utf-8")


def test_exit_code_of_differing_evidence_is_in_the_reference() -> None:
    assert f"{DIFFERENT} {EXIT_CODES[DIFFERENT]}" in REFERENCE.read_text(encoding="utf-8")


def test_simulation_cli_imports_no_heavy_module() -> None:
    code = (
        "import sys\n"
        "from fedperf_simulations import cli\n"
        "heavy = {'torch', 'flwr', 'sdv', 'pandas', 'duckdb', 'polars', 'matplotlib', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
