"""Settings of hypothesis and pytest that hold for all tests.

Drawing examples with hypothesis may be slow while other tests use the machine. This is not a
fault of the code under test, so the health check for it is off.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")


LONG = ("slow", "fault")
"""Marks of the tests that `make test` leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make check` and `make nightly`."""
    parser.addoption(
        "--first-of-each",
        action="store_true",
        help="of slow and fault tests run the first of each file",
    )
    parser.addoption(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out tests whose names FILE holds, and append each that passes",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that `--first-of-each` and `--resume` leave out."""
    file: Path | None = config.getoption("--resume")
    passed = set(file.read_text().splitlines()) if file is not None and file.exists() else set()
    files_with_long_tests, selected, deselected = set(), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_long = any(item.get_closest_marker(mark) for mark in LONG)
        is_later = is_long and item.path in files_with_long_tests
        if is_long:
            files_with_long_tests.add(item.path)
        is_left_out = item.nodeid in passed or (is_later and config.getoption("--first-of-each"))
        (deselected if is_left_out else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


class PassedTests:
    """Appends the name of every passed or skipped test to a file."""

    def __init__(self, file: Path) -> None:
        """Create the parent directory of the file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._failed = set[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Append the test after its last phase, unless a phase failed."""
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self._failed:
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record passed tests in the controller process of xdist, which receives all reports."""
    file: Path | None = config.getoption("--resume")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PassedTests(file))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude imported objects from garbage collection, during collection and in the tests.

    There are about 800,000 of them. Scanning them takes a quarter of the time of the imports.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Unfreeze the imported objects, so that no library reports them as leaks at exit."""
    gc.unfreeze()
