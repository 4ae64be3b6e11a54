"""Tests of pages for engineers: their files, names of symbols, links and imports exist."""

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.pages import ROOT

WALKS = ROOT / "ARCHITECTURE.md"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE_AND_NAMES = re.compile(r"\[`[^`]+`\]\(([^)]+\.py)\)((?:(?:,| and)? `[A-Za-z_][\w.]*`)*)")
REPOSITORY_PATH = re.compile(r"`((?:client|server|shared|simulations|tests|proto|docs)/[\w./-]*)`")
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
ANY_CODE = re.compile(r"```.*?```", re.DOTALL)

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return functions, classes, constants and `Class.method` names of a module."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}" for each in members}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return frozenset(found)


def named(page: Path) -> list[tuple[Path, str]]:
    """Return every name that follows a link to a module, with the module."""
    return [
        ((page.parent / link).resolve(), name)
        for link, names in FILE_AND_NAMES.findall(text_of(page))
        for name in re.findall(r"`([^`]+)`", names)
    ]


@by_page
def test_documentation_link_leads_to_an_existing_file(page: Path) -> None:
    prose = ANY_CODE.sub("", text_of(page))
    local = [link for link in LINK.findall(prose) if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@by_page
def test_documentation_path_exists_in_the_repository(page: Path) -> None:
    missing = []
    for path in REPOSITORY_PATH.findall(text_of(page)):
        package, _, inside = path.partition("/")
        in_package = ROOT / package / f"fedperf_{package}" / inside
        if not ((ROOT / path).exists() or in_package.exists()):
            missing.append(path)
    assert missing == []


@by_page
def test_documentation_name_beside_a_module_link_is_defined_in_it(page: Path) -> None:
    assert [(file.name, name) for file, name in named(page) if name not in names_in(file)] == []


def test_architecture_page_names_over_100_code_symbols() -> None:
    assert len(named(WALKS)) > 100


def test_architecture_page_lists_every_first_level_subpackage() -> None:
    rows: dict[str, set[str]] = {}
    package = ""
    for bold, room in re.findall(r"^\| (?:\*\*(\w+)\*\* )?`(\w+)/` \|", text_of(WALKS), re.M):
        package = bold or package
        rows.setdefault(package, set()).add(room)
    there = {
        package.name.removeprefix("fedperf_"): {
            path.parent.name for path in package.glob("*/__init__.py")
        }
        for package in ROOT.glob("*/fedperf_*")
        if (package / "__init__.py").exists()
    }
    assert rows == there


@by_page
def test_documentation_python_code_imports_existing_names(page: Path) -> None:
    for block in CODE.findall(text_of(page)):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedperf_"):
                module = import_module(str(node.module))
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert missing == [], node.module


def test_changelog_has_dated_releases_in_order_up_to_the_project_version() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    first, *releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    found = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", each) for each in releases]
    order = [(*map(int, each.groups()[:3]), each[4]) for each in found if each]
    assert first == "Unreleased"
    assert order == sorted(order, reverse=True)
    assert len(order) == len(releases)
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert releases[0].startswith(f"{project['version']} - ")
    parts = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
