"""Tests of the counts of `tests/shape`."""

import sys
from pathlib import Path

import pytest

from tests.frozen.freeze import Product
from tests.shape.count import count, count_packages
from tests.shape.walks import traced

MODULE = '''"""A module,
of two lines.
"""

import os
from pathlib import (
    Path,
)

LIMIT, _other = 3, 4
"""Most of it."""


class Shown:
    """A class."""

    def bare(self):
        return os, Path, LIMIT  # a comment


def _hidden(values):
    """Something."""
    for each in values:
        if each:
            return """text
            of two lines"""
        elif each is None:
            pass
    return _other
'''


def test_count_module_separates_code_imports_and_docstrings() -> None:
    found = count(MODULE)
    assert (found.lines, found.imports, found.docstrings) == (29, 4, 5)
    assert found.code == 13
    assert (found.public, found.documented, found.constants) == (2, 1, 1)
    assert sorted(found.function_lines) == [2, 9]
    assert sorted(found.nesting) == [0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("packed", ["x = 1; y = 2\n", "if x: y = 2\n"])
def test_count_module_counts_packed_statements_as_one_line(packed: str) -> None:
    assert count(packed).code == 1


def test_count_packages_excludes_generated_modules_from_code(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "own.py").write_text("x = 1\n")
    (tmp_path / "shared" / "made_pb2.py").write_text("y = 1\nz = 2\n")
    found = count_packages(tmp_path)["product"]
    assert (found["files"], found["lines"], found["code"]) == (2, 3, 1)


CALLED = """\
def while_imported(): pass
while_imported()
def outer(): return [inner() for _ in range(3)]
def inner(): pass
def never(): pass
"""


def test_traced_counts_functions_called_by_a_program_and_its_children(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "client").mkdir(parents=True)
    (code / "client" / "walked.py").write_text(CALLED)
    product = Product(code, sys.executable, tmp_path, tmp_path)
    child = "import subprocess, sys; import walked; walked.outer(); "
    child += "subprocess.run([sys.executable, '-c', 'import walked; walked.inner()'])"
    walk = traced(product, "walk", lambda product: product.python_run("-c", child))
    assert walk.row == {"files": 1, "functions": 2, "calls": 5}


def test_traced_program_without_calls_is_refused(tmp_path: Path) -> None:
    product = Product(tmp_path, sys.executable, tmp_path, tmp_path)
    with pytest.raises(RuntimeError):
        traced(product, "walk", lambda product: product.python_run("-c", "pass"))
