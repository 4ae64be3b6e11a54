"""Campaigns without input size, parallelism or variation of them, and under interference."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedperf_campaigns.campaign.definition import WHOLE, load_campaign
from fedperf_campaigns.campaign.journal import (
    ResourceUse,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_client.home.config import Home
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from tests.unit.client.data_directories import fedperf, made_home
from tests.unit.client.pretrained_model import install_start
from tests.unit.client.profiling.campaign.campaigns import campaign_text, write_campaign
from tests.unit.client.profiling.campaign.nightly import with_trials

NOISE = (1.0, 1.012, 0.99)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COLUMNS", "200")
    install_start(tmp_path, monkeypatch)
    return made_home(tmp_path / "home")


def grid(roles: Mapping[str, str] = {}, **columns: str) -> str:
    named = [f'{role} = "{name}"' for role, name in roles.items()]
    values = [f"{name} = {written}" for name, written in columns.items()]
    return "\n".join(["[grid]", *named, "[grid.columns]", *values])


ROLES = {"size": "rows", "parallelism": "workers"}


def measured(home: Home, written: str, seconds: Mapping[int, float], **outcome: Any) -> None:
    """Store three repetitions of each configuration, by its number."""
    components = '[[component]]\nname = "job"\ncommand = ["true"]\n'
    file = write_campaign(
        home.directory.parent, campaign_text(components=components, grid=written, run="")
    )
    trials = [
        (
            TrialKey(number, WHOLE, repetition),
            TrialOutcome(
                **{"status": TrialStatus.OK, **outcome}, wall_seconds=each * NOISE[repetition]
            ),
        )
        for number, each in seconds.items()
        for repetition in range(3)
    ]
    with_trials(home, file, trials)


def ask(home: Home, *words: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    ended = fedperf(home, "predict", "--campaign", "nightly", *words, "--json")
    facts = ended.json()
    assert isinstance(facts, dict)
    return ended.code, facts, facts["predictions"][0]


FLAT = dict.fromkeys(range(4), 3.05)
LINEAR = {number: 0.2 + 3.0 * rows for number, rows in enumerate((1, 2, 3, 4))}


@pytest.mark.parametrize("workers", ["[1]", "[4]"])
@pytest.mark.parametrize(("seconds", "truth"), [(FLAT, 3.05), (LINEAR, 12.2)])
def test_predict_campaign_without_varied_parallelism_assumes_no_speedup(
    home: Home, workers: str, seconds: Mapping[int, float], truth: float
) -> None:
    measured(home, grid(ROLES, rows="[1, 2, 3, 4]", workers=workers), seconds)
    for asked in ("rows=4,workers=32", "rows=4,workers=2"):
        code, _, answer = ask(home, "--at", asked, "--deadline", "100h")
        assert (code, answer["meets_deadline"]) == (NO_FEASIBLE_SIZE, False)
        assert answer["no_promise"]
        assert answer["p50_seconds"] == pytest.approx(truth, rel=0.1)
        assert answer["extrapolating"]
    assert answer["upper_seconds"] / answer["lower_seconds"] > 2
    same = ask(home, "--at", f"rows=4,workers={workers[1]}", "--deadline", "100h")
    assert (same[0], same[2]["meets_deadline"], same[2]["no_promise"]) == (0, True, None)
    assert same[2]["upper_seconds"] / same[2]["lower_seconds"] < 1.3


def test_predict_campaign_with_flat_sizes_predicts_constant_time(home: Home) -> None:
    measured(home, grid(ROLES, rows="[1, 2, 3, 4]", workers="[1]"), FLAT)
    for rows in (8, 100, 1000):
        _, _, answer = ask(home, "--at", f"rows={rows}", "--deadline", "2s")
        assert answer["p50_seconds"] == pytest.approx(3.05, rel=0.15)
        assert answer["probability"] < 0.5


def test_predict_campaign_with_linear_sizes_extrapolates_linearly(home: Home) -> None:
    measured(home, grid(ROLES, rows="[1, 2, 3, 4]", workers="[1]"), LINEAR)
    assert ask(home, "--at", "rows=8")[2]["p50_seconds"] == pytest.approx(24.2, rel=0.15)


@pytest.mark.parametrize(
    ("roles", "columns", "asked"),
    [
        ({"size": "rows"}, {"rows": "[1, 2, 3, 4]"}, "rows=3"),
        ({"parallelism": "workers"}, {"workers": "[1, 2, 3, 4]"}, "workers=3"),
        ({}, {"k": "[1, 2, 3, 4]"}, "k=3"),
        ({}, {"mode": '["a", "b", "c", "d"]'}, "mode=c"),
    ],
)
def test_predict_campaign_works_without_size_or_parallelism_role(
    home: Home, roles: Mapping[str, str], columns: dict[str, str], asked: str
) -> None:
    measured(home, grid(roles, **columns), LINEAR)
    code, facts, answer = ask(home, "--at", asked, "--deadline", "1h")
    assert (code, answer["meets_deadline"]) == (0, True)
    assert answer["p50_seconds"] == pytest.approx(9.2, rel=0.1)
    assert len(facts["cheapest_feasible"]) == 1
    assert ask(home, "--at", asked, "--deadline", "1s")[0] == NO_FEASIBLE_SIZE
    for deadline in ("1h", "1s"):
        words = ("--campaign", "nightly", "--at", asked, "--deadline", deadline)
        assert "None" not in fedperf(home, "predict", *words).out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("roles", "columns", "rows_known"),
    [
        ({"size": "rows"}, {"rows": "[1, 2]"}, 1.0),
        ({"parallelism": "workers"}, {"workers": "[1, 2]"}, 0.0),
        ({}, {"k": "[3]"}, 0.0),
    ],
)
def test_campaign_without_size_or_parallelism_is_profiled_and_stored(
    home: Home, tmp_path: Path, roles: Mapping[str, str], columns: dict[str, str], rows_known: float
) -> None:
    text = campaign_text(grid=grid(roles, **columns), run="repetitions = 1\nretries = 0")
    file = write_campaign(tmp_path, text)
    assert fedperf(home, "profile", file).code == 0
    assert "Wall time" in (home.directory / "campaigns/nightly/report.html").read_text()
    runs = fedperf(home, "runs", "--json").json()
    assert isinstance(runs, list)
    assert {each["rows_known"] for each in runs} == {rows_known}
    name = next(iter(columns))
    assert ask(home, "--at", f"{name}=3")[2]["p50_seconds"] > 0


def test_predict_campaign_far_beyond_measured_parallelism_meets_no_deadline(home: Home) -> None:
    seconds = {0: 40.0, 1: 20.3, 2: 10.4}
    measured(home, grid(ROLES, rows="[1]", workers="[1, 2, 4]"), seconds)
    assert ask(home, "--at", "workers=32", "--deadline", "1h")[0] == 0
    code, _, answer = ask(home, "--at", "workers=33", "--deadline", "1h")
    assert (code, answer["meets_deadline"]) == (NO_FEASIBLE_SIZE, False)
    said = fedperf(
        home, "predict", "--campaign", "nightly", "--at", "workers=33", "--deadline", "1h"
    ).out
    assert "no promise" in said


@pytest.mark.parametrize(
    ("busy", "cpu", "factor"), [(3.56, 0.8, 3.5), (1.5, 2.9, 2), (3.9, None, 9)]
)
def test_predict_campaign_under_interference_has_wider_interval_and_note(
    home: Home, busy: float, cpu: float | None, factor: float
) -> None:
    written = grid(ROLES, rows="[1, 2, 3, 4]", workers="[1]")
    noisy = {"status": TrialStatus.NOISY, "foreign_cores": busy}
    measured(home, written, FLAT, **noisy, resources=ResourceUse(cpu_seconds=cpu))
    _, facts, answer = ask(home, "--at", "rows=2")
    load = facts["load"]
    assert (load["runs"], load["disturbed"], load["busy_cores"]) == (12, 12, busy)
    assert (load["machine_cores"], load["cpu_seconds"]) == (4, cpu)
    assert answer["p50_seconds"] / answer["lower_seconds"] >= factor
    said = fedperf(home, "predict", "--campaign", "nightly", "--at", "rows=2").out
    assert f"all of 12 runs were made while others kept {busy:.1f} of 4 cores busy" in said


def test_predict_campaign_without_interference_has_no_note(home: Home) -> None:
    measured(home, grid(ROLES, rows="[1, 2, 3, 4]", workers="[1]"), FLAT)
    _, facts, answer = ask(home, "--at", "rows=2")
    assert (facts["load"]["disturbed"], facts["load"]["sentence"]) == (0, None)
    assert answer["upper_seconds"] / answer["lower_seconds"] < 1.2


@pytest.mark.parametrize(
    ("component", "unused"),
    [
        ('command = ["true", "{rows}"]', ["workers", "k"]),
        ('command = ["env"]\nenvironment = { R = "{rows}", W = "{workers}" }', ["k"]),
        ('command = ["sh", "-c", "{{workers}}", "{rows}", "{k}"]', ["workers"]),
        ('callable = "os:getcwd"', []),
    ],
)
def test_profile_dry_run_names_unused_columns(
    home: Home, tmp_path: Path, component: str, unused: list[str]
) -> None:
    written = grid(ROLES, rows="[1, 2]", workers="[1]", k="[1, 2]")
    components = f'[[component]]\nname = "job"\n{component}\n'
    file = write_campaign(tmp_path, campaign_text(components=components, grid=written))
    assert load_campaign(file).grid.fixed == {"workers"}
    facts = fedperf(home, "profile", file, "--dry-run", "--json").json()
    assert isinstance(facts, dict)
    assert facts["unused_columns"] == unused
    [said] = re.findall(
        "unused columns: ([^:\n]*)", fedperf(home, "profile", file, "--dry-run").out
    )
    assert said == (", ".join(unused) or "none")


def test_predict_campaign_accepts_number_suffixes_and_old_set_option(home: Home) -> None:
    measured(home, grid(ROLES, rows="[1000, 2000]", workers="[1]"), {0: 1.0, 1: 2.0})
    found = [ask(home, *words)[2] for words in (("--at", "rows=2k"), ("--set", "rows=2000"))]
    assert found[0] == found[1]
