"""Tests of a period begun with DP-SGD by an older version: it is read, but sends no update."""

import hashlib
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.release.accountant import epsilon, replace_one_epsilon, to_events
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import Policy, load_policy, parse_policy, pending_changes
from fedperf_client.release.schedule import plan_schedule
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.period import ModelMethod
from fedperf_shared.releases.release import (
    ModelUpdate,
    ReleaseKind,
    ReportParameters,
    SizeClass,
    TrainingParameters,
)
from fedperf_shared.wire.codec import decode_release, decode_schedule, encode_schedule
from tests.unit.client.release.periods import START, calendar, open_at, update_key
from tests.unit.shared.console_programs import run

CASE = Path(__file__).parents[3] / "cases" / "dp_sgd"
FROZEN: dict[str, Any] = json.loads((CASE / "frozen.json").read_text())
"""Output of the version that created the data directory."""

LARGE = Policy(size_class=SizeClass.LARGE, nominal_workloads=4000)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    with zipfile.ZipFile(CASE / "home.zip") as packed:
        packed.extractall(tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def ledger(home: Home) -> PrivacyLedger:
    return PrivacyLedger.open(home.ledger(START))


def rounded(value: object) -> object:
    """Return a JSON value with nine digits, on which all versions of numpy agree."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_dp_sgd_ledger_has_unchanged_cost(ledger: PrivacyLedger) -> None:
    events = to_events(ledger.schedule.at_most())
    assert rounded(ledger.spent(open_at(0))) == rounded(FROZEN["spent"])
    assert rounded(epsilon(events, ledger.budget.delta)) == rounded(FROZEN["epsilon"])
    assert rounded(replace_one_epsilon(events, ledger.budget.delta)) == rounded(
        FROZEN["replace_one"]
    )


def test_dp_sgd_schedule_is_encoded_to_the_same_bytes(ledger: PrivacyLedger) -> None:
    declared = encode_schedule(ledger.schedule)
    assert hashlib.sha256(declared).hexdigest() == FROZEN["sha256 of the schedule"]
    assert decode_schedule(declared) == ledger.schedule
    assert ledger.schedule.calendar.model_method is ModelMethod.UNSPECIFIED
    kinds = {type(each.parameters) for each in ledger.schedule.slots}
    assert kinds == {ReportParameters, TrainingParameters}


@pytest.mark.parametrize(
    "command",
    ["release list", "release slots", "release show update-0-0", "release show report-0-0"],
)
def test_dp_sgd_release_commands_print_the_same_json(
    home: Home, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("fedperf_client.commands.release.now", lambda: START - timedelta(days=30))
    ended = run(cli.main, "--home", home.directory, *command.split(), "--json")
    today = json.dumps(FROZEN[command]).replace('"leaves_at"', '"send_at"')
    assert rounded(ended.json()) == rounded(json.loads(today))


def test_dp_sgd_budget_command_includes_planned_updates(home: Home, ledger: PrivacyLedger) -> None:
    ended = run(cli.main, "--home", home.directory, "budget", "--json")
    (lifetime, period) = ended.rows()
    assert lifetime["planned"] == period["planned"]
    assert period["planned"] == pytest.approx(FROZEN["epsilon"], rel=1e-9)
    assert period["slots"] == len(ledger.schedule.slots)


def test_dp_sgd_preview_shows_only_reports(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedperf_client.commands.release.now", lambda: open_at(0))
    ended = run(cli.main, "--home", home.directory, "release", "preview", "--json")
    assert [each["slot"] for each in ended.rows()] == ["report-1-0"]
    named = run(cli.main, "--home", home.directory, "release", "preview", "update-1-0")
    assert named.code == 3


def test_dp_sgd_stored_update_is_decoded(ledger: PrivacyLedger) -> None:
    stored = ledger.stored(update_key(0))
    assert stored is not None
    update = decode_release(stored.payload)
    assert isinstance(update, ModelUpdate)
    np.testing.assert_array_equal(update.arrays[0], np.arange(6).reshape(2, 3) / 8)


def test_dp_sgd_policy_is_unchanged_and_training_keys_are_accepted(home: Home) -> None:
    policy, [path] = load_policy(home.policy), home.ledgers
    assert pending_changes(home, policy, PrivacyLedger.open(path).schedule) == ()
    named = parse_policy(
        {
            "size_class": "large",
            "nominal_workloads": 4000,
            "budget": {"epsilon": 1.0},
            "training": {"clip_norm": 0.5, "sampling_probability": 0.1, "steps": 7},
        },
        "here",
    )
    assert named == LARGE


def test_plan_schedule_with_dp_sgd_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="DP-SGD") as refused:
        plan_schedule(LARGE, calendar(method=ModelMethod.UNSPECIFIED))
    assert "\n" not in str(refused.value)


def test_plan_schedule_without_model_rounds_is_independent_of_model_method() -> None:
    small = Policy(size_class=SizeClass.SMALL, nominal_workloads=4000)
    old, new = (plan_schedule(small, calendar(method=method)) for method in ModelMethod)
    assert old.schedule.slots == new.schedule.slots
    assert {each.key.kind for each in old.schedule.slots} == {ReleaseKind.RESIDUAL_REPORT}
    without = plan_schedule(LARGE, calendar(models=0, method=ModelMethod.UNSPECIFIED))
    assert without.schedule.slots
