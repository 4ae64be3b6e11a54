"""What is wrong with an organization's set-up, and what to do about it.

Every check looks at one thing and says ok, warning or problem. A check that fails itself is
a problem and hides no other. Nothing is made or mended (an older store is brought up to
date, as by every command), and nobody is asked but the coordinator of the membership, for
its status. Clock, disk, network and packages come in as
`Surroundings`.

Not told: whether a daemon runs on this directory, which it leaves no honest mark of.
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

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from tenacity import Retrying, stop_after_attempt

from fedperf_client.federation.enrollment import KEY_FILE, Membership, load_or_create_key
from fedperf_client.federation.exchange import (
    MAX_CLOCK_SKEW,
    ClockSkewError,
    ExchangeClient,
    NoMemberError,
)
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.home.store_schema import SCHEMA_VERSION
from fedperf_client.prediction.answers.streams_at_home import streams_at_home
from fedperf_client.prediction.base_models import FetchedModels
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.ledger.lifetime import LifetimeRecord, lifetime_path
from fedperf_client.release.ledger.spent_budget import Spending, spending_of
from fedperf_client.release.policy import load_policy
from fedperf_client.sources.kinds import installed_kinds
from fedperf_shared.errors import (
    ConfigurationError,
    ConnectionRefusedByPeerError,
    FedperfError,
)
from fedperf_shared.exchange import Status
from fedperf_shared.identity import public_bytes

PACKAGE = "fedperf"
SHOWN_PACKAGES = ("flwr", "torch", "duckdb")
EXPIRES_SOON = timedelta(days=30)
LITTLE_BYTES = 10**9
LITTLE_SHARE = 0.05
NOTABLE_SKEW = timedelta(seconds=60)

_TIMEOUT_SECONDS = 5.0
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@unique
class Verdict(StrEnum):
    """How good or bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: which one.
        verdict: how good or bad it is.
        what: what was found.
        advice: what to do, empty where nothing is to be done.
    """

    check: str
    verdict: Verdict
    what: str
    advice: str = ""

    def as_row(self) -> dict[str, object]:
        """For programs."""
        return {
            "check": self.check,
            "verdict": self.verdict,
            "what": self.what,
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What lies outside of the directory.

    Attributes:
        now: the present moment, with time zone.
        disk: bytes in all and free where a path lies.
        requirements: what the package needs, as its metadata says.
        python: the versions of Python that it allows.
        version: of an installed package; raises PackageNotFoundError for any other.
        status: of the coordinator, as a member gets it.
        kinds: of sources that are installed, with what is wrong with them.
    """

    now: Callable[[], datetime]
    disk: Callable[[Path], tuple[int, int]]
    requirements: Callable[[], Sequence[str]]
    python: Callable[[], str]
    version: Callable[[str], str]
    status: Callable[[Membership, ec.EllipticCurvePrivateKey], Status]
    kinds: Callable[[], Mapping[str, Exception | None]]


def surroundings(now: Callable[[], datetime]) -> Surroundings:
    """Those of this process."""
    return Surroundings(
        now=now,
        disk=_disk,
        requirements=lambda: metadata.requires(PACKAGE) or [],
        python=lambda: metadata.metadata(PACKAGE)["Requires-Python"] or "",
        version=metadata.version,
        status=_status,
        kinds=installed_kinds,
    )


def examine(home: Home, around: Surroundings) -> tuple[Finding, ...]:
    """Everything that the checks find, in their order."""
    found: list[Finding] = []
    for name, check in _CHECKS.items():
        try:
            for verdict, what, advice in check(home, around):
                found.append(Finding(name, verdict, what, advice))
        except FedperfError as error:
            found.append(Finding(name, Verdict.PROBLEM, str(error)))
        except Exception as error:  # one failed check must not hide the others
            what = f"the check itself failed ({type(error).__name__}: {error})"
            found.append(Finding(name, Verdict.PROBLEM, what, "please report it"))
    return tuple(found)


_Said = tuple[Verdict, str, str]
_Check = Callable[[Home, Surroundings], Iterator[_Said]]


def _ok(what: str) -> _Said:
    return Verdict.OK, what, ""


def _warning(what: str, advice: str) -> _Said:
    return Verdict.WARNING, what, advice


def _problem(what: str, advice: str) -> _Said:
    return Verdict.PROBLEM, what, advice


def _directory(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    path = home.directory
    if not path.is_dir():
        yield _problem(f"{path} is no directory", "run: fedperf init")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OF_OTHERS:
        yield _problem(f"{path} is open to others (mode {mode:04o})", f"run: chmod 700 {path}")
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        yield _problem(f"{path} cannot be written: {error.strerror}", "let its owner write there")
        return
    yield _ok(f"{path} can be written")


def _configuration(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    config = home.load_config()
    yield _ok(f"{home.config.name}: {len(config.history)} paths of history to follow")


def _policy(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    policy = load_policy(home.policy)
    yield _ok(f"{home.policy.name}: size class {policy.size_class}")


def _store(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    if not home.store.exists():
        yield _ok("no executions yet; take some in with: fedperf ingest FILE")
        return
    with ExecutionStore.open(home.store) as store:
        counts = store.counts()
    yield _ok(
        f"{counts.executions} executions of {counts.workloads} workloads, schema {SCHEMA_VERSION}"
    )


def _drift(home: Home, around: Surroundings) -> Iterator[_Said]:
    if not home.store.exists():
        yield _ok("no executions yet")
        return
    with ExecutionStore.open(home.store) as store:
        streams = streams_at_home(store)
    drifts = [drift for stream in streams for drift in stream.drifts[-1:]]
    recent = [each for each in drifts if each.is_notable and each.is_recent(around.now())]
    for each in recent:
        yield _warning(
            f"{each.stream_name}: {each.sentence}",
            "find out what changed there; predictions count with it. See: fedperf drift",
        )
    if not recent:
        yield _ok(f"nothing changed lately in {len(streams)} kinds of work")


def _ledgers(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    if not home.ledgers:
        yield _ok("no period has begun")
        return
    for path in home.ledgers:
        disagreement = PrivacyLedger.open(path).disagreement()
        yield _agreement(path.name, disagreement)
    record = LifetimeRecord.open(lifetime_path(home.directory))
    yield _agreement(record.path.name, record.disagreement())


def _agreement(name: str, disagreement: str | None) -> _Said:
    if disagreement is None:
        return _ok(f"{name} agrees with what stands beside it")
    return _problem(
        f"{name}: {disagreement}; nothing leaves until that is decided",
        "if a backup was restored, run: fedperf reconcile",
    )


def _budget(home: Home, around: Surroundings) -> Iterator[_Said]:
    spending = spending_of(home.ledgers, at=around.now())
    if not spending:
        yield _ok("nothing is spent: no period has begun")
        return
    lifetime, newest = spending[0], spending[-1]
    yield _ok(f"newest period: {_spent(newest)}")
    room = lifetime.budget.epsilon - lifetime.planned
    if room < newest.budget.epsilon:
        yield _warning(
            f"lifetime: epsilon {room:.4g} is left, the newest period promises "
            f"{newest.budget.epsilon:g}; another one like it cannot begin",
            "lower budget.epsilon in policy.toml before the next period",
        )
        return
    yield _ok(f"lifetime: {_spent(lifetime)}")


def _spent(spending: Spending) -> str:
    return f"epsilon {spending.spent:.4g} of {spending.budget.epsilon:g} is spent"


def _identity(home: Home, around: Surroundings) -> Iterator[_Said]:
    member = _member(home)
    if member is None:
        yield _ok("not joined; a coordinator's operator gives the URL for: fedperf join URL")
        return
    membership, key = member
    mode = stat.S_IMODE((home.identity / KEY_FILE).stat().st_mode)
    if mode & _OF_OTHERS:
        yield _problem(
            f"the private key is open to others (mode {mode:04o})",
            f"run: chmod 600 {home.identity / KEY_FILE}",
        )
    own = _certificate("this organization's certificate", membership.certificate)
    if public_bytes(_key_of(own)) != public_bytes(key.public_key()):
        yield _problem("the certificate is for another key", "restore both from one backup")
    yield _validity("this organization's certificate", own, around.now())
    authority = _certificate("the coordinator's authority", membership.ca_certificate)
    yield _validity("the coordinator's authority", authority, around.now())
    public_bytes(membership.coordinator_key)


def _member(home: Home) -> tuple[Membership, ec.EllipticCurvePrivateKey] | None:
    """Membership and key; None before joining.

    Raises:
        FedperfError: a part of it is missing or damaged.
    """
    there = {path.name for path in home.identity.iterdir()} if home.identity.is_dir() else set()
    if there <= {KEY_FILE}:
        return None
    if KEY_FILE not in there:
        raise ConfigurationError(
            f"{home.identity} has a membership and no private key; restore {KEY_FILE} from a "
            "backup, or ask for a new invitation"
        )
    try:
        return Membership.load(home.identity), load_or_create_key(home.identity)
    except ConfigurationError:
        raise ConfigurationError(
            f"{home.identity} holds a part of a membership only ({', '.join(sorted(there))}); "
            "restore it from a backup, or ask for a new invitation"
        ) from None


def _certificate(name: str, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigurationError(
            f"{name} is damaged; restore the identity from a backup, or ask for a new invitation"
        ) from None


def _key_of(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigurationError("the certificate is not for an elliptic-curve key; join again")
    return key


def _validity(name: str, certificate: x509.Certificate, now: datetime) -> _Said:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    renew = "ask the coordinator's operator for a new invitation"
    if now < begin:
        return _problem(f"{name} is valid from {begin:%Y-%m-%d} on", "check this machine's clock")
    if not now < end:
        return _problem(f"{name} was valid until {end:%Y-%m-%d}", renew)
    if end - now < EXPIRES_SOON:
        return _warning(f"{name} is valid until {end:%Y-%m-%d} only", f"{renew} before that day")
    return _ok(f"{name} is valid until {end:%Y-%m-%d}")


def _coordinator(home: Home, around: Surroundings) -> Iterator[_Said]:
    member = _member(home)
    if member is None:
        yield _ok("not joined, nobody was asked")
        return
    address = member[0].exchange_address
    try:
        skew = around.status(*member).now - around.now()
    except NoMemberError as error:
        yield _problem(str(error), "")
        return
    except ConnectionRefusedByPeerError as error:
        yield _warning(str(error), "predictions work without; releases wait")
        return
    if not abs(skew) <= MAX_CLOCK_SKEW:
        yield _problem(str(ClockSkewError(skew)), "")
    elif abs(skew) > NOTABLE_SKEW:
        yield _warning(f"the clocks differ by {abs(skew).total_seconds():.0f} s", "use NTP")
    else:
        yield _ok(f"{address} answers, the clocks agree within {NOTABLE_SKEW.seconds} s")


def _space(home: Home, around: Surroundings) -> Iterator[_Said]:
    there = next(
        path for path in (home.directory, *home.directory.absolute().parents) if path.is_dir()
    )
    total, free = around.disk(there)
    what = f"{free / 1e9:.1f} GB of {total / 1e9:.0f} GB are free"
    if free < max(LITTLE_BYTES, LITTLE_SHARE * total):
        yield _warning(what, "make room: a ledger that cannot be written stops all releases")
    else:
        yield _ok(what)


def _history(home: Home, around: Surroundings) -> Iterator[_Said]:
    for name, broken in around.kinds().items():
        if broken is not None:
            yield _problem(str(broken), f"without it, nothing after {name!r} is read")
    yield _ok(f"kinds of sources: {', '.join(around.kinds())}")
    try:
        paths = home.load_config().history
    except ConfigurationError:
        yield _warning("the paths to follow are not known", "mend config.toml first")
        return
    for path in paths:
        needed = os.R_OK | (os.X_OK if path.is_dir() else 0)
        if not path.exists():
            yield _problem(f"{path} does not exist", "mend history in config.toml")
        elif not os.access(path, needed):
            yield _problem(f"{path} cannot be read", "let this user read it")
        else:
            yield _ok(f"{path} can be read")


def _versions(home: Home, around: Surroundings) -> Iterator[_Said]:
    del home
    python = platform.python_version()
    try:
        shown = [f"{PACKAGE} {around.version(PACKAGE)}"]
        needed = [Requirement(each) for each in around.requirements()]
        allowed = around.python()
    except metadata.PackageNotFoundError:
        yield _warning(f"{PACKAGE} is not installed as a package", f"run: pip install {PACKAGE}")
        return
    if not SpecifierSet(allowed).contains(python, prereleases=True):
        yield _problem(f"Python {python}, {allowed} is needed", "use another Python")
    for each in needed:
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        try:
            version = around.version(each.name)
        except metadata.PackageNotFoundError:
            yield _problem(f"{each.name} is not installed", f"run: pip install '{each}'")
            continue
        if not each.specifier.contains(version, prereleases=True):
            yield _problem(f"{each.name} {version} is too old or new", f"run: pip install '{each}'")
        if each.name in SHOWN_PACKAGES:
            shown.append(f"{each.name} {version}")
    yield _ok(", ".join([f"Python {python}", *shown]))


def _models(home: Home, around: Surroundings) -> Iterator[_Said]:
    del around
    from safetensors import SafetensorError, safe_open

    from fedperf_shared.model.public_start import load_public_start

    load_public_start()
    models = FetchedModels(home.models)
    looks: Mapping[str, Callable[[], object]] = {
        "shared model": lambda: models.shared_version,
        "reference model": lambda: models.reference_version,
        "correction": models.correction,
    }
    for name, look in looks.items():
        try:
            look()
        except FedperfError as error:
            yield _problem(f"the {name} cannot be read: {error}", f"empty {home.models}")
            return
    version = models.shared_version
    yield _ok(f"shared model: version {version}" if version else "the public start, none fetched")
    if not home.predictor.exists():
        return
    try:
        with safe_open(home.predictor, framework="numpy"):
            yield _ok("the kept predictor can be read")
    except (OSError, SafetensorError) as error:
        yield _warning(
            f"{home.predictor.name} cannot be read ({error})",
            "nothing: the next prediction makes it again",
        )


_CHECKS: Mapping[str, _Check] = {
    "directory": _directory,
    "configuration": _configuration,
    "policy": _policy,
    "executions": _store,
    "drift": _drift,
    "ledgers": _ledgers,
    "budget": _budget,
    "identity": _identity,
    "coordinator": _coordinator,
    "disk": _space,
    "history": _history,
    "versions": _versions,
    "models": _models,
}


def _disk(path: Path) -> tuple[int, int]:
    found = shutil.disk_usage(path)
    return found.total, found.free


def _status(membership: Membership, key: ec.EllipticCurvePrivateKey) -> Status:
    once = Retrying(stop=stop_after_attempt(1), reraise=True)
    with ExchangeClient(membership, key, retry=once, timeout_seconds=_TIMEOUT_SECONDS) as exchange:
        return exchange.status()
