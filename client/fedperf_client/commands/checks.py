"""Checks of an organization's set-up: what is wrong with it, and what to do about it.

Every check looks at one thing and says ok, warning or problem. A check that fails itself is
reported as a problem and hides no other. The checks make and mend nothing; only an older store is
brought up to date, as by every command. They ask nobody but the coordinator of the membership, and
it only for its status. Clock, disk, network and packages come in as `Environment`.

No check tells whether a daemon runs on this directory: a daemon leaves no reliable mark of it.
"""

import os
import platform
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fedperf_client.commands.findings import (
    OF_OTHERS,
    Environment,
    Finding,
    Severity,
    Statement,
    ok,
    problem,
    warning,
)
from fedperf_client.formatting.numbers import counted
from fedperf_client.home.config import Home
from fedperf_client.home.store import SCHEMA_VERSION, ExecutionStore
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.serving.encoded_executions import load_drift_streams
from fedperf_client.release.effective_modes import (
    PendingChange,
    modes_in_words,
    pending_changes,
    policy_in_force,
)
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.ledger.lifetime import LifetimeRecord, lifetime_path
from fedperf_client.release.ledger.spent_budget import Spending, spending_of
from fedperf_client.release.policy import load_policy
from fedperf_shared.errors import ConfigurationError, FedperfError
from fedperf_shared.runtime.extras import PACKAGE, extra_with


def check_directory(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the directory is there, private and can be written."""
    del around
    path = home.directory
    if not path.is_dir():
        yield problem(f"{path} is no directory", "run: fedperf init")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OF_OTHERS:
        yield problem(f"{path} is open to others (mode {mode:04o})", f"run: chmod 700 {path}")
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        yield problem(f"{path} cannot be written: {error.strerror}", "let its owner write there")
        return
    yield ok(f"{path} can be written")


def check_configuration(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether config.toml can be read."""
    del around
    config = home.load_config()
    yield ok(f"{home.config.name}: {counted(len(config.watch_paths), 'path')} of history to follow")


def check_policy(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether policy.toml can be read, and what of it counts only later."""
    del around
    policy = load_policy(home.policy)
    yield ok(f"{home.policy.name}: size class {policy.size_class}")
    for path in home.ledgers[-1:]:
        schedule = PrivacyLedger.open(path).schedule
        yield ok(modes_in_words(policy_in_force(home, policy), schedule))
        for pending in pending_changes(home, policy, schedule):
            yield _pending(home.policy.name, pending)


def _pending(name: str, pending: PendingChange) -> Statement:
    """What a changed policy does, and from when on; a warning where it lets out more."""
    lets_out = pending.change.lets_out
    what = f"{name}: {pending}" + (f"; {lets_out}" if lets_out else "")
    if pending.is_of_mode:
        return warning(
            what, "start the daemon again once that is meant; until then, withhold slots"
        )
    if lets_out:
        return warning(what, "if that is not meant, set it back before that day")
    return ok(what)


def check_store(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the store can be read, and what it holds."""
    del around
    if not home.store.exists():
        yield ok("no executions yet; take some in with: fedperf ingest FILE")
        return
    with ExecutionStore.open(home.store) as store:
        counts = store.counts()
    yield ok(
        f"{counted(counts.executions, 'execution')} of {counted(counts.workloads, 'workload')}, "
        f"schema {SCHEMA_VERSION}"
    )


def check_drift(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether a kind of work changed lately."""
    if not home.store.exists():
        yield ok("no executions yet")
        return
    with ExecutionStore.open(home.store) as store:
        streams = load_drift_streams(store, keep=False)
    if not streams:
        yield ok("no executions that ended well yet")
        return
    drifts = [drift for stream in streams for drift in stream.drifts[-1:]]
    recent = [each for each in drifts if each.is_notable and each.is_recent(around.now())]
    for each in recent:
        yield warning(
            f"{each.stream_name}: {each.sentence}",
            "find out what changed there; predictions count with it. See: fedperf drift",
        )
    if not recent:
        yield ok(f"nothing changed lately in {counted(len(streams), 'kind')} of work")


def check_ledgers(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether ledgers and lifetime record agree with what stands beside them."""
    del around
    if not home.ledgers:
        yield ok("no period has begun")
        return
    for path in home.ledgers:
        disagreement = PrivacyLedger.open(path).disagreement()
        yield _agreement(path.name, disagreement)
    record = LifetimeRecord.open(lifetime_path(home.directory))
    yield _agreement(record.path.name, record.disagreement())


def check_budget(home: Home, around: Environment) -> Iterator[Statement]:
    """What is spent, and whether another period like the newest one can begin."""
    spending = spending_of(home.ledgers, at=around.now())
    if not spending:
        yield ok("nothing is spent: no period has begun")
        return
    lifetime, newest = spending[0], spending[-1]
    yield ok(f"newest period: {_spent(newest)}")
    room = lifetime.budget.epsilon - lifetime.planned
    if room < newest.budget.epsilon:
        yield warning(
            f"lifetime: epsilon {room:.4g} is left, the newest period promises "
            f"{newest.budget.epsilon:g}; another one like it cannot begin",
            "lower budget.epsilon in policy.toml before the next period",
        )
        return
    yield ok(f"lifetime: {_spent(lifetime)}")


def check_history(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the kinds of sources load and the paths to follow can be read."""
    for name, broken in around.kinds().items():
        if broken is not None:
            yield problem(str(broken), f"without it, nothing after {name!r} is read")
    yield ok(f"kinds of sources: {', '.join(around.kinds())}")
    try:
        paths = home.load_config().watch_paths
    except ConfigurationError:
        yield warning("the paths to follow are not known", "mend config.toml first")
        return
    for path in paths:
        needed = os.R_OK | (os.X_OK if path.is_dir() else 0)
        if not path.exists():
            yield problem(f"{path} does not exist", "correct watch_paths in config.toml")
        elif not os.access(path, needed):
            yield problem(f"{path} cannot be read", "let this user read it")
        else:
            yield ok(f"{path} can be read")


def check_models(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether the fetched models and the kept predictor can be read."""
    del around
    from safetensors import SafetensorError, safe_open

    from fedperf_shared.model.pretrained import load_pretrained_model

    load_pretrained_model()
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
            yield problem(f"the {name} cannot be read: {error}", f"empty {home.models}")
            return
    version = models.shared_version
    yield ok(f"shared model: version {version}" if version else "the public start, none fetched")
    if not home.predictor.exists():
        return
    try:
        with safe_open(home.predictor, framework="numpy"):
            yield ok("the kept predictor can be read")
    except (OSError, SafetensorError) as error:
        yield warning(
            f"{home.predictor.name} cannot be read ({error})",
            "nothing: the next prediction makes it again",
        )


def _agreement(name: str, disagreement: str | None) -> Statement:
    if disagreement is None:
        return ok(f"{name} agrees with what stands beside it")
    return problem(
        f"{name}: {disagreement}; nothing leaves until that is decided",
        "if a backup was restored, run: fedperf reconcile",
    )


def _spent(spending: Spending) -> str:
    return f"epsilon {spending.spent:.4g} of {spending.budget.epsilon:g} is spent"


SHOWN_PACKAGES = ("flwr", "torch", "duckdb")
LITTLE_BYTES = 10**9
LITTLE_SHARE = 0.05


def check_versions(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether Python and the packages are of versions that fit; those of extras where installed."""
    del home
    python = platform.python_version()
    try:
        shown = [f"{PACKAGE} {around.version(PACKAGE)}"]
        needed = [Requirement(each) for each in around.requirements()]
        allowed = around.python()
    except metadata.PackageNotFoundError:
        yield warning(f"{PACKAGE} is not installed as a package", f"run: pip install {PACKAGE}")
        return
    if not SpecifierSet(allowed).contains(python, prereleases=True):
        yield problem(f"Python {python}, {allowed} is needed", "use another Python")
    once = {f"{each.name}{each.specifier}": each for each in needed}  # several extras bring one
    for requirement, each in once.items():
        try:
            version = around.version(each.name)
        except metadata.PackageNotFoundError:
            if each.marker is None or each.marker.evaluate({"extra": ""}):
                yield problem(f"{each.name} is not installed", f"run: pip install '{requirement}'")
            continue
        if not each.specifier.contains(version, prereleases=True):
            yield problem(
                f"{each.name} {version} is too old or new", f"run: pip install '{requirement}'"
            )
        if each.name in SHOWN_PACKAGES:
            shown.append(f"{each.name} {version}")
    yield ok(", ".join([f"Python {python}", *shown]))


def check_extras(home: Home, around: Environment) -> Iterator[Statement]:
    """Which extras are there, and what brings those that are not."""
    del home
    missing = {extra: around.missing_packages(extra) for extra in around.extras()}
    if there := [extra for extra, packages in missing.items() if not packages]:
        yield ok(f"installed: {', '.join(there)}")
    for extra, packages in missing.items():
        if packages:
            yield ok(f"{extra} is not installed ({', '.join(packages)})")


def check_space(home: Home, around: Environment) -> Iterator[Statement]:
    """Whether there is room on the disk of the directory."""
    there = next(
        path for path in (home.directory, *home.directory.absolute().parents) if path.is_dir()
    )
    total, free = around.disk(there)
    what = f"{free / 1e9:.1f} GB of {total / 1e9:.0f} GB are free"
    if free < max(LITTLE_BYTES, LITTLE_SHARE * total):
        yield warning(what, "make room: a ledger that cannot be written stops all releases")
    else:
        yield ok(what)


_Check = Callable[[Home, Environment], Iterator[Statement]]


def _identity(home: Home, around: Environment) -> Iterator[Statement]:
    from fedperf_client.commands.membership_checks import check_identity  # of extra `join`

    yield from check_identity(home, around)


def _coordinator(home: Home, around: Environment) -> Iterator[Statement]:
    from fedperf_client.commands.membership_checks import check_coordinator

    yield from check_coordinator(home, around)


CHECKS: Mapping[str, _Check] = {
    "directory": check_directory,
    "configuration": check_configuration,
    "policy": check_policy,
    "executions": check_store,
    "drift": check_drift,
    "ledgers": check_ledgers,
    "budget": check_budget,
    "identity": _identity,
    "coordinator": _coordinator,
    "disk": check_space,
    "history": check_history,
    "versions": check_versions,
    "extras": check_extras,
    "models": check_models,
}


def examine(home: Home, around: Environment) -> tuple[Finding, ...]:
    """Everything that the checks find, in their order."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            for verdict, what, advice in check(home, around):
                found.append(Finding(name, verdict, what, advice))
        except Exception as error:  # one failed check must not hide the others
            found.append(_failed(name, error))
    return tuple(found)


def _failed(check: str, error: Exception) -> Finding:
    if isinstance(error, FedperfError):
        return Finding(check, Severity.PROBLEM, str(error))
    if isinstance(error, ModuleNotFoundError) and (extra := extra_with(error.name or "")):
        what = f"not looked at: {error.name} comes with {PACKAGE}[{extra}]"
        return Finding(check, Severity.OK, what)
    what = f"the check itself failed ({type(error).__name__}: {error})"
    return Finding(check, Severity.PROBLEM, what, "please report it")
