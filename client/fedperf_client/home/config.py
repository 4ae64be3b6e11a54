"""The home directory of an organization and its configuration file.

Everything that fedperf keeps for an organization is in one directory, which only its owner can
read: configuration and policy (written by people), identity, executions, ledger and downloaded
models. A wrong configuration is refused, with every problem named by its key.
"""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from fedperf_shared.errors import InvalidInputError, StorageError
from fedperf_shared.runtime.addresses import Address, parse_place
from fedperf_shared.runtime.settings_file import load_model

CONFIG_TEMPLATE = """\
# What this organization's daemon does. Privacy is declared in policy.toml beside it.

# Files or directories of executions that already ran; the daemon follows them. Relative
# paths count from this directory. Addresses (s3://, gs://, abfss://, http://HOST:18080) are
# listed every five minutes.
watch_paths = []

# Seconds between two looks at the coordinator and at the history.
poll_seconds = 5.0
"""

_NEW_NAMES = {"history": "watch_paths"}  # present names of old keys of config.toml


def _place(value: object) -> Path | Address:
    """Return a path or address of config.toml."""
    if not isinstance(value, str | Path):
        raise PydanticCustomError("path_type", "not a path")
    try:
        return parse_place(str(value))
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


class ClientConfig(BaseModel):
    """The contents of config.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    watch_paths: tuple[Annotated[Path | Address, PlainValidator(_place)], ...] = ()
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str

    def __get__(self, home: "Home", owner: type["Home"]) -> Path:
        return home.directory / self.name


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one organization."""

    directory: Path

    config = _Entry("config.toml")  # configuration, written by people
    policy = _Entry("policy.toml")  # privacy policy, written by people
    identity = _Entry("identity")  # private key, certificates and the coordinator's addresses
    store = _Entry("executions.sqlite")  # executions: raw data that never leaves
    receipts = _Entry("receipts")  # the coordinator's signed receipts, one file per release
    queries = _Entry("questions")  # linear queries of the coordinator, one file per directed slot
    # Fitted predictors, cached between commands; can be removed.
    predictor = _Entry("predictor.safetensors")
    data = _Entry("data")  # generated data of the workloads that ship with fedperf
    lock = _Entry("daemon.lock")  # held by the running daemon
    contact = _Entry("last-contact")  # when the coordinator last responded, to the minute
    # When the coordinator last refused this organization as a member, to the minute.
    refusal = _Entry("last-refusal")
    # The release modes of the policy that the running daemon has read.
    modes = _Entry("modes-in-force.json")
    calendar = _Entry("calendar")  # the coordinator's calendar when this organization joined

    @property
    def models(self) -> Path:
        """Downloaded model versions and the correction."""
        return self.directory / "models"

    def ledger(self, period_start: datetime) -> Path:
        """Return the path of the privacy ledger of a period."""
        return self.directory / f"ledger-{period_start:%Y%m%dT%H%M%S}.sqlite"

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """The ledgers of all periods so far, oldest first."""
        return tuple(sorted(self.directory.glob("ledger-*.sqlite")))

    def begun_policy(self, period_start: datetime) -> Path:
        """Return the path of the part of the policy that fixes a period's schedule."""
        return self.directory / f"policy-{period_start:%Y%m%dT%H%M%S}.json"

    def create(self, policy: str) -> None:
        """Create the directory and write missing files; existing files stay as they are.

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
            ConfigurationError: it is missing, not TOML, or wrong; every problem is named.
        """
        config = load_model(
            self.config, ClientConfig, absent="run: fedperf init", new_names=_NEW_NAMES
        )
        paths = tuple(
            self.directory / path.expanduser() if isinstance(path, Path) else path
            for path in config.watch_paths
        )
        return config.model_copy(update={"watch_paths": paths})


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read. Readers see the old file or the whole new one."""
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
    """The last contact with the coordinator, for `fedperf status`.

    The daemon and joining record it. Any response to a member ends an earlier refusal.
    """

    heard_at: datetime | None = None  # when the coordinator last responded; None if it never did
    # When it last refused this organization as a member; None if it responded since.
    refused_at: datetime | None = None

    @classmethod
    def of(cls, home: Home) -> Self:
        """Read the last contact.

        Raises:
            StorageError: a file cannot be read.
        """
        return cls(_read(home.contact), _read(home.refusal))

    def note(self, home: Home) -> None:
        """Store the contact, to the minute; values that are None leave what is stored."""
        if self.heard_at is not None:
            _write(home.contact, self.heard_at)
        if self.refused_at is not None:
            _write(home.refusal, self.refused_at)
        elif self.heard_at is not None:
            home.refusal.unlink(missing_ok=True)


def _read(path: Path) -> datetime | None:
    try:
        return datetime.fromisoformat(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}; remove it") from error


def _write(path: Path, timestamp: datetime) -> None:
    content = f"{timestamp.replace(second=0, microsecond=0).isoformat()}\n".encode()
    if not (path.exists() and path.read_bytes() == content):
        write_private(path, content)
