"""Options that several commands have."""

from datetime import UTC, datetime
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")]
Quick = Annotated[bool, typer.Option("--quick", help="A small version that shows that it runs.")]


def now() -> datetime:
    """Return the moment of a command."""
    return datetime.now(UTC)
