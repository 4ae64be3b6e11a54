"""Counts the code of each package: lines, imports, docstrings, and signs that it was packed.

    python tests/shape/count.py [PLACE ...] [--json]

A PLACE is a directory of the repository, or a commit. Two places, such as `6e6241e .`, are printed
one above the other. Generated modules (`*_pb2*`) count as files and lines, and in nothing else.

A line of code is a line with a token of the program on it that is neither a comment, nor part of a
docstring of a module, class or function, nor part of an import; a string below an assignment counts
as code. Nesting is the number of blocks around a statement inside of its function.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("client", "server", "shared", "simulations", "tests")
PRODUCT = ("client", "server", "shared")

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
BLOCKS = (
    ast.If,
    ast.For,
    ast.While,
    ast.With,
    ast.Try,
    ast.Match,
    ast.AsyncFor,
    ast.AsyncWith,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")


@dataclass
class Counts:
    """What is counted of some files; the lists hold an entry per function or statement."""

    files: int = 0
    lines: int = 0
    code: int = 0
    imports: int = 0
    docstrings: int = 0
    public: int = 0
    documented: int = 0
    constants: int = 0
    function_lines: list[int] = field(default_factory=list)
    nesting: list[int] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Count what `other` counted as well."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def row(self) -> dict[str, float]:
        """Return the figures that are printed; shares are percent."""
        return {
            "files": self.files,
            "lines": self.lines,
            "code": self.code,
            "imports_percent": share(self.imports, self.lines),
            "docstrings_percent": share(self.docstrings, self.lines),
            "documented_percent": share(self.documented, self.public),
            "function_lines_median": float(median(self.function_lines or [0])),
            "nesting_median": float(median(self.nesting or [0])),
            "nesting_mean": round(mean(self.nesting or [0]), 3),
            "constants": self.constants,
        }


def share(part: int, whole: int) -> float:
    """Return percent, to one digit."""
    return round(100 * part / whole, 1) if whole else 0.0


def count(source: str) -> Counts:
    """Count one module."""
    tree = ast.parse(source)
    imports = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in _lines(node)
    }
    docstrings = {line for node in _docstrings(tree) for line in _lines(node)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    used = {
        line
        for token in tokens
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    names = list(_public(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return Counts(
        files=1,
        lines=len(source.splitlines()),
        code=len(used - imports - docstrings),
        imports=len(imports),
        docstrings=len(docstrings),
        public=len(names),
        documented=sum(ast.get_docstring(node) is not None for node in names),
        constants=sum(1 for _ in _constants(tree)),
        function_lines=[len(_lines(node)) for node in functions],
        nesting=[depth for node in functions for depth in _depths(node.body, 0)],
    )


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _docstrings(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            yield node.body[0]


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield public classes and functions of the module, and public methods of these classes."""
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, FUNCTIONS) and not inner.name.startswith("_"):
                    yield inner


def _constants(tree: ast.Module) -> Iterator[str]:
    """Yield names in capitals that the module assigns."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Name) and CONSTANT.fullmatch(each.id):
                    yield each.id


def _depths(body: Sequence[ast.stmt], depth: int) -> Iterator[int]:
    """Yield the nesting of every statement; those of functions inside are counted with these."""
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        yield depth
        if not isinstance(node, BLOCKS):
            continue
        for name, value in ast.iter_fields(node):
            is_elif = name == "orelse" and isinstance(node, ast.If) and len(value) == 1
            if is_elif and isinstance(value[0], ast.If):
                yield from _depths(value, depth)
            elif name in {"body", "orelse", "finalbody"}:
                yield from _depths(value, depth + 1)
            elif name in {"handlers", "cases"}:
                for each in value:
                    yield from _depths(each.body, depth + 1)


def count_packages(root: Path) -> dict[str, dict[str, float]]:
    """Return a row per package, and one of the three that are the product."""
    found = {package: Counts() for package in PACKAGES}
    for package, counts in found.items():
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            is_generated = "_pb2" in path.name
            counts.add(Counts(1, len(text.splitlines())) if is_generated else count(text))
    product = Counts()
    for package in PRODUCT:
        product.add(found[package])
    return {name: each.row() for name, each in (found | {"product": product}).items()}


def count_place(place: str) -> dict[str, object]:
    """Return the counts of a directory or a commit, and the lines of `.importlinter`."""
    if Path(place).is_dir():
        root = Path(place)
        contracts = root / ".importlinter"
        lines = len(contracts.read_text().splitlines()) if contracts.is_file() else 0
        return {"place": place, "packages": count_packages(root), "importlinter_lines": lines}
    archive = subprocess.run(
        ["git", "-C", CHECKOUT, "archive", place], capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(directory, filter="data")
        return {**count_place(directory), "place": place}


def table(found: dict[str, object]) -> str:
    """Return the counts of a place for people."""
    packages = found["packages"]
    assert isinstance(packages, dict)
    head = ["package", *(each.removesuffix("_percent") for each in packages["product"])]
    rows = [[name, *(f"{each:,}" for each in row.values())] for name, row in packages.items()]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [f"{found['place']}: .importlinter {found['importlinter_lines']} lines"]
    for row in [head, *rows]:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(each.rjust(width) for each, width in cells))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    parser = argparse.ArgumentParser(description="Count the code of each package.")
    parser.add_argument("places", nargs="*", default=[str(CHECKOUT)], metavar="PLACE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    found = [count_place(each) for each in options.places]
    print(json.dumps(found, indent=1) if options.json else "\n\n".join(map(table, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
