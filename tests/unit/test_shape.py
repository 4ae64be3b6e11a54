"""What `tests/shape` counts."""

import pytest

from tests.shape.count import count

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


def test_count_module_tells_code_from_the_rest() -> None:
    found = count(MODULE)
    assert (found.lines, found.imports, found.docstrings) == (29, 4, 5)
    assert found.code == 13
    assert (found.public, found.documented, found.constants) == (2, 1, 1)
    assert sorted(found.function_lines) == [2, 9]
    assert sorted(found.nesting) == [0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("packed", ["x = 1; y = 2\n", "if x: y = 2\n"])
def test_count_packed_lines_count_once(packed: str) -> None:
    assert count(packed).code == 1
