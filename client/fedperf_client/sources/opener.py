"""An opener lists files and reads them: of a directory, of a zip, or one of several parts.

What reads a `FilePlace` reads directories of this machine, which are `pathlib.Path`s, and whatever
an opener lists, alike. Nothing is unpacked into files. What a zip claims is checked before anything
of it is read; its members then hold no more than they claim, or are damaged.
"""

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from fedperf_client.sources import NothingToReadError
from fedperf_shared.errors import InvalidInputError

MAX_MEMBERS = 2_000
MAX_DEPTH = 16
MAX_LISTING_BYTES = 2**20
MAX_UNPACKED_BYTES = 64 * 2**30
MAX_RATIO = 200
"""Of the bytes unpacked to the file's, where they are more than `RATIO_FROM_BYTES`."""

RATIO_FROM_BYTES = 2**28

_READ_BYTES = 128 * 1024
_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, KeyError, struct.error)
_NOT_CONTENT = (".", "__MACOSX")


class FilePlace(Protocol):
    """A file or a directory, as far as readers of logs use `pathlib.Path`."""

    @property
    def name(self) -> str:
        """The last part of where it lies."""
        ...

    def is_dir(self) -> bool:
        """Whether it holds other places."""
        ...

    def is_file(self) -> bool:
        """Whether it can be read."""
        ...

    def iterdir(self) -> "Iterator[FilePlace]":
        """The places in a directory, in any order."""
        ...

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """The bytes of a file."""
        ...


class UnreadArchiveError(InvalidInputError):
    """An archive claims more than is read, or is packed in a way that is not read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; unpack it and name the directory")


@dataclass(frozen=True, slots=True)
class ZipDirectory:
    """A directory inside of an archive."""

    name: str
    places: Sequence[FilePlace]

    def is_dir(self) -> bool:
        """It is."""
        return True

    def is_file(self) -> bool:
        """It is none."""
        return False

    def iterdir(self) -> Iterator[FilePlace]:
        """The places in it."""
        return iter(self.places)

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Refused, as of any directory."""
        raise IsADirectoryError(21, "Is a directory", self.name)


class _File:
    """What all files here have in common."""

    def is_dir(self) -> bool:
        """It is none."""
        return False

    def is_file(self) -> bool:
        """It is."""
        return True

    def iterdir(self) -> Iterator[FilePlace]:
        """Refused, as of any file."""
        raise NotADirectoryError(20, "Not a directory", str(self))


@dataclass(frozen=True)
class ZipMember(_File):
    """A file inside of a zip, which is opened anew for each reading."""

    archive: Path
    member: str

    @property
    def name(self) -> str:
        """Without its directories."""
        return self.member.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.archive}/{self.member}"

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Its bytes; reading them raises what zipfile does where they are damaged."""
        try:
            with zipfile.ZipFile(self.archive) as archive:  # closed with the member
                return archive.open(self.member)  # type: ignore[return-value]
        except _DAMAGE as error:
            raise zipfile.BadZipFile(f"{self.member}: {error}") from error


@dataclass(frozen=True)
class JoinedFile(_File):
    """One file that was split into several, in their order."""

    name: str
    parts: tuple[FilePlace, ...]

    def __str__(self) -> str:
        return str(self.parts[0])

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """The bytes of all parts."""
        return io.BufferedReader(BlockStream(self._blocks()), _READ_BYTES)

    def _blocks(self) -> Iterator[bytes]:
        for part in self.parts:
            with part.open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    yield block


class BlockStream(io.RawIOBase):
    """Blocks as a stream that is read once, from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As of every stream."""
        while not self._rest and (block := next(self._blocks, b"")):
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def open_zip(path: Path) -> ZipDirectory | None:
    """What a zip holds; None where the file is none.

    Raises:
        UnreadArchiveError: more than the limits of this module, or encrypted.
        NothingToReadError: it is damaged.
        OSError: it cannot be read.
    """
    with _ListedFile(path) as file:
        if not file.read(4).startswith(_BEGINNINGS):
            return None
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        except (*_DAMAGE, ValueError, EOFError) as error:
            raise NothingToReadError(f"{path}: a damaged zip ({error}); copy it again") from error
        size = file.seek(0, io.SEEK_END)
    if len(members) > MAX_MEMBERS:
        raise UnreadArchiveError(path, f"a zip of {len(members)} files, above {MAX_MEMBERS}")
    files = [each for each in members if not each.is_dir()]
    unpacked = sum(each.file_size for each in files)
    if unpacked > MAX_UNPACKED_BYTES or unpacked > max(RATIO_FROM_BYTES, MAX_RATIO * size):
        raise UnreadArchiveError(path, f"a zip of {size} bytes that claims to hold {unpacked}")
    tree: dict[str, object] = {}
    for each in files:
        _grow(tree, path, each)
    return _directory(path, tree, path.name)


class _ListedFile(io.FileIO):
    """A zip whose list of names is not read where it claims to be longer than the limit."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_LISTING_BYTES:
            raise UnreadArchiveError(
                Path(str(self.name)), f"a zip with {size} bytes of names, above {MAX_LISTING_BYTES}"
            )
        return super().read(size)


def _grow(tree: dict[str, object], path: Path, member: zipfile.ZipInfo) -> None:
    """Add a file to the tree of all."""
    parts = member.filename.split("/")
    if len(parts) > MAX_DEPTH or {"", ".", ".."} & set(parts) or "\\" in member.filename:
        raise UnreadArchiveError(path, "a zip with names that are no relative paths")
    if any(each.startswith(_NOT_CONTENT) for each in parts):
        return
    if member.flag_bits & _ENCRYPTED:
        raise UnreadArchiveError(path, "an encrypted zip")
    if member.compress_type not in _METHODS:
        raise UnreadArchiveError(path, f"a zip packed by method {member.compress_type}")
    for part in parts[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise UnreadArchiveError(path, "a zip that holds a name twice")
        tree = below
    if parts[-1] in tree:
        raise UnreadArchiveError(path, "a zip that holds a name twice")
    tree[parts[-1]] = member.filename


def _directory(path: Path, tree: Mapping[str, object], name: str) -> ZipDirectory:
    places: list[FilePlace] = []
    for part, below in tree.items():
        if isinstance(below, dict):
            places.append(_directory(path, below, part))
        else:
            places.append(ZipMember(path, str(below)))
    return ZipDirectory(name, places)
