"""What is wrong with an organization's set-up, and what to do about it.

Every check looks at one thing and says ok, warning or problem. A check that fails itself is
a problem and hides no other. Nothing is made or mended (an older store is brought up to
date, as by every command), and nobody is asked but the coordinator of the membership, for
its status. Clock, disk, network and packages come in as `Surroundings`.

Not told: whether a daemon runs on this directory, which it leaves no honest mark of.
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
from fedperf_client.commands.checks.installation import check_space, check_versions
from fedperf_client.commands.checks.membership import check_coordinator, check_identity
from fedperf_client.commands.checks.surroundings import Surroundings
from fedperf_client.home.config import Home
from fedperf_shared.errors import FedperfError

_Check = Callable[[Home, Surroundings], Iterator[Statement]]

CHECKS: Mapping[str, _Check] = {
    "directory": check_directory,
    "configuration": check_configuration,
    "policy": check_policy,
    "executions": check_store,
    "drift": check_drift,
    "ledgers": check_ledgers,
    "budget": check_budget,
    "identity": check_identity,
    "coordinator": check_coordinator,
    "disk": check_space,
    "history": check_history,
    "versions": check_versions,
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
        except Exception as error:  # one failed check must not hide the others
            what = f"the check itself failed ({type(error).__name__}: {error})"
            found.append(Finding(name, Severity.PROBLEM, what, "please report it"))
    return tuple(found)
