"""Dependencies of an experiment's figures: code, data and libraries. Settings are not included.

Code is the experiment's module and every module of the project that it imports, also through
others, or names in a text. Such texts name its processes, and entry points of a group. Docstrings,
comments and the places of lines don't count. Neither do pages of packages without imports, nor this
package: how cells are kept, compared and drawn decides no figure in them. Data are files that ship
with those modules, and public ones that the experiment names.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import orjson

LIBRARIES = (
    "dp-accounting",
    "duckdb",
    "flwr",
    "lightgbm",
    "numpy",
    "opacus",
    "opendp",
    "pandas",
    "polars",
    "pyarrow",
    "scikit-learn",
    "scipy",
    "sdv",
    "torch",
)

PACKAGES = (
    "fedperf_shared",
    "fedperf_client",
    "fedperf_engines",
    "fedperf_campaigns",
    "fedperf_server",
    "fedperf_memory",
    "fedperf_simulations",
)
NOT_COUNTED = f"{__package__}."

_DOTTED = re.compile(r"\w+(?:\.\w+)+")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Digests of everything that figures depend on.

    Attributes:
        code: digest of all modules.
        files: digest of each data file, by a name that is the same on every machine.
        versions: of Python and of the libraries that compute.
    """

    code: str
    files: Mapping[str, str]
    versions: Mapping[str, str]

    @classmethod
    def of(cls, module: str, public_files: Sequence[Path] = ()) -> Self:
        """Return the dependencies of a module that is imported already.

        Raises:
            OSError: a file cannot be read.
        """
        origin = Path(str(sys.modules[module].__file__))
        modules = reached(origin, package_roots(), entry_points())
        lines = [f"{name} {digest}\n" for name, (_, digest) in sorted(modules.items())]
        shipped = {
            f"{path.parent.name}/{path.name}": sha256_of(path)
            for path in _shipped({path.parent for path, _ in modules.values()})
        }
        public = {f"{path.parent.name}/{path.name}": sha256_of(path) for path in public_files}
        return cls(_sha256("".join(lines).encode()), shipped | public, versions())

    @property
    def digest(self) -> str:
        """The digest of everything together."""
        return _sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS))

    def differences(self, other: "Dependencies") -> Iterator[str]:
        """Yield the differences from `other`, a line each."""
        if self.code != other.code:
            yield "the code is another one"
        for what, mine, others in (
            ("data file", self.files, other.files),
            ("version of", self.versions, other.versions),
        ):
            for name in sorted(mine.keys() | others.keys()):
                if mine.get(name) != others.get(name):
                    yield f"the {what} {name} is another one"


def package_roots() -> dict[str, Path]:
    """Directory of each package of the project."""
    specs = {name: find_spec(name) for name in PACKAGES}
    return {
        name: Path(next(iter(spec.submodule_search_locations or ())))
        for name, spec in specs.items()
        if spec is not None
    }


def entry_points() -> dict[str, list[str]]:
    """Modules of the project's entry points by group."""
    modules: dict[str, list[str]] = {}
    for each in distribution("fedperf").entry_points:
        modules.setdefault(each.group, []).append(each.module)
    return modules


def reached(
    origin: Path, packages: Mapping[str, Path], groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[Path, str]]:
    """Path and digest of the file `origin` (named "") and of all modules that it depends on.

    Args:
        origin: of the module that the walk begins with.
        packages: directory of each package that is looked into.
        groups: modules of entry points that are loaded by the name of a group.
    """
    origins: dict[str, tuple[Path, str]] = {}
    todo = {"": origin}
    while todo:
        name, path = todo.popitem()
        digest, named = _source(path)
        origins[name] = path, digest
        for each in {*named, *(module for name in named for module in groups.get(name, ()))}:
            target = _path_of(each, packages)
            if target is not None and target != origin and each not in origins:
                todo[each] = target
    return origins


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute."""
    python = sys.version.split()[0]
    return {"python": python, **{name: version(name) for name in LIBRARIES}}


def sha256_of(path: Path) -> str:
    """Return digest of a file."""
    return _sha256(path.read_bytes())


def _source(path: Path) -> tuple[str, set[str]]:
    """Digest of what a module does, and the dotted names that it imports or has in a text."""
    tree = ast.parse(path.read_bytes())
    named: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Import):
            named |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named |= set(_DOTTED.findall(node.value))
        todo += ast.iter_child_nodes(node)
    return _sha256(ast.dump(tree).encode()), named


def _is_text(statement: ast.AST) -> bool:
    """Return whether it is the docstring of anything."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return False
    return isinstance(statement.value.value, str)


def _path_of(name: str, packages: Mapping[str, Path]) -> Path | None:
    """Return the path of a module's file, or None if the module does not count."""
    package, *parts = name.split(".")
    if package not in packages or name.startswith(NOT_COUNTED):
        return None
    place = packages[package].joinpath(*parts)
    candidates = place.with_suffix(".py"), place / "__init__.py"
    return next((each for each in candidates if each.is_file()), None)


def _shipped(folders: set[Path]) -> Iterator[Path]:
    """Data files in these folders of modules, and below them where no modules are."""
    for folder in sorted(folders):
        for path in sorted(folder.rglob("*")):
            package = next(each for each in path.parents if (each / "__init__.py").exists())
            is_code = path.suffix in {".py", ".pyi", ".pyc", ".md"}
            if package == folder and path.is_file() and not is_code:
                yield path


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
