"""A period that an older version began with DP-SGD: all of it is read, and nothing more leaves."""

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
"""What the version that made the home printed."""

LARGE = Policy(size_class=SizeClass.LARGE, nominal_workloads=4000)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    with zipfile.ZipFile(CASE / "home.zip") as packed:
        packed.extractall(tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def ledger(home: Home) -> PrivacyLedger:
    return PrivacyLedger.open(home.ledger(START))


def test_charges_cost_what_they_cost(ledger: PrivacyLedger) -> None:
    events = to_events(ledger.schedule.at_most())
    assert ledger.spent(open_at(0)) == FROZEN["spent"]
    assert epsilon(events, ledger.budget.delta) == FROZEN["epsilon"]
    assert replace_one_epsilon(events, ledger.budget.delta) == FROZEN["replace_one"]


def test_the_schedule_is_declared_with_the_same_bytes(ledger: PrivacyLedger) -> None:
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
def test_commands_print_what_they_printed(
    home: Home, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("fedperf_client.commands.release.now", lambda: START - timedelta(days=30))
    ended = run(cli.main, "--home", home.directory, *command.split(), "--json")
    today = json.dumps(FROZEN[command]).replace('"leaves_at"', '"send_at"')
    assert ended.json() == json.loads(today)


def test_the_budget_counts_what_was_released(home: Home, ledger: PrivacyLedger) -> None:
    ended = run(cli.main, "--home", home.directory, "budget", "--json")
    (lifetime, period) = ended.rows()
    assert lifetime["planned"] == period["planned"] == FROZEN["epsilon"]
    assert period["slots"] == len(ledger.schedule.slots)


def test_a_preview_shows_reports_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedperf_client.commands.release.now", lambda: open_at(0))
    ended = run(cli.main, "--home", home.directory, "release", "preview", "--json")
    assert [each["slot"] for each in ended.rows()] == ["report-1-0"]
    named = run(cli.main, "--home", home.directory, "release", "preview", "update-1-0")
    assert named.code == 3


def test_a_stored_update_is_read(ledger: PrivacyLedger) -> None:
    stored = ledger.stored(update_key(0))
    assert stored is not None
    update = decode_release(stored.payload)
    assert isinstance(update, ModelUpdate)
    np.testing.assert_array_equal(update.arrays[0], np.arange(6).reshape(2, 3) / 8)


def test_its_policy_is_unchanged_and_may_name_what_training_took(home: Home) -> None:
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


def test_a_new_period_by_dp_sgd_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="DP-SGD") as refused:
        plan_schedule(LARGE, calendar(method=ModelMethod.UNSPECIFIED))
    assert "\n" not in str(refused.value)


def test_who_takes_no_part_in_model_rounds_plans_reports_as_before() -> None:
    small = Policy(size_class=SizeClass.SMALL, nominal_workloads=4000)
    old, new = (plan_schedule(small, calendar(method=method)) for method in ModelMethod)
    assert old.schedule.slots == new.schedule.slots
    assert {each.key.kind for each in old.schedule.slots} == {ReleaseKind.RESIDUAL_REPORT}
    without = plan_schedule(LARGE, calendar(models=0, method=ModelMethod.UNSPECIFIED))
    assert without.schedule.slots
