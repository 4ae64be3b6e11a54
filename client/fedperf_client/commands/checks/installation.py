"""Checks of the machine that fedperf runs on: versions of packages, room on the disk.

What is needed comes from the metadata of the package.
"""

import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fedperf_client.commands.checks.finding import Statement, ok, problem, warning
from fedperf_client.commands.checks.surroundings import Surroundings
from fedperf_client.home.config import Home
from fedperf_shared.programs.extras import PACKAGE

SHOWN_PACKAGES = ("flwr", "torch", "duckdb")
LITTLE_BYTES = 10**9
LITTLE_SHARE = 0.05


def check_versions(home: Home, around: Surroundings) -> Iterator[Statement]:
    """Whether Python and the packages are of versions that fit."""
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
    for each in needed:
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        try:
            version = around.version(each.name)
        except metadata.PackageNotFoundError:
            yield problem(f"{each.name} is not installed", f"run: pip install '{each}'")
            continue
        if not each.specifier.contains(version, prereleases=True):
            yield problem(f"{each.name} {version} is too old or new", f"run: pip install '{each}'")
        if each.name in SHOWN_PACKAGES:
            shown.append(f"{each.name} {version}")
    yield ok(", ".join([f"Python {python}", *shown]))


def check_extras(home: Home, around: Surroundings) -> Iterator[Statement]:
    """Which extras are there, and what brings those that are not."""
    del home
    missing = {extra: around.missing_packages(extra) for extra in around.extras()}
    if there := [extra for extra, packages in missing.items() if not packages]:
        yield ok(f"installed: {', '.join(there)}")
    for extra, packages in missing.items():
        if packages:
            yield ok(f"{extra} is not installed ({', '.join(packages)})")


def check_space(home: Home, around: Surroundings) -> Iterator[Statement]:
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
