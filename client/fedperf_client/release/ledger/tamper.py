"""Two small files next to the ledger's database reveal a restored backup.

One holds how many slots were charged, the other the last receipt of the coordinator. Both are
replaced atomically and synced to disk. A file that cannot be read is an error, never "nothing
there".
"""

import os
from dataclasses import dataclass
from pathlib import Path

from fedperf_shared.errors import StorageError

_COUNTER = "fedperf-counter/1"
_COUNTER_SUFFIX = ".counter"
_CONFIRMED = "fedperf-receipt/1"


@dataclass(frozen=True, slots=True)
class ConfirmedRelease:
    """The content of a verified receipt: the coordinator got these bytes for this slot.

    Attributes:
        release_id: of the slot.
        payload_sha256: of the bytes.
        sequence: counts the organization's releases from 1.
        signed: the receipt as it was signed, for an operator to show.
    """

    release_id: bytes
    payload_sha256: bytes
    sequence: int
    signed: bytes


def counter_path(ledger: Path) -> Path:
    """The path of a ledger's counter."""
    return ledger.with_name(ledger.name + _COUNTER_SUFFIX)


def confirmed_path(ledger: Path) -> Path:
    """The path of a ledger's last receipt."""
    return ledger.with_name(ledger.name + ".receipt")


def read_counter(ledger: Path) -> tuple[str, int] | None:
    """Identity of the ledger and its number of charges; None where there is no file."""
    path = counter_path(ledger)
    words = _read(path, _COUNTER, 2)
    if words is None:
        return None
    try:
        return words[0], int(words[1])
    except ValueError as error:
        raise StorageError(f"{path}: damaged counter: {error}") from error


def write_counter(ledger: Path, identity: str, charges: int) -> None:
    """Replace the counter durably."""
    _write(counter_path(ledger), f"{_COUNTER} {identity} {charges}\n")


def counter_disagreement(ledger: Path, identity: str, charges: int, what: str) -> str | None:
    """The counter file's objection to a file with that many charges; None if they agree.

    Args:
        ledger: the file.
        identity: of its promise.
        charges: that it holds.
        what: the charges are, in the message.
    """
    counter = read_counter(ledger)
    if counter is None:
        return (
            f"the counter file is missing, {ledger.name} holds {charges} {what}"
            if charges
            else None
        )
    if counter[0] != identity:
        return "the counter file belongs to another ledger"
    # One charge ahead of its counter is a crash right after the charge: nothing is hidden.
    if not charges - 1 <= counter[1] <= charges:
        return f"the counter file says {counter[1]} {what}, the ledger holds {charges}"
    return None


def counters_beside(path: Path) -> tuple[tuple[Path, int], ...]:
    """Every ledger that has a counter in the directory of `path`, with its charges."""
    names = sorted(path.parent.glob("*" + _COUNTER_SUFFIX))
    ledgers = [name.with_name(name.name.removesuffix(_COUNTER_SUFFIX)) for name in names]
    counters = [(ledger, read_counter(ledger)) for ledger in ledgers]
    return tuple((ledger, counter[1]) for ledger, counter in counters if counter is not None)


def read_confirmed(ledger: Path) -> ConfirmedRelease | None:
    """The last receipt; None where there is no file."""
    path = confirmed_path(ledger)
    words = _read(path, _CONFIRMED, 4)
    if words is None:
        return None
    try:
        release_id, digest, signed = (bytes.fromhex(words[place]) for place in (0, 1, 3))
        return ConfirmedRelease(release_id, digest, int(words[2]), signed)
    except ValueError as error:
        raise StorageError(f"{path}: damaged receipt: {error}") from error


def write_confirmed(ledger: Path, confirmed: ConfirmedRelease) -> None:
    """Replace the last receipt durably."""
    _write(
        confirmed_path(ledger),
        f"{_CONFIRMED} {confirmed.release_id.hex()} {confirmed.payload_sha256.hex()} "
        f"{confirmed.sequence} {confirmed.signed.hex()}\n",
    )


def remove_confirmed(ledger: Path) -> None:
    """Forget the last receipt, as an operator decided."""
    confirmed_path(ledger).unlink(missing_ok=True)


def _read(path: Path, mark: str, count: int) -> list[str] | None:
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    words = text.split()
    if len(words) != count + 1 or words[0] != mark:
        raise StorageError(f"{path}: not a file of fedperf's ledger, or damaged")
    return words[1:]


def _write(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
