"""The checks of `fedperf doctor`: each examines one part of the set-up and reports findings.

A finding is ok, a warning or a problem, with advice. A check that fails is itself reported as a
problem and hides no other. The checks change nothing, except that an older store is upgraded, as
by every command. They contact only the coordinator that was joined, once, for its status. Clock,
disk, network and packages are passed in as `Environment`.

No check reports whether a daemon runs on this directory, because a daemon leaves no reliable mark.
"""

import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, unique
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fedperf_client.home.config import Home
from fedperf_client.home.store import SCHEMA_VERSION, ExecutionStore
from fedperf_client.prediction.ensemble.changes import load_drift_streams
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.history import Spending, read_spending
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.lifetime import LifetimeRecord, lifetime_path
from fedperf_client.release.policy import (
    effective_policy,
    format_modes,
    load_policy,
    pending_changes,
)
from fedperf_client.sources import installed_kinds, list_address
from fedperf_shared.errors import (
    ConfigurationError,
    ConnectionRefusedByPeerError,
    FedperfError,
    InvalidInputError,
)
from fedperf_shared.runtime.addresses import Address
from fedperf_shared.runtime.extras import PACKAGE, extra_with, extras, missing_packages
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from fedperf_client.node.enrollment import Membership
    from fedperf_shared.exchange import Status

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # rights of all users but the owner of a file
SHOWN_PACKAGES = ("flwr", "torch", "duckdb")
LITTLE_BYTES = 10**9
LITTLE_SHARE = 0.05  # less free space than this, or than this share of the disk, is a warning
EXPIRES_SOON = timedelta(days=30)
NOTABLE_SKEW = timedelta(seconds=60)
_TIMEOUT_SECONDS = 5.0


@unique
class Severity(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check; `advice` is empty if nothing is to be done."""

    check: str
    verdict: Severity
    what: str
    advice: str = ""


def _request_status(membership: "Membership", key: "ec.EllipticCurvePrivateKey") -> "Status":
    from tenacity import Retrying, stop_after_attempt

    from fedperf_client.node.exchange import ExchangeClient

    once = Retrying(stop=stop_after_attempt(1), reraise=True)
    with ExchangeClient(membership, key, retry=once, timeout_seconds=_TIMEOUT_SECONDS) as exchange:
        return exchange.status()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside of the data directory that checks read; by default that of the process.

    Attributes:
        now: the current time, with time zone.
        disk: total and free bytes of the disk of a path.
        requirements: requirements of the package, from its metadata.
        python: allowed versions of Python.
        version: version of an installed package. Raises PackageNotFoundError for any other.
        missing_packages: by extra, its packages that are not installed.
        status: the coordinator's reply to a member that requests its status.
        kinds: installed kinds of sources, with the error of each that does not load.
    """

    now: Callable[[], datetime]
    disk: Callable[[Path], tuple[int, int]] = lambda path: shutil.disk_usage(path)[::2]
    requirements: Callable[[], Sequence[str]] = lambda: metadata.requires(PACKAGE) or []
    python: Callable[[], str] = lambda: metadata.metadata(PACKAGE)["Requires-Python"] or ""
    version: Callable[[str], str] = metadata.version
    missing_packages: Callable[[], Mapping[str, Sequence[str]]] = lambda: {
        extra: [*missing_packages(extra)] for extra in extras()
    }
    status: "Callable[[Membership, ec.EllipticCurvePrivateKey], Status]" = _request_status
    kinds: Callable[[], Mapping[str, Exception | None]] = installed_kinds


_Statement = tuple[Severity, str, str]
_Check = Callable[[Home, Environment], Iterator[_Statement]]


def _ok(what: str) -> _Statement:
    return Severity.OK, what, ""


def _warning(what: str, advice: str) -> _Statement:
    return Severity.WARNING, what, advice


def _problem(what: str, advice: str = "") -> _Statement:
    return Severity.PROBLEM, what, advice


def _check_directory(home: Home, _: Environment) -> Iterator[_Statement]:
    path = home.directory
    if not path.is_dir():
        yield _problem(f"{path} is not a directory", "run: fedperf init")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        yield _problem(f"{path} is open to others (mode {mode:04o})", f"run: chmod 700 {path}")
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        yield _problem(f"{path} cannot be written: {error.strerror}", "let its owner write there")
        return
    yield _ok(f"{path} can be written")


def _check_configuration(home: Home, _: Environment) -> Iterator[_Statement]:
    paths = home.load_config().watch_paths
    yield _ok(f"{home.config.name}: {counted(len(paths), 'watched path')}")


def _check_policy(home: Home, _: Environment) -> Iterator[_Statement]:
    policy = load_policy(home.policy)
    yield _ok(f"{home.policy.name}: size class {policy.size_class}")
    for path in home.ledgers[-1:]:
        schedule = PrivacyLedger.open(path).schedule
        yield _ok(format_modes(effective_policy(home, policy), schedule))
        for pending in pending_changes(home, policy, schedule):
            lets_out = pending.lets_out
            what = f"{home.policy.name}: {pending}" + (f"; {lets_out}" if lets_out else "")
            if pending.is_of_mode:
                yield _warning(
                    what, "start the daemon again once that is meant; until then, withhold slots"
                )
            elif lets_out:
                yield _warning(what, "if that is not meant, set it back before that day")
            else:
                yield _ok(what)


def _check_store(home: Home, _: Environment) -> Iterator[_Statement]:
    if not home.store.exists():
        yield _ok("no runs are stored; store some with: fedperf ingest FILE")
        return
    with ExecutionStore.open(home.store) as store:
        counts = store.counts()
    yield _ok(
        f"{counted(counts.executions, 'run')} of {counted(counts.workloads, 'workload')}, "
        f"schema {SCHEMA_VERSION}"
    )


def _check_drift(home: Home, environment: Environment) -> Iterator[_Statement]:
    if not home.store.exists():
        yield _ok("no runs are stored")
        return
    with ExecutionStore.open(home.store) as store:
        streams = load_drift_streams(store, keep=False)
    if not streams:
        yield _ok("no successful runs are stored")
        return
    drifts = [drift for stream in streams for drift in stream.drifts[-1:]]
    recent = [each for each in drifts if each.is_notable and each.is_recent(environment.now())]
    for each in recent:
        yield _warning(
            f"{each.stream_name}: {each.sentence}",
            "find out what changed; predictions adjust to it. Details: fedperf drift",
        )
    if not recent:
        yield _ok(f"no recent change in {counted(len(streams), 'kind')} of work")


def _check_ledgers(home: Home, _: Environment) -> Iterator[_Statement]:
    if not home.ledgers:
        yield _ok("no period has begun")
        return
    for path in home.ledgers:
        yield _agreement(path.name, PrivacyLedger.open(path).disagreement())
    record = LifetimeRecord.open(lifetime_path(home.directory))
    yield _agreement(record.path.name, record.disagreement())


def _agreement(name: str, disagreement: str | None) -> _Statement:
    if disagreement is None:
        return _ok(f"{name} agrees with its witness files")
    return _problem(
        f"{name}: {disagreement}; nothing is sent until that is decided",
        "if a backup was restored, run: fedperf reconcile",
    )


def _check_budget(home: Home, environment: Environment) -> Iterator[_Statement]:
    spending = read_spending(home.ledgers, at=environment.now())
    if not spending:
        yield _ok("nothing is spent: no period has begun")
        return
    lifetime, newest = spending[0], spending[-1]
    yield _ok(f"newest period: {_spent(newest)}")
    remaining = lifetime.budget.epsilon - lifetime.planned
    if remaining < newest.budget.epsilon:
        yield _warning(
            f"lifetime: epsilon {remaining:.4g} is left and the newest period needs "
            f"{newest.budget.epsilon:g}, so another one like it cannot begin",
            "lower budget.epsilon in policy.toml before the next period",
        )
        return
    yield _ok(f"lifetime: {_spent(lifetime)}")


def _spent(spending: Spending) -> str:
    return f"epsilon {spending.spent:.4g} of {spending.budget.epsilon:g} is spent"


def _check_identity(home: Home, environment: Environment) -> Iterator[_Statement]:
    from fedperf_client.node.enrollment import KEY_FILE
    from fedperf_shared.identity import public_bytes

    member = _membership(home)
    if member is None:
        yield _ok("not joined; a coordinator's operator provides the URL for: fedperf join URL")
        return
    membership, key = member
    mode = stat.S_IMODE((home.identity / KEY_FILE).stat().st_mode)
    if mode & OTHERS:
        yield _problem(
            f"the private key is open to others (mode {mode:04o})",
            f"run: chmod 600 {home.identity / KEY_FILE}",
        )
    certificate = _certificate("this organization's certificate", membership.certificate)
    if certificate.public_key() != key.public_key():
        yield _problem("the certificate is for another key", "restore both from one backup")
    yield _validity("this organization's certificate", certificate, environment.now())
    authority = _certificate("the coordinator's authority", membership.ca_certificate)
    yield _validity("the coordinator's authority", authority, environment.now())
    public_bytes(membership.coordinator_key)


def _check_coordinator(home: Home, environment: Environment) -> Iterator[_Statement]:
    from fedperf_client.node.exchange import MAX_CLOCK_SKEW, ClockSkewError, NoMemberError

    member = _membership(home)
    if member is None:
        yield _ok("not joined, so no coordinator was contacted")
        return
    try:
        skew = environment.status(*member).now - environment.now()
    except NoMemberError as error:
        yield _problem(str(error))
        return
    except ConnectionRefusedByPeerError as error:
        yield _warning(str(error), "predictions do not need it; releases wait")
        return
    if not abs(skew) <= MAX_CLOCK_SKEW:
        yield _problem(str(ClockSkewError(skew)))
    elif abs(skew) > NOTABLE_SKEW:
        yield _warning(f"the clocks differ by {abs(skew).total_seconds():.0f} s", "use NTP")
    else:
        address = member[0].exchange_address
        yield _ok(f"{address} responds, the clocks agree within {NOTABLE_SKEW.seconds} s")


def _membership(home: Home) -> "tuple[Membership, ec.EllipticCurvePrivateKey] | None":
    from fedperf_client.node.enrollment import Membership, is_member, load_or_create_key

    if not is_member(home.identity):
        return None
    return Membership.load(home.identity), load_or_create_key(home.identity)


def _certificate(name: str, pem: bytes) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigurationError(
            f"{name} is damaged; restore the identity from a backup, or ask for a new invitation"
        ) from None


def _validity(name: str, certificate: "x509.Certificate", now: datetime) -> _Statement:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    renew = "ask the coordinator's operator for a new invitation"
    if now < begin:
        return _problem(f"{name} is valid only from {begin:%Y-%m-%d}", "check this machine's clock")
    if not now < end:
        return _problem(f"{name} was valid until {end:%Y-%m-%d}", renew)
    if end - now < EXPIRES_SOON:
        return _warning(f"{name} is valid only until {end:%Y-%m-%d}", f"{renew} before that day")
    return _ok(f"{name} is valid until {end:%Y-%m-%d}")


def _check_space(home: Home, environment: Environment) -> Iterator[_Statement]:
    parents = (home.directory, *home.directory.absolute().parents)
    total, free = environment.disk(next(path for path in parents if path.is_dir()))
    what = f"{free / 1e9:.1f} GB of {total / 1e9:.0f} GB are free"
    if free < max(LITTLE_BYTES, LITTLE_SHARE * total):
        yield _warning(what, "free some space: without room for the ledger, releases stop")
    else:
        yield _ok(what)


def _check_history(home: Home, environment: Environment) -> Iterator[_Statement]:
    for name, error in environment.kinds().items():
        if error is not None:
            yield _problem(str(error), f"until it loads, nothing after {name!r} is read")
    yield _ok(f"kinds of sources: {', '.join(environment.kinds())}")
    try:
        paths = home.load_config().watch_paths
    except ConfigurationError:
        yield _warning("the watched paths are unknown", "correct config.toml first")
        return
    for path in paths:
        if isinstance(path, Address):
            yield _check_address(path)
            continue
        needed = os.R_OK | (os.X_OK if path.is_dir() else 0)
        if not path.exists():
            yield _problem(f"{path} does not exist", "correct watch_paths in config.toml")
        elif not os.access(path, needed):
            yield _problem(f"{path} cannot be read", "let this user read it")
        else:
            yield _ok(f"{path} can be read")


def _check_address(address: Address) -> _Statement:
    try:
        places, _ = list_address(address)
    except (InvalidInputError, ModuleNotFoundError) as error:
        return _problem(str(error), "correct watch_paths in config.toml, or what it says")
    return _ok(f"{address} can be listed: {counted(len(places), 'place')}")


def _check_versions(_: Home, environment: Environment) -> Iterator[_Statement]:
    python = platform.python_version()
    try:
        versions = [f"{PACKAGE} {environment.version(PACKAGE)}"]
        requirements = [Requirement(each) for each in environment.requirements()]
        allowed = environment.python()
    except metadata.PackageNotFoundError:
        yield _warning(f"{PACKAGE} is not installed as a package", f"run: pip install {PACKAGE}")
        return
    if not SpecifierSet(allowed).contains(python, prereleases=True):
        yield _problem(f"Python {python}, {allowed} is needed", "use another Python")
    unique_requirements = {f"{each.name}{each.specifier}": each for each in requirements}
    for requirement, each in unique_requirements.items():
        try:
            version = environment.version(each.name)
        except metadata.PackageNotFoundError:
            if each.marker is None or each.marker.evaluate({"extra": ""}):
                yield _problem(f"{each.name} is not installed", f"run: pip install '{requirement}'")
            continue
        if not each.specifier.contains(version, prereleases=True):
            yield _problem(
                f"{each.name} {version} is not supported", f"run: pip install '{requirement}'"
            )
        if each.name in SHOWN_PACKAGES:
            versions.append(f"{each.name} {version}")
    yield _ok(", ".join([f"Python {python}", *versions]))


def _check_extras(_: Home, environment: Environment) -> Iterator[_Statement]:
    missing = environment.missing_packages()
    if installed := [extra for extra, packages in missing.items() if not packages]:
        yield _ok(f"installed: {', '.join(installed)}")
    for extra, packages in missing.items():
        if packages:
            yield _ok(f"{extra} is not installed ({', '.join(packages)})")


def _check_models(home: Home, _: Environment) -> Iterator[_Statement]:
    from safetensors import SafetensorError, safe_open

    from fedperf_shared.model.pretrained import load_pretrained_model

    load_pretrained_model()
    models = FetchedModels(home.models)
    loaders: Mapping[str, Callable[[], object]] = {
        "shared model": lambda: models.shared_version,
        "reference model": lambda: models.reference_version,
        "correction": models.correction,
    }
    for name, load in loaders.items():
        try:
            load()
        except FedperfError as error:
            yield _problem(f"the {name} cannot be read: {error}", f"empty {home.models}")
            return
    version = models.shared_version
    yield _ok(f"shared model: version {version}" if version else "the pretrained model")
    if not home.predictor.exists():
        return
    try:
        with safe_open(home.predictor, framework="numpy"):
            yield _ok("the cached predictor can be read")
    except (OSError, SafetensorError) as error:
        yield _warning(
            f"{home.predictor.name} cannot be read ({error})",
            "nothing: the next prediction replaces it",
        )


CHECKS: Mapping[str, _Check] = {
    "directory": _check_directory,
    "configuration": _check_configuration,
    "policy": _check_policy,
    "executions": _check_store,
    "drift": _check_drift,
    "ledgers": _check_ledgers,
    "budget": _check_budget,
    "identity": _check_identity,
    "coordinator": _check_coordinator,
    "disk": _check_space,
    "history": _check_history,
    "versions": _check_versions,
    "extras": _check_extras,
    "models": _check_models,
}


def examine(home: Home, environment: Environment) -> tuple[Finding, ...]:
    """Return the findings of all checks, in their order."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            for statement in check(home, environment):
                findings.append(Finding(name, *statement))
        except Exception as error:  # one failed check must not hide the others
            findings.append(_failure(name, error))
    return tuple(findings)


def _failure(check: str, error: Exception) -> Finding:
    if isinstance(error, FedperfError):
        return Finding(check, Severity.PROBLEM, str(error))
    if isinstance(error, ModuleNotFoundError) and (extra := extra_with(error.name or "")):
        what = f"skipped: {error.name} comes with {PACKAGE}[{extra}]"
        return Finding(check, Severity.OK, what)
    what = f"the check itself failed ({type(error).__name__}: {error})"
    return Finding(check, Severity.PROBLEM, what, "please report it")
