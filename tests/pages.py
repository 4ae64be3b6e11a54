"""Pages of the documentation that tests hold against the programs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
ENGINEER = DOCS / "data-engineer.md"
OPERATOR = DOCS / "operator.md"
RESEARCHER = DOCS / "researcher.md"
REFERENCE = DOCS / "reference.md"
