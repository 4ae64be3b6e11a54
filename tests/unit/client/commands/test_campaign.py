"""`fedperf profile`: checks before the first trial, and results after failed trials."""

from pathlib import Path

import pytest

from fedperf_campaigns.campaign import trial_runner
from fedperf_campaigns.campaign.report import holds_measurements
from fedperf_client import cli
from fedperf_client.home.config import Home, write_private
from fedperf_shared.runtime.command_line import EXIT_CODES, NOTHING_MEASURED
from tests.pages import REFERENCE
from tests.unit.client.data_directories import fedperf
from tests.unit.client.profiling.campaign.campaigns import (
    BUSY,
    GRID,
    QUIET,
    campaign_text,
    write_campaign,
)
from tests.unit.shared.console_programs import Ended, contents, run

ONCE = "repetitions = 1\nretries = 0"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create("")
    return home


def command(*words: str, more: str = "") -> str:
    quoted = ", ".join(f'"{each}"' for each in words)
    return f'[[component]]\nname = "job"\ncommand = [{quoted}]\n{more}\n'


def function(target: str) -> str:
    return f'[[component]]\nname = "job"\ncallable = "{target}"\n'


def profile(
    home: Home, components: str, *options: object, grid: str = GRID, settings: str = ONCE
) -> Ended:
    text = campaign_text(components=components, grid=grid, run=settings)
    file = write_campaign(home.directory.parent, text)
    return run(cli.main, "--home", home.directory, "profile", file, *options)


@pytest.mark.slow
def test_profile_with_only_failed_trials_keeps_earlier_results(home: Home) -> None:
    results = home.directory / "campaigns" / "nightly"
    assert profile(home, command("true")).code == 0
    before = contents(results)
    assert len(before) == 3
    ended = profile(home, command("false"))
    assert ended.code == NOTHING_MEASURED
    assert contents(results) == before
    assert "status: nothing was measured: 4 failed" in ended.out
    assert "exit code 1" in ended.err
    assert f"{results} stay as they are" in ended.err
    again = profile(home, command("false"), "--json")
    assert (again.code, contents(results)) == (NOTHING_MEASURED, before)
    facts = again.json()
    assert isinstance(facts, dict)
    assert facts["report"] is None


@pytest.mark.slow
def test_profile_text_output_shows_status_extremes_and_next_command(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([BUSY, QUIET, *[QUIET] * 20])
    monkeypatch.setattr(trial_runner.HostMonitor, "end", lambda _: next(readings))
    seconds = command("sh", "-c", "sleep 0.$(({rows} / {workers} / 25))")
    ended = profile(home, seconds, settings="repetitions = 1")
    assert ended.code == 0
    lines = dict(line.split(": ", 1) for line in ended.out.splitlines())
    assert lines["status"].startswith("4 ok, 1 noisy (noisy ones count as well; 1 of them ran aga")
    assert "repeat noise" not in lines  # one repetition per configuration
    assert lines["fastest"].endswith(" at rows=100,workers=2")
    assert lines["slowest"].endswith(" at rows=200,workers=1")
    assert lines["ask"] == "fedperf predict nightly --at rows=200,workers=1"
    assert lines["report"] == str(home.directory / "campaigns" / "nightly" / "report.html")
    assert fedperf(home, *lines["ask"].split()[1:]).code == 0


def test_profile_with_missing_file_describes_the_expected_file(
    home: Home,
) -> None:
    ended = run(cli.main, "--home", home.directory, "profile", "nix.toml")
    assert ended.code == 3
    assert ended.complaint().endswith(
        "nix.toml does not exist; name a campaign's file: TOML with [[component]] and [grid]"
    )


def test_profile_dry_run_explains_possible_extra_trials(home: Home) -> None:
    said = profile(home, command("true"), "--dry-run", settings="repetitions = 1")
    assert "trials: 4, more where one is noisy or fails: it runs again\n" in said.out
    assert "trials: 4\n" in profile(home, command("true"), "--dry-run").out  # no retries
    facts = profile(home, command("true"), "--dry-run", "--json").json()
    assert isinstance(facts, dict)
    assert facts["trials"] == 4


@pytest.mark.slow
def test_profile_with_partly_failed_trials_replaces_results(home: Home) -> None:
    results = home.directory / "campaigns" / "nightly"
    assert profile(home, command("true")).code == 0
    before = contents(results)
    ended = profile(home, command("sh", "-c", "test {rows} = 100"))
    assert ended.code == 0
    assert all(content != before[path] for path, content in contents(results).items())
    assert "2 failed" in ended.out
    assert "0 oom" not in ended.out


@pytest.mark.slow
def test_profile_with_only_failed_trials_writes_report_if_none_has_measurements(home: Home) -> None:
    report = home.directory / "campaigns" / "nightly" / "report.html"
    assert profile(home, command("false")).code == NOTHING_MEASURED
    first = report.read_bytes()
    assert profile(home, command("sh", "-c", "exit 3")).code == NOTHING_MEASURED
    assert report.read_bytes() != first


def test_holds_measurements_is_true_for_unreadable_results(tmp_path: Path) -> None:
    assert not holds_measurements(tmp_path / "none")
    for number, content in enumerate((b"{}", b"[]", b"no JSON", b'{"configurations": 1}')):
        write_private(tmp_path / str(number) / "summary.json", content)
        assert holds_measurements(tmp_path / str(number))
    write_private(tmp_path / "old" / "report.html", b"")
    assert holds_measurements(tmp_path / "old")


def test_profile_exit_code_for_no_measurement_is_documented() -> None:
    assert f"{NOTHING_MEASURED} {EXIT_CODES[NOTHING_MEASURED]}" in REFERENCE.read_text()


@pytest.mark.slow
def test_profile_trials_do_not_inherit_thread_limits_of_the_program(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    ended = profile(home, command("sh", "-c", "test -z ${{OPENBLAS_NUM_THREADS}}"))
    assert ended.code == 0
    assert "4 ok" in ended.out or "noisy" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pyhton", "x.py"), "there is no program 'pyhton' on the PATH"),
        (("./absent",), "./absent is no program"),
        (("./data.txt",), "./data.txt is no program"),
        (("job-{rows}",), "there is no program 'job-200' on the PATH"),
    ],
)
def test_profile_dry_run_refuses_commands_that_cannot_be_started(
    home: Home, words: tuple[str, ...], said: str
) -> None:
    beside = home.directory.parent
    (beside / "data.txt").write_text("no program")
    (beside / "job-100").write_text("#!/bin/sh\n")
    (beside / "job-100").chmod(0o700)
    path = "environment = { PATH = '.:/usr/bin' }"
    ended = profile(home, command(*words, more=path), "--dry-run")
    assert ended.code == 3
    assert f"component job: command: {said}" in ended.complaint()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("jobs:totall", "module 'jobs' has no attribute 'totall'"),
        ("jbs:total", "No module named 'jbs'"),
        ("jobs:NUMBER", "cannot be called"),
        ("broken:total", "SyntaxError"),
        ("leaving:total", "SystemExit"),
    ],
)
def test_profile_dry_run_refuses_functions_that_cannot_be_imported(
    home: Home, target: str, said: str
) -> None:
    write_jobs(home.directory.parent)
    ended = profile(home, function(target), "--dry-run")
    assert ended.code == 3
    assert f"component job: callable: {target} cannot be imported: " in ended.complaint()
    assert said in ended.complaint()


def test_profile_dry_run_calls_no_component_and_writes_no_campaign(home: Home) -> None:
    beside = home.directory.parent
    write_jobs(beside)
    assert profile(home, function("jobs:total"), "--dry-run").code == 0
    assert profile(home, command("touch", "called"), "--dry-run").code == 0
    assert not (beside / "called").exists()
    assert not (home.directory / "campaigns").exists()


def test_profile_dry_run_accepts_programs_built_by_earlier_components(home: Home) -> None:
    build = command("cc", "-o", "job").replace('"cc"', '"true"').replace('"job"\nc', '"build"\nc')
    built = command("./job", more='after = ["build"]')
    assert profile(home, build + built, "--dry-run").code == 0
    assert profile(home, command("{trial_directory}/job"), "--dry-run").code == 0


def test_unknown_campaign_and_config_keys_suggest_the_closest_known_key(home: Home) -> None:
    grid = GRID.replace("[100, 200]", "{ start = 1, stop = 2, steps = 1 }")
    wrong = command("true", more='kid = "sort"')
    said = profile(home, wrong + "[runn]\n", "--dry-run", grid=grid).complaint()
    assert 'component job: kid: unknown key; did you mean "kind"?' in said
    assert 'steps: unknown key; did you mean "step"?' in said
    assert 'runn: unknown key; did you mean "run"?' in said
    home.config.write_text("pol_seconds = 3\nzzz = 1\n")
    said = profile(home, wrong).complaint()
    assert 'pol_seconds: unknown key; did you mean "poll_seconds"?' in said
    assert "zzz: unknown key; expected one of watch_paths, poll_seconds" in said


def write_jobs(directory: Path) -> None:
    called = "def total(rows, workers):\n    open('called', 'w').close()\n"
    (directory / "jobs.py").write_text(f"NUMBER = 1\n{called}")
    (directory / "broken.py").write_text("def total(:\n")
    (directory / "leaving.py").write_text(f"{called}\nraise SystemExit(0)\n")
