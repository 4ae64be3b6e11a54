"""An organization's home directory and its configuration file.

Everything that fedperf keeps for an organization lies in one directory, readable by
its owner only: configuration and policy (written by people), identity, executions,
ledger and downloaded models. A configuration that is wrong is refused whole, with
every problem named by its key.

Notes on the last contact with the coordinator, to the minute, which `fedperf status` reads.

A daemon keeps them while it runs, and joining is a contact as well. Whatever the coordinator
answers to a member ends a refusal from before.
"""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.settings_file import load_model

CONFIG_TEMPLATE = """\
# What this organization's daemon does. Privacy is declared in policy.toml beside it.

# Files or directories of executions that already ran; the daemon follows them. Relative
# paths count from this directory.
watch_paths = []

# Seconds between two looks at the coordinator and at the history.
poll_seconds = 5.0
"""

_NEW_NAMES = {"history": "watch_paths"}
"""By old key of config.toml."""


class ClientConfig(BaseModel):
    """The contents of config.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    watch_paths: tuple[Path, ...] = ()
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one organization."""

    directory: Path

    @property
    def config(self) -> Path:
        """Configuration, written by people."""
        return self.directory / "config.toml"

    @property
    def policy(self) -> Path:
        """Privacy policy, written by people."""
        return self.directory / "policy.toml"

    @property
    def identity(self) -> Path:
        """Private key, certificates and the coordinator's addresses."""
        return self.directory / "identity"

    @property
    def store(self) -> Path:
        """Executions; raw data that never leaves."""
        return self.directory / "executions.sqlite"

    @property
    def receipts(self) -> Path:
        """The coordinator's signed receipts, one file per release."""
        return self.directory / "receipts"

    @property
    def questions(self) -> Path:
        """What the coordinator asked in directed slots, one file per slot."""
        return self.directory / "questions"

    def ledger(self, period_start: datetime) -> Path:
        """The privacy ledger of a period."""
        return self.directory / f"ledger-{period_start:%Y%m%dT%H%M%S}.sqlite"

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """The ledgers of all periods so far, oldest first."""
        return tuple(sorted(self.directory.glob("ledger-*.sqlite")))

    @property
    def models(self) -> Path:
        """Downloaded model versions and the correction."""
        return self.directory / "models"

    @property
    def predictor(self) -> Path:
        """What predictions are made from, kept between commands; can be removed."""
        return self.directory / "predictor.safetensors"

    @property
    def data(self) -> Path:
        """Generated data of the workloads that ship with fedperf."""
        return self.directory / "data"

    @property
    def lock(self) -> Path:
        """Held by the daemon that runs on this home."""
        return self.directory / "daemon.lock"

    @property
    def contact(self) -> Path:
        """When the daemon last heard of the coordinator, to the minute."""
        return self.directory / "last-contact"

    @property
    def refusal(self) -> Path:
        """When the coordinator last said that this organization is no member, to the minute."""
        return self.directory / "last-refusal"

    @property
    def modes(self) -> Path:
        """The release modes that the running daemon has read of the policy."""
        return self.directory / "modes-in-force.json"

    @property
    def calendar(self) -> Path:
        """The coordinator's calendar as it was when this organization joined."""
        return self.directory / "calendar"

    def begun_policy(self, period_start: datetime) -> Path:
        """What of the policy a period's schedule follows from."""
        return self.directory / f"policy-{period_start:%Y%m%dT%H%M%S}.json"

    def create(self, policy: str) -> None:
        """Make the directory and write what is missing; existing files stay as they are.

        Raises:
            StorageError: the directory cannot be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            for path, text in ((self.config, CONFIG_TEMPLATE), (self.policy, policy)):
                if not path.exists():
                    write_private(path, text.encode())
        except OSError as error:
            raise StorageError(
                f"cannot write {self.directory}: {error.strerror}; choose another --home"
            ) from error

    def load_config(self) -> ClientConfig:
        """Read config.toml.

        Raises:
            ConfigurationError: missing, not TOML, or wrong; every problem is named.
        """
        config = load_model(
            self.config, ClientConfig, absent="run: fedperf init", new_names=_NEW_NAMES
        )
        paths = tuple(self.directory / path.expanduser() for path in config.watch_paths)
        return config.model_copy(update={"watch_paths": paths})


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; a reader sees the old or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)


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
