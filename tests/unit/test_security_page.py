"""Tests that every test named in SECURITY.md exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")


def test_security_page_names_only_existing_tests() -> None:
    files = list(TESTS.rglob("*.py"))
    names = {path.name for path in files}
    texts = "\n".join(path.read_text(encoding="utf-8") for path in files)
    defined = set(re.findall(r"def (test_\w+)", texts))
    named = re.findall(r"`(?:tests/\w+/)?(test_\w+)(\.py)?`", PAGE)
    assert len(named) > 20
    missing = [
        name for name, suffix in named if not (name + ".py" in names if suffix else name in defined)
    ]
    assert missing == []
