"""Tests of invalid epsilons: every entry point refuses them in one clear line."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.release.accountant import PrivacyBudget, calibrate, to_event
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.ledger_files import (
    LIFETIME_RECORD,
    PERIOD_LEDGER,
    create_file,
)
from fedperf_client.release.lifetime import LifetimeRecord
from fedperf_client.release.policy import Policy, load_policy, parse_policy, policy_template
from fedperf_shared.errors import ConfigurationError, FedperfError, StorageError
from fedperf_shared.releases.release import ReportParameters, SizeClass
from fedperf_shared.wire.codec import encode_schedule
from tests.unit.client.release.periods import BUDGET, schedule
from tests.unit.shared.console_programs import contents, run

BAD: dict[str, object] = {
    "0": 0,
    "0.0": 0.0,
    "-0.0": -0.0,
    "negative": -1.0,
    "tiny negative": -5e-324,
    "NaN": math.nan,
    "infinite": math.inf,
    "minus infinite": -math.inf,
    "missing": None,
    "off": "off",
    "true": True,
}
IN_TOML = {
    "NaN": "nan",
    "infinite": "inf",
    "minus infinite": "-inf",
    "off": '"off"',
    "true": "true",
}
IN_SQL = {name: value for name, value in BAD.items() if isinstance(value, float) and name != "NaN"}


def toml_of(name: str) -> str:
    """Return the default policy with this epsilon, or without the key if the value is None."""
    text = policy_template(SizeClass.SMALL, 90)
    value = IN_TOML.get(name, repr(BAD[name]))
    line = "" if BAD[name] is None else f"epsilon = {value}\n"
    assert "\nepsilon = 1.0\n" in text
    return text.replace("\nepsilon = 1.0\n", f"\n{line}")


def from_file(name: str, directory: Path) -> object:
    path = directory / "policy.toml"
    path.write_text(toml_of(name))
    return load_policy(path)


def from_mapping(name: str, directory: Path) -> object:
    budget = {"epsilon": BAD[name]}
    return parse_policy(
        {"size_class": "small", "nominal_workloads": 90, "budget": budget}, "a program"
    )


def from_lifetime_key(name: str, directory: Path) -> object:
    value = -1.0 if BAD[name] is None else BAD[name]
    budget = {"epsilon": 1.0, "lifetime_epsilon": value}
    return parse_policy(
        {"size_class": "small", "nominal_workloads": 90, "budget": budget}, "a program"
    )


def of_policy(name: str, directory: Path) -> object:
    return Policy(size_class=SizeClass.SMALL, nominal_workloads=90, epsilon=BAD[name])  # type: ignore[arg-type]


def of_budget(name: str, directory: Path) -> object:
    return PrivacyBudget(BAD[name], 1e-5)  # type: ignore[arg-type]


def of_delta(name: str, directory: Path) -> object:
    return PrivacyBudget(1.0, False if BAD[name] is True else BAD[name])  # type: ignore[arg-type]


def of_calibration(name: str, directory: Path) -> object:
    budget = PrivacyBudget(BAD[name], 1e-5)  # type: ignore[arg-type]
    return calibrate(lambda noise: [to_event(ReportParameters(noise, 1.0))], budget)


def of_noise(name: str, directory: Path) -> object:
    return ReportParameters(-1.0 if not isinstance(BAD[name], float) else BAD[name], 1.0)  # type: ignore[arg-type]


def of_lifetime(name: str, directory: Path) -> object:
    return PrivacyBudget(BAD[name], 1e-5).default_lifetime  # type: ignore[arg-type]


def of_new_ledger(name: str, directory: Path) -> object:
    budget = PrivacyBudget(BAD[name], 1e-5)  # type: ignore[arg-type]
    return PrivacyLedger.create(directory / "ledger.sqlite", budget, schedule())


def of_new_ledgers_lifetime(name: str, directory: Path) -> object:
    lifetime = PrivacyBudget(BAD[name], 1e-5)  # type: ignore[arg-type]
    return PrivacyLedger.create(directory / "ledger.sqlite", BUDGET, schedule(), lifetime=lifetime)


DOORS: list[Callable[[str, Path], object]] = [
    from_file,
    from_mapping,
    from_lifetime_key,
    of_policy,
    of_budget,
    of_delta,
    of_calibration,
    of_noise,
    of_lifetime,
    of_new_ledger,
    of_new_ledgers_lifetime,
]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_invalid_budget_is_refused_in_one_line_at_every_entry_point(
    door: Callable[[str, Path], object], name: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        door(name, tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    assert "must be" in message
    assert [path.name for path in tmp_path.iterdir() if path.name != "policy.toml"] == []


@pytest.mark.parametrize("name", BAD)
def test_daemon_with_invalid_epsilon_exits_with_3_and_writes_nothing(
    name: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    home.create(toml_of(name))
    before = contents(home.directory)
    ended = run(cli.main, "--home", home.directory, "daemon")
    assert (ended.code, ended.out) == (3, "")
    assert "budget.epsilon: " in ended.complaint()
    assert contents(home.directory) == before


@pytest.mark.parametrize("name", IN_SQL)
def test_ledger_or_lifetime_record_with_invalid_epsilon_is_damaged(
    name: str, tmp_path: Path
) -> None:
    ledger, lifetime = tmp_path / "ledger.sqlite", tmp_path / "lifetime.sqlite"
    value = IN_SQL[name]
    for path, layout in ((ledger, PERIOD_LEDGER), (lifetime, LIFETIME_RECORD)):
        schedules = [encode_schedule(schedule())] if path == ledger else []
        assert create_file(path, layout, value, 1e-5, *schedules)
    for opening in (lambda: PrivacyLedger.open(ledger), lambda: LifetimeRecord.open(lifetime)):
        with pytest.raises(StorageError, match="damaged: epsilon must be above 0"):
            opening()


def test_ledger_table_refuses_missing_or_nan_epsilon(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    for value in (None, math.nan):
        with pytest.raises(FedperfError, match="NOT NULL"):
            create_file(path, PERIOD_LEDGER, value, 1e-5, b"")
    assert not path.exists()
