"""The checks of an organization's set-up: what is wrong with it, and what to do about it.

Every check looks at one thing and says ok, warning or problem. A check that fails itself is
reported as a problem and hides no other. The checks make and mend nothing; only an older store is
brought up to date, as by every command. They ask nobody but the coordinator of the membership, and
it only for its status. Clock, disk, network and packages come in as `Surroundings`.

No check tells whether a daemon runs on this directory: a daemon leaves no reliable mark of it.
"""

from collections.abc import Callable, Iterator, Mapping

from fedperf_client.commands.checks.finding import Finding, Severity, Statement
from fedperf_client.commands.checks.home_files import (
    check_budget,
    check_configuration,
    check_directory,
    check_drift,
    check_history,
    check_ledgers,
    check_models,
    check_policy,
    check_store,
)
from fedperf_client.commands.checks.installation import check_extras, check_space, check_versions
from fedperf_client.commands.checks.surroundings import Surroundings
from fedperf_client.home.config import Home
from fedperf_shared.errors import FedperfError
from fedperf_shared.programs.extras import extra_with

_Check = Callable[[Home, Surroundings], Iterator[Statement]]


def _identity(home: Home, around: Surroundings) -> Iterator[Statement]:
    from fedperf_client.commands.checks.membership import (
        check_identity,
    )  # members have its packages

    yield from check_identity(home, around)


def _coordinator(home: Home, around: Surroundings) -> Iterator[Statement]:
    from fedperf_client.commands.checks.membership import check_coordinator

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


def examine(home: Home, around: Surroundings) -> tuple[Finding, ...]:
    """Everything that the checks find, in their order."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            for verdict, what, advice in check(home, around):
                found.append(Finding(name, verdict, what, advice))
        except FedperfError as error:
            found.append(Finding(name, Severity.PROBLEM, str(error)))
        except ModuleNotFoundError as error:
            if (extra := extra_with(error.name or "")) is None:
                raise
            what = f"not looked at: {error.name} comes with fedperf[{extra}]"
            found.append(Finding(name, Severity.OK, what))
        except Exception as error:  # one failed check must not hide the others
            what = f"the check itself failed ({type(error).__name__}: {error})"
            found.append(Finding(name, Severity.PROBLEM, what, "please report it"))
    return tuple(found)
