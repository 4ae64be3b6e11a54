"""`fedperf doctor`: each check detects its defect and does not hide other defects."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint, PackageNotFoundError
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedperf_client import cli, sources
from fedperf_client.commands.checks import (
    CHECKS,
    Environment,
    Finding,
    Severity,
    examine,
)
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import KEY_FILE, Membership, load_or_create_key
from fedperf_client.node.exchange import ExchangeError, NoMemberError
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.ledger_files import counter_path
from fedperf_client.release.lifetime import lifetime_path
from fedperf_client.release.policy import load_policy
from fedperf_client.release.schedule import plan_schedule
from fedperf_client.sources import BrokenKindError
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import Status
from fedperf_shared.identity import new_private_key
from tests.unit.client.executions import make_execution
from tests.unit.client.pretrained_model import install_start
from tests.unit.client.release.periods import START, calendar
from tests.unit.shared.console_programs import Ended, contents, run

NOW = START + timedelta(days=1)
VERSIONS = {"fedperf": "0.1.0", "flwr": "1.41.2", "torch": "2.13.0+cpu", "duckdb": "2.0.0"}


def answering(now: datetime) -> Callable[[Membership, ec.EllipticCurvePrivateKey], Status]:
    def status(membership: Membership, key: ec.EllipticCurvePrivateKey) -> Status:
        del membership, key
        return Status(now, 0, 1, 1, 0)

    return status


def failing(error: FedperfError) -> Callable[[Membership, ec.EllipticCurvePrivateKey], Status]:
    def status(membership: Membership, key: ec.EllipticCurvePrivateKey) -> Status:
        raise error

    return status


def version(name: str) -> str:
    if name not in VERSIONS:
        raise PackageNotFoundError(name)
    return VERSIONS[name]


AROUND = Environment(
    now=lambda: NOW,
    disk=lambda path: (100 * 10**9, 50 * 10**9),
    requirements=lambda: ["flwr<1.43,>=1.41", "torch", "duckdb>=2", "ruff; extra == 'dev'"],
    python=lambda: ">=3.11",
    version=version,
    missing_packages=lambda: {"engines": [], "join": ["flwr", "grpcio"]},
    status=answering(NOW),
    kinds=lambda: {"history": None},
)


def certificate(
    key: ec.EllipticCurvePrivateKey, *, begins: datetime | None = None, ends: datetime | None = None
) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins or NOW - timedelta(days=1))
        .not_valid_after(ends or NOW + timedelta(days=365))
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def join(home: Home, **changes: bytes) -> None:
    key = load_or_create_key(home.identity)
    coordinator = new_private_key()
    public = coordinator.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    parts = {
        "certificate": certificate(key),
        "ca_certificate": certificate(coordinator),
        "coordinator_public_key": public,
        **changes,
    }
    Membership(
        organization_id=b"\1" * 16, exchange_address="there:1", fleet_address="there:2", **parts
    ).save(home.identity)


def begin_period(home: Home) -> PrivacyLedger:
    policy = load_policy(home.policy)
    planned = plan_schedule(policy, calendar())
    return PrivacyLedger.create(
        home.ledger(START), planned.budget, planned.schedule, lifetime=policy.lifetime
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a healthy data directory: joined, with executions and an active period."""
    home = Home(tmp_path_factory.mktemp("template") / "home")
    assert run(cli.main, "--home", home.directory, "init").code == 0
    home.config.write_text('watch_paths = [".."]\n')
    with ExecutionStore.open(home.store) as store:
        store.add([make_execution(n) for n in range(3)])
    join(home)
    begin_period(home)
    return home


@pytest.fixture(scope="module", autouse=True)
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        install_start(tmp_path_factory.mktemp("start"), patch)
        yield


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Home:
    """Return a copy of the template that a test may damage."""
    shutil.copytree(template.directory, tmp_path / "home")
    return Home(tmp_path / "home")


def of(home: Home, check: str, around: Environment = AROUND) -> list[Finding]:
    return [each for each in examine(home, around) if each.check == check]


def bad(home: Home, around: Environment = AROUND) -> set[str]:
    return {each.check for each in examine(home, around) if each.verdict is not Severity.OK}


@pytest.mark.slow
def test_doctor_on_healthy_data_directory_passes_all_checks_and_adds_no_files(home: Home) -> None:
    before = {path.name for path in contents(home.directory)}
    found = examine(home, AROUND)
    assert [each for each in found if each.verdict is not Severity.OK] == []
    assert list(dict.fromkeys(each.check for each in found)) == list(CHECKS)
    said = " ".join(each.what for each in found)
    for fact in ("3 runs of 3 workloads, schema 7", "flwr 1.41.2", "there:1 responds"):
        assert fact in said
    assert {path.name for path in contents(home.directory)} == before


@pytest.mark.slow
def test_doctor_on_new_data_directory_finds_no_problem(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    assert run(cli.main, "--home", home.directory, "init").code == 0
    assert bad(home) == set()
    assert {path.name for path in contents(home.directory)} == {"config.toml", "policy.toml"}


def test_doctor_on_missing_directory_reports_it_and_creates_no_directory(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "missing")
    [found] = of(home, "directory")
    assert (found.verdict, found.advice) == (Severity.PROBLEM, "run: fedperf init")
    assert not (tmp_path / "deep").exists()


Spoil = Callable[[Home], None]


def write(path: str, content: str | bytes) -> Spoil:
    def spoil(home: Home) -> None:
        target = home.directory / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    return spoil


def forget(path: str) -> Spoil:
    return lambda home: (home.directory / path).unlink()


def _old_certificate(home: Home) -> None:
    key = load_or_create_key(home.identity)
    join(home, certificate=certificate(key, ends=NOW - timedelta(hours=1)))


def _young_certificate(home: Home) -> None:
    key = load_or_create_key(home.identity)
    join(home, certificate=certificate(key, begins=NOW + timedelta(hours=1)))


def _old_authority(home: Home) -> None:
    join(home, ca_certificate=certificate(new_private_key(), ends=NOW - timedelta(hours=1)))


def _certificate_of_another(home: Home) -> None:
    join(home, certificate=certificate(new_private_key()))


PROBLEMS: dict[str, tuple[Spoil, str, str]] = {
    "open directory": (lambda home: home.directory.chmod(0o750), "directory", "chmod 700"),
    "no TOML": (write("config.toml", "watch_paths = ["), "configuration", "is not TOML"),
    "no config": (forget("config.toml"), "configuration", "fedperf init"),
    "policy": (write("policy.toml", "epsilon = 0"), "policy", "epsilon"),
    "store": (write("executions.sqlite", "hello" * 500), "executions", "not a store"),
    "ledger": (write("ledger-20270101T000000.sqlite", "x" * 5000), "ledgers", "ledger-2027"),
    "ledger and budget": (write("ledger-20270101T000000.sqlite", "x" * 5000), "budget", "2027"),
    "lifetime": (lambda home: lifetime_path(home.directory).unlink(), "ledgers", "reconcile"),
    "no key": (forget(f"identity/{KEY_FILE}"), "identity", "no private key"),
    "key": (write(f"identity/{KEY_FILE}", "x"), "identity", "not a private key"),
    "open key": (
        lambda home: (home.identity / KEY_FILE).chmod(0o644),
        "identity",
        "chmod 600",
    ),
    "half joined": (forget("identity/authority.pem"), "identity", "a part of a membership"),
    "addresses": (write("identity/addresses.txt", "x"), "identity", "addresses.txt is damaged"),
    "certificate": (write("identity/certificate.pem", "x"), "identity", "certificate is damaged"),
    "coordinator key": (write("identity/coordinator.pem", "x"), "identity", "not a key"),
    "expired": (_old_certificate, "identity", "was valid until"),
    "not yet": (_young_certificate, "identity", "clock"),
    "authority expired": (_old_authority, "identity", "authority was valid until"),
    "another key": (_certificate_of_another, "identity", "for another key"),
    "no server": (
        write("config.toml", 'watch_paths = ["http://127.0.0.1:1"]'),
        "history",
        "http://127.0.0.1:1: cannot be reached",
    ),
    "no history": (write("config.toml", 'watch_paths = ["nowhere"]'), "history", "does not exist"),
    "model": (
        write("models/shared.safetensors", "x" * 100),
        "models",
        "the shared model cannot be read",
    ),
    "correction": (write("models/correction.safetensors", "x"), "models", "cannot be read"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_doctor_reports_each_defect_with_advice_and_runs_all_other_checks(
    case: str, home: Home
) -> None:
    spoil, check, said = PROBLEMS[case]
    spoil(home)
    before = contents(home.directory)
    found = examine(home, AROUND)
    problems = [each for each in found if each.verdict is Severity.PROBLEM and each.check == check]
    assert any(said in f"{each.what}; {each.advice}" for each in problems), found
    assert {each.check for each in found} == set(CHECKS)
    after = contents(home.directory)
    assert {path: after.get(path) for path in before if "-shm" not in path.name} == {
        path: each for path, each in before.items() if "-shm" not in path.name
    }


def test_doctor_reports_ledger_without_its_counter_as_problem(home: Home) -> None:
    ledger = PrivacyLedger.open(home.ledgers[0])
    first = ledger.schedule.slots[0].key
    ledger.reserve(first, ledger.schedule.opens_at(first))
    assert bad(home) == set()
    counter_path(ledger.path).unlink()
    assert bad(home) == {"ledgers"}
    assert any("fedperf reconcile" in each.advice for each in of(home, "ledgers"))


def test_doctor_warns_when_lifetime_budget_has_no_room_for_another_period(home: Home) -> None:
    shutil.rmtree(home.directory)
    assert run(cli.main, "--home", home.directory, "init").code == 0
    text = home.policy.read_text()
    assert "epsilon = 1.0" in text
    home.policy.write_text(text.replace("epsilon = 1.0", "epsilon = 1.0\nlifetime_epsilon = 1.5"))
    begin_period(home)
    [warning] = [each for each in of(home, "budget") if each.verdict is Severity.WARNING]
    assert "another one like it cannot begin" in warning.what


def test_doctor_warns_of_certificate_expiring_within_a_month(home: Home) -> None:
    key = load_or_create_key(home.identity)
    for days, verdict in ((29, Severity.WARNING), (31, Severity.OK)):
        join(home, certificate=certificate(key, ends=NOW + timedelta(days=days)))
        assert of(home, "identity")[0].verdict is verdict


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        (answering(NOW + timedelta(seconds=59)), Severity.OK, "responds"),
        (answering(NOW - timedelta(seconds=61)), Severity.WARNING, "61 s"),
        (answering(NOW + timedelta(seconds=301)), Severity.PROBLEM, "301 s behind"),
        (failing(ExchangeError("no coordinator answers")), Severity.WARNING, "no coordinator"),
        (failing(NoMemberError("there:1")), Severity.PROBLEM, "does not know this organization"),
    ],
)
def test_doctor_grades_coordinator_clock_skew_and_connection_errors(
    home: Home,
    status: Callable[[Membership, ec.EllipticCurvePrivateKey], Status],
    verdict: Severity,
    said: str,
) -> None:
    [found] = of(home, "coordinator", replace(AROUND, status=status))
    assert found.verdict is verdict
    assert said in found.what


def test_doctor_before_joining_contacts_no_coordinator(home: Home) -> None:
    shutil.rmtree(home.identity)
    [found] = of(home, "coordinator", replace(AROUND, status=failing(FedperfError("asked"))))
    assert found.verdict is Severity.OK
    assert not home.identity.exists()
    load_or_create_key(home.identity)  # the state after a refused join
    assert bad(home) == set()


@pytest.mark.parametrize(
    ("total", "free", "verdict"),
    [
        (10**10, 10**9, Severity.OK),
        (10**10, 10**9 - 1, Severity.WARNING),
        (10**12, 5 * 10**10, Severity.OK),
        (10**12, 5 * 10**10 - 1, Severity.WARNING),
    ],
)
def test_doctor_warns_of_little_free_disk_space(
    home: Home, total: int, free: int, verdict: Severity
) -> None:
    [found] = of(home, "disk", replace(AROUND, disk=lambda path: (total, free)))
    assert found.verdict is verdict


def test_doctor_names_source_kind_that_fails_to_load(home: Home) -> None:
    broken = BrokenKindError("flink", ImportError("no module"))
    around = replace(AROUND, kinds=lambda: {"flink": broken, "history": None})
    assert bad(home, around) == {"history"}
    assert "'flink' does not work" in of(home, "history", around)[0].what


def test_installed_kinds_reports_unloadable_entry_point_as_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = (
        EntryPoint("flink", "nowhere.at_all:open_log", sources.GROUP),
        EntryPoint("history", "fedperf_client.sources.history_file:open_history", sources.GROUP),
    )
    monkeypatch.setattr(sources, "entry_points", lambda group: entries)
    sources._kinds.cache_clear()
    found = sources.installed_kinds()
    sources._kinds.cache_clear()
    assert isinstance(found["flink"], BrokenKindError)
    assert found["history"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requirements": lambda: ["flwr<1.41"]}, "flwr 1.41.2 is not supported"),
        ({"requirements": lambda: ["polars>=2"]}, "polars is not installed"),
        (
            {"requirements": lambda: [f"flwr<1.41; extra == '{each}'" for each in ("all", "join")]},
            "flwr 1.41.2 is not supported",
        ),
        ({"python": lambda: ">=99"}, ">=99 is needed"),
    ],
)
def test_doctor_reports_unsupported_package_and_python_versions(
    home: Home, changes: dict[str, Callable[[], object]], said: str
) -> None:
    around = replace(AROUND, **changes)  # type: ignore[arg-type]
    problems = [each for each in of(home, "versions", around) if each.verdict is Severity.PROBLEM]
    assert [said in each.what for each in problems] == [True]


@pytest.mark.parametrize(
    ("module", "verdict"), [("grpc", Severity.OK), ("nobody_has_this", Severity.PROBLEM)]
)
def test_doctor_check_with_missing_module_does_not_stop_other_checks(
    home: Home, module: str, verdict: Severity
) -> None:
    def missing() -> Mapping[str, Exception | None]:
        raise ModuleNotFoundError(name=module)

    found = examine(home, replace(AROUND, kinds=missing))
    assert [each.verdict for each in found if each.check == "history"] == [verdict]
    assert {each.check for each in found} == set(CHECKS)


def test_doctor_warns_when_package_metadata_is_missing(home: Home) -> None:
    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    [found] = of(home, "versions", replace(AROUND, version=none))
    assert found.verdict is Severity.WARNING


def test_doctor_warns_of_damaged_predictor_file(home: Home) -> None:
    home.predictor.write_bytes(b"x" * 100)
    assert bad(home) == {"models"}
    assert of(home, "models")[-1].verdict is Severity.WARNING


def test_doctor_check_that_raises_is_a_problem_and_does_not_stop_other_checks(home: Home) -> None:
    def broken(path: Path) -> tuple[int, int]:
        raise ZeroDivisionError(str(path))

    [found] = of(home, "disk", replace(AROUND, disk=broken))
    assert found.verdict is Severity.PROBLEM
    assert "ZeroDivisionError" in found.what
    assert bad(home, replace(AROUND, disk=broken)) == {"disk"}


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


@pytest.fixture
def never_joined(home: Home) -> Home:
    shutil.rmtree(home.identity)
    return home


@pytest.mark.slow
def test_doctor_command_exits_with_3_for_a_problem(never_joined: Home) -> None:
    assert fedperf(never_joined, "doctor").code == 0
    never_joined.config.write_text("histroy = 1")
    ended = fedperf(never_joined, "doctor")
    assert ended.code == 3
    assert "problem  configuration: " in ended.out
    assert "histroy" in ended.out
    rows = fedperf(never_joined, "doctor", "--json")
    assert rows.code == 3
    assert {"check", "verdict", "what", "advice"} == set(rows.rows()[0])
    assert "problem" in {row["verdict"] for row in rows.rows()}


@pytest.mark.slow
def test_doctor_accepts_installed_packages_and_source_kinds(never_joined: Home) -> None:
    around = Environment(lambda: datetime.now(UTC))
    for check in ("versions", "history", "disk"):
        assert Severity.PROBLEM not in {each.verdict for each in of(never_joined, check, around)}
    assert "DuckDB profile" in of(never_joined, "history", around)[0].what


def test_doctor_warns_of_unreachable_coordinator_with_its_address(home: Home) -> None:
    found = Membership.load(home.identity)
    replace(found, exchange_address="127.0.0.1:9").save(home.identity)
    real = Environment(lambda: NOW)
    [said] = of(home, "coordinator", replace(AROUND, status=real.status))
    assert said.verdict is Severity.WARNING
    assert "127.0.0.1:9" in said.what
