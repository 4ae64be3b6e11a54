"""Notes on the last contact with the coordinator, to the minute, which `fedperf status` reads.

A daemon keeps them while it runs, and joining is a contact as well. Whatever the coordinator
answers to a member ends a refusal from before.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from fedperf_client.home.config import Home, write_private
from fedperf_shared.errors import StorageError


@dataclass(frozen=True, slots=True)
class Contact:
    """The last contact.

    Attributes:
        heard_at: when the coordinator last answered; None where it never did.
        refused_at: when it last said that this organization is no member; None where it answered
            since.
    """

    heard_at: datetime | None = None
    refused_at: datetime | None = None

    @classmethod
    def of(cls, home: Home) -> Self:
        """What was noted.

        Raises:
            StorageError: a note cannot be read.
        """
        return cls(_noted(home.contact), _noted(home.refusal))

    def note(self, home: Home) -> None:
        """Keep it, with what was noted before where it says nothing of its own."""
        if self.heard_at is not None:
            _write(home.contact, self.heard_at)
        if self.refused_at is not None:
            _write(home.refusal, self.refused_at)
        elif self.heard_at is not None:
            home.refusal.unlink(missing_ok=True)


def _noted(path: Path) -> datetime | None:
    try:
        return datetime.fromisoformat(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}; remove it") from error


def _write(path: Path, moment: datetime) -> None:
    said = f"{moment.replace(second=0, microsecond=0).isoformat()}\n".encode()
    if not (path.exists() and path.read_bytes() == said):
        write_private(path, said)
