"""Extras: optional parts of fedperf, and the packages that each of them needs.

The packages of an extra are listed in the metadata of the installed package.
"""

from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec

PACKAGE = "fedperf"

_COLLECTIONS = frozenset(
    {"all", "dev", "emulators"}
)  # extras that combine others, or are for tests


def extras() -> Mapping[str, tuple[str, ...]]:
    """Return the packages of each extra, with those of the extras that it includes.

    The result is empty if fedperf is not installed as a package.
    """
    from packaging.requirements import Requirement

    try:
        facts = metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in facts.get_all("Requires-Dist") or []]
    return {
        extra: tuple(
            each.name
            for each in requirements
            if each.marker and each.marker.evaluate({"extra": extra})
        )
        for extra in facts.get_all("Provides-Extra") or []
        if extra not in _COLLECTIONS
    }


def missing_packages(extra: str) -> Iterator[str]:
    """Yield the packages of an extra that cannot be imported."""
    for package in extras().get(extra, ()):
        if find_spec(module_of(package)) is None:
            yield package


def module_of(package: str) -> str:
    """Return the name that a package is imported by."""
    return {"grpcio": "grpc"}.get(package, package.replace("-", "_").lower())


def extra_with(module: str, preferred: str | None = None) -> str | None:
    """Return the smallest extra with a module, None if no extra has it.

    Args:
        module: a module that cannot be imported, such as `torch.nn`.
        preferred: the extra to return if it has the module.
    """
    imported = module.partition(".")[0]
    able = {
        extra: len(packages)
        for extra, packages in extras().items()
        if imported in map(module_of, packages)
    }
    return preferred if preferred in able else min(able, key=able.__getitem__, default=None)


def missing_extra(error: ModuleNotFoundError, preferred: str | None = None) -> str | None:
    """Return which extra to install for a missing module; None if no extra has it."""
    extra = None if error.name is None else extra_with(error.name, preferred)
    if extra is None:
        return None
    return f"this needs {error.name}, which is not installed; run: pip install 'fedperf[{extra}]'"
